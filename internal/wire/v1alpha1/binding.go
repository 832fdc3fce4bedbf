package v1alpha1

import (
	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// EncodeBinding gives the message form of b.
func EncodeBinding(b *cats.Binding) *pb.Binding {
	return &pb.Binding{
		Transaction:   encodeTransaction(b.Transaction),
		Shard:         uint32(b.Shard),
		Epoch:         EncodeEpoch(b.Epoch),
		Version:       b.Version,
		Match:         EncodeFlowKey(b.Match),
		CsId:          string(b.CSID),
		ServiceNumber: b.ServiceNumber,
		CsciId:        string(b.CSCIID),
		Forward: &pb.Forward{
			Locator: EncodeLocator(b.Locator), AttachmentSid: octets(b.Attachment), Path: EncodePath(&b.Path),
		},
		Reverse: &pb.Reverse{
			Service: EncodeTuple(b.Reverse.Service),
			Client:  EncodeTuple(b.Reverse.Client),
			Restore: EncodeEndpoint(b.Reverse.Restore),
			Path:    EncodePath(&b.Reverse.Path),
		},
		Owner:         b.Ingress,
		Egress:        b.Egress,
		IdleMs:        milliseconds64(b.Idle),
		HardMs:        milliseconds64(b.Hard),
		Slots:         b.Slots,
		CstGeneration: b.CSTGeneration,
		NstGeneration: b.NSTGeneration,
		PolicyVersion: b.PolicyVersion,
		DecidedNs:     int64(b.Decided),
	}
}

// DecodeBinding checks a binding: all of its fields, and that its halves belong together, so that a forwarder never
// holds a binding whose reverse direction answers another flow.
func DecodeBinding(m *pb.Binding) (cats.Binding, error) {
	d := &decoder{}
	b := cats.Binding{
		Transaction:   d.transaction("transaction", m.GetTransaction()),
		Shard:         cats.Shard(m.GetShard()),
		Epoch:         d.epoch("epoch", m.GetEpoch()),
		Version:       m.GetVersion(),
		CSID:          d.csid("cs_id", m.GetCsId()),
		ServiceNumber: m.GetServiceNumber(),
		CSCIID:        d.csciid("csci_id", m.GetCsciId()),
		Attachment:    d.optionalSID("forward.attachment_sid", m.GetForward().GetAttachmentSid()),
		Ingress:       d.name("owner", m.GetOwner()),
		Egress:        d.name("egress", m.GetEgress()),
		Idle:          d.atMost("idle_ms", m.GetIdleMs(), maxDuration),
		Hard:          d.atMost("hard_ms", m.GetHardMs(), maxDuration),
		Slots:         m.GetSlots(),
		CSTGeneration: m.GetCstGeneration(),
		NSTGeneration: m.GetNstGeneration(),
		PolicyVersion: d.label("policy_version", m.GetPolicyVersion()),
		Decided:       cats.Instant(m.GetDecidedNs()),
	}
	d.positive("version", uint64(b.Version))
	d.positive("service_number", uint64(b.ServiceNumber))
	d.positive("idle_ms", m.GetIdleMs())
	var err error
	b.Match, err = DecodeFlowKey(m.GetMatch())
	d.nest("match", err)
	b.Locator, err = DecodeLocator(m.GetForward().GetLocator())
	d.nest("forward.locator", err)
	b.Path, err = DecodePath(m.GetForward().GetPath())
	d.nest("forward.path", err)
	b.Reverse, err = decodeReverse(m.GetReverse())
	d.nest("reverse", err)
	if d.err == nil {
		d.coherent(&b)
	}
	if d.err != nil {
		return cats.Binding{}, d.err
	}
	return b, nil
}

func decodeReverse(m *pb.Reverse) (cats.Reverse, error) {
	d := &decoder{}
	var r cats.Reverse
	var err error
	r.Service, err = DecodeTuple(m.GetService())
	d.nest("service", err)
	r.Client, err = DecodeTuple(m.GetClient())
	d.nest("client", err)
	r.Restore, err = DecodeEndpoint(m.GetRestore())
	d.nest("restore", err)
	r.Path, err = DecodePath(m.GetPath())
	d.nest("path", err)
	return r, d.err
}

// coherent checks what the two directions of a binding say of each other (CP section 7.2).
func (d *decoder) coherent(b *cats.Binding) {
	service := cats.Tuple{Protocol: b.Locator.Protocol, Source: b.Locator.Address, Target: b.Match.Tuple.Source}
	switch {
	case b.Locator.Protocol != b.Match.Tuple.Protocol:
		d.fail("forward.locator", cats.ReasonMalformed, "%s for a flow of %s", b.Locator, b.Match.Tuple)
	case b.Reverse.Service != service:
		d.fail("reverse.service", cats.ReasonMalformed, "%s, need locator to client: %s", b.Reverse.Service, service)
	case b.Reverse.Client != b.Match.Tuple.Reverse():
		d.fail("reverse.client", cats.ReasonMalformed, "%s, need the reverse of the match: %s", b.Reverse.Client, b.Match.Tuple.Reverse())
	case b.Reverse.Restore != b.Match.Tuple.Target:
		d.fail("reverse.restore", cats.ReasonMalformed, "%s, need the service address: %s", b.Reverse.Restore, b.Match.Tuple.Target)
	}
}

// EncodeBindingStatus gives the message form of s.
func EncodeBindingStatus(s *cats.BindingStatus) *pb.BindingStatus {
	m := &pb.BindingStatus{
		Transaction: encodeTransaction(s.Transaction),
		Forwarder:   s.Forwarder,
		Half:        enumOut[pb.Half](s.Half),
		Version:     s.Version,
		Result:      enumOut[pb.BindingResult](s.Result),
		Reason:      EncodeReason(s.Reason),
		Detail:      printable(s.Detail, MaxDetail),
		Forward:     EncodeUsage(s.Forward),
		Reverse:     EncodeUsage(s.Reverse),
		PathUp:      s.PathUp,
	}
	if s.Expires.Present {
		ms := milliseconds64(s.Expires.Value)
		m.ExpiresMs = &ms
	}
	return m
}

// DecodeBindingStatus checks a binding status. Whether the forwarder is who it says is the caller's to check.
func DecodeBindingStatus(m *pb.BindingStatus) (cats.BindingStatus, error) {
	d := &decoder{}
	s := cats.BindingStatus{
		Transaction: d.transaction("transaction", m.GetTransaction()),
		Forwarder:   d.name("forwarder", m.GetForwarder()),
		Half:        d.half(m.GetHalf()),
		Version:     m.GetVersion(),
		Result:      enumIn[cats.BindingResult](d, "result", m.GetResult(), pb.BindingResult_name),
		Reason:      d.reason("reason", m.GetReason()),
		Detail:      d.detail(m.GetDetail()),
		Forward:     decodeUsage(m.GetForward()),
		Reverse:     decodeUsage(m.GetReverse()),
		PathUp:      m.GetPathUp(),
	}
	if m != nil && m.ExpiresMs != nil {
		s.Expires = cats.Some(d.atMost("expires_ms", *m.ExpiresMs, maxDuration))
	}
	if d.err != nil {
		return cats.BindingStatus{}, d.err
	}
	return s, nil
}
