package v1alpha1

import (
	"math"
	"time"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// EncodeServiceRequest gives the message form of r.
func EncodeServiceRequest(r *cats.ServiceRequest) *pb.ServiceRequest {
	m := &pb.ServiceRequest{
		Transaction: encodeTransaction(r.Transaction),
		CsId:        string(r.CSID),
		Constraints: EncodeConstraints(r.Constraints),
		FlowKey:     EncodeFlowKey(r.Key),
		Ingress:     r.Ingress,
		Disposition: enumOut[pb.Disposition](r.Disposition),
		RemainingMs: milliseconds(r.Remaining),
	}
	if r.RequestGeneration.Present {
		g := uint32(r.RequestGeneration.Value)
		m.RequestGeneration = &g
	}
	return m
}

// DecodeServiceRequest checks a service request. Whether the ingress is who it says is the caller's to check.
func DecodeServiceRequest(m *pb.ServiceRequest) (cats.ServiceRequest, error) {
	d := &decoder{}
	r := cats.ServiceRequest{
		Transaction: d.transaction("transaction", m.GetTransaction()),
		Ingress:     d.name("ingress", m.GetIngress()),
		Disposition: enumIn[cats.Disposition](d, "disposition", m.GetDisposition(), pb.Disposition_name),
		Remaining:   time.Duration(m.GetRemainingMs()) * time.Millisecond,
	}
	if m.GetCsId() != "" {
		r.CSID = d.csid("cs_id", m.GetCsId())
	}
	if m != nil && m.RequestGeneration != nil {
		g := *m.RequestGeneration
		if g > math.MaxUint16 {
			d.fail("request_generation", cats.ReasonMalformed, "%d, at most %d", g, math.MaxUint16)
		}
		r.RequestGeneration = cats.Some(uint16(g))
	}
	var err error
	r.Constraints, err = DecodeConstraints(m.GetConstraints())
	d.nest("constraints", err)
	r.Key, err = DecodeFlowKey(m.GetFlowKey())
	d.nest("flow_key", err)
	if d.err != nil {
		return cats.ServiceRequest{}, d.err
	}
	return r, nil
}
