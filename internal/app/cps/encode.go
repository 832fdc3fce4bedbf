package cps

import (
	"net/netip"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/cps"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/selection"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

func octets(a netip.Addr) []byte { return a.AsSlice() }

// stageName gives the stage as the contract has it: empty where nothing removed a candidate.
func stageName(s selection.Stage) string {
	if s == selection.StageNone {
		return ""
	}
	return s.String()
}

func encodeAddress(a *catalogue.Address) *pb.ServiceAddress {
	return &pb.ServiceAddress{Prefix: v1alpha1.EncodePrefix(a.Prefix), Protocol: uint32(a.Protocol), Port: uint32(a.Port)}
}

func encodeService(v *core.ServiceView) *pb.ServiceStatus {
	s := &v.Service
	band := uint32(s.BandPercent)
	m := &pb.Service{
		CsId: string(s.CSID), Number: s.Number, Name: s.Name, Version: s.Version, GasMode: pb.GasMode(s.GASMode) + 1,
		Policy: encodePolicy(s.Policy), BandPercent: &band, Fallback: pb.Fallback_FALLBACK_FAIL, ReturnMode: pb.ReturnMode_RETURN_MODE_ENCAP,
		Tenants: s.Tenants, State: pb.ServiceState(s.State) + 1, IdleMs: uint64(s.Idle.Milliseconds()), HardMs: uint64(s.Hard.Milliseconds()),
	}
	if s.StrictReturn {
		m.ReturnMode = pb.ReturnMode_RETURN_MODE_STRICT
	}
	for i := range s.Addresses {
		m.Addresses = append(m.Addresses, encodeAddress(&s.Addresses[i]))
	}
	return &pb.ServiceStatus{
		Service: m, Deployments: uint32(v.Deployments), Eligible: uint32(v.Eligible), EffectiveSlots: v.EffectiveSlots, Bindings: uint64(v.Bindings),
	}
}

func encodePolicy(p catalogue.Policy) pb.SelectionPolicy { return pb.SelectionPolicy(p) + 1 }

func encodeDeployment(d *catalogue.Deployment) *pb.Deployment {
	m := &pb.Deployment{
		Site: d.Site, CsciId: string(d.CSCIID), CsId: string(d.CSID), Version: d.Version, Locator: v1alpha1.EncodeLocator(d.Locator),
		State: pb.DeploymentState(d.State) + 1,
	}
	for _, e := range d.Egress {
		m.Egress = append(m.Egress, &pb.EgressAttachment{Forwarder: e.Forwarder, Sid: octets(e.SID)})
	}
	return m
}

func encodeInstance(v *core.InstanceView) *pb.InstanceStatus {
	m := &pb.InstanceStatus{
		CsId: string(v.Instance.CSID), CsciId: string(v.Instance.CSCIID), Report: encodeReport(v.Report), Debited: v.Debited,
		EffectiveSlots: v.EffectiveSlots, Bindings: uint64(v.Bindings), Delivering: v.Delivering, Stage: stageName(v.Stage),
	}
	if v.Deployment != nil {
		m.Deployment = encodeDeployment(v.Deployment)
	}
	return m
}

func encodeReport(r *core.ReportView) *pb.InstanceReport {
	if r == nil {
		return nil
	}
	return &pb.InstanceReport{
		Health: v1alpha1.EncodeHealth(r.Health), ReportingState: v1alpha1.EncodeReportingState(r.Reporting), Metrics: v1alpha1.EncodeMetrics(&r.Metrics),
		Version: r.Version, Source: r.Source, Epoch: r.Position.Epoch, Seq: r.Position.Sequence, Generation: r.Generation,
		Validity: v1alpha1.EncodeValidity(r.Validity), AgeMs: uint64(r.Age.Milliseconds()), TtlMs: uint64(r.TTL.Milliseconds()), Warned: r.Warned,
	}
}

func encodePathRow(row *core.PathRowView, path *cats.Path) *pb.PathRow {
	if row == nil {
		return nil
	}
	m := &pb.PathRow{
		Headend: row.Headend, Egress: row.Egress, Color: row.Color, Reachable: row.Reachable, Metrics: v1alpha1.EncodePathMetrics(row.Metrics),
		Source: row.Source, Generation: row.TableGeneration, Validity: v1alpha1.EncodeValidity(row.Validity),
		AgeMs: uint64(row.Age.Milliseconds()), TtlMs: uint64(row.TTL.Milliseconds()),
	}
	if path != nil {
		m.Path = v1alpha1.EncodePath(path)
	}
	return m
}

func encodeFlow(v *core.FlowView) *pb.BindingRow {
	return &pb.BindingRow{
		Binding: v1alpha1.EncodeBinding(&v.Binding), State: v1alpha1.EncodeFlowState(v.State), Forward: v1alpha1.EncodeUsage(v.Forward),
		Reverse: v1alpha1.EncodeUsage(v.Reverse), PathUp: v.PathUp, AgeMs: uint64(v.Age.Milliseconds()), Reason: v1alpha1.EncodeReason(v.Reason),
	}
}

func encodeForwarder(v *core.ForwarderView, now cats.Instant) *pb.ForwarderStatus {
	m := &pb.ForwarderStatus{
		Name: v.Name, Connected: v.Connected, Capabilities: v1alpha1.EncodeCapabilities(v.Hello.Capabilities), ReturnSid: octets(v.Hello.ReturnSID),
		BootId: v.Hello.BootID, ProvisionSent: v.Sent, ProvisionAcknowledged: v.Acknowledged, ProvisionReason: v1alpha1.EncodeReason(v.Refused),
		Bindings: uint64(v.Bindings),
	}
	if v.Since != 0 {
		since := uint64(now.Sub(v.Since).Milliseconds())
		m.SinceMs = &since
	}
	for i := range v.Hello.Attachments {
		m.Attachments = append(m.Attachments, v1alpha1.EncodeAttachment(&v.Hello.Attachments[i]))
	}
	for _, id := range v.Deliveries {
		m.Deliveries = append(m.Deliveries, string(id))
	}
	return m
}

func encodeExplanation(x *core.Explanation, c *catalogue.Catalogue) *pb.ExplainResponse {
	m := &pb.ExplainResponse{
		Resolution:    &pb.Resolution{CsId: string(x.CSID), By: x.Resolved, Tenant: x.Request.Key.Tenant},
		PolicyVersion: x.Version, CstGeneration: x.CSTGeneration, NstGeneration: x.NSTGeneration, Band: x.Band,
		TedbGeneration: x.Path.TEDBGeneration,
	}
	if x.CSID != "" {
		m.Policy = encodePolicy(x.Policy)
	}
	if a := c.Address(x.Request.Key.Tuple.Protocol, x.Request.Key.Tuple.Target); a != nil && x.Resolved != "explicit" && x.CSID != "" {
		m.Resolution.Address = encodeAddress(a)
	}
	for i := range x.Candidates {
		m.Candidates = append(m.Candidates, encodeCandidate(&x.Candidates[i]))
	}
	if x.Refusal != cats.ReasonNone {
		m.Refusal = &pb.Refusal{Reason: v1alpha1.EncodeReason(x.Refusal), Stage: x.Stage, Detail: x.Detail}
		return m
	}
	m.Chosen = encodeChosen(x)
	return m
}

func encodeCandidate(x *core.ExplainedCandidate) *pb.Candidate {
	m := &pb.Candidate{
		CsciId: string(x.CSCIID), Site: x.Site, Locator: v1alpha1.EncodeLocator(x.Locator), Egress: x.Egress, Color: x.Color,
		Stage: stageName(x.Stage), Detail: x.Why, Rank: uint32(x.Rank), EqualToBest: x.Equal, Report: encodeReport(x.Report),
		EffectiveSlots: x.EffectiveSlots, Path: encodePathRow(x.Path, nil),
	}
	if x.Rank > 0 {
		value := float64(x.Value)
		m.Value = &value
	}
	if x.Report != nil && x.Path != nil {
		m.RealDelayUs = &x.RealDelayUS
	}
	return m
}

func encodeChosen(x *core.Explanation) *pb.Chosen {
	m := &pb.Chosen{
		CsciId: string(x.Chosen.CSCIID), Locator: v1alpha1.EncodeLocator(x.Chosen.Locator), Egress: x.Chosen.Egress, Slots: x.Slots,
		Forward: v1alpha1.EncodePath(pathOf(&x.Path)), ForwardMetrics: v1alpha1.EncodePathMetrics(x.Path.Metrics),
		Before: plain(x.Before), After: encapsulated(x.After, x.Path.Segments), Answer: plain(x.Answer), Delivered: plain(x.Delivered),
	}
	if !x.ReturnTo.IsValid() {
		m.Reverse, m.ReverseMetrics = v1alpha1.EncodePath(pathOf(&x.ReturnPath)), v1alpha1.EncodePathMetrics(x.ReturnPath.Metrics)
	}
	return m
}

func plain(t cats.Tuple) *pb.PacketView {
	return &pb.PacketView{Tuple: v1alpha1.EncodeTuple(t), Encapsulation: pb.Encapsulation_ENCAPSULATION_NONE}
}

// encapsulated is a packet on an SRv6 path: one segment is the destination alone, without a routing header.
func encapsulated(t cats.Tuple, segments []netip.Addr) *pb.PacketView {
	m := &pb.PacketView{Tuple: v1alpha1.EncodeTuple(t), Encapsulation: pb.Encapsulation_ENCAPSULATION_SRV6, OuterDestination: octets(segments[0])}
	if len(segments) > 1 {
		for _, s := range segments {
			m.Segments = append(m.Segments, octets(s))
		}
	}
	return m
}
