package v1alpha1

import (
	"net/netip"
	"slices"
	"time"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// EncodePath gives the message form of p.
func EncodePath(p *cats.Path) *pb.Path {
	return &pb.Path{
		Kind:       enumOut[pb.PathKind](p.Kind),
		Segments:   encodeSegments(p.Segments),
		Labels:     slices.Clone(p.Labels),
		Handle:     p.Handle,
		Nodes:      slices.Clone(p.Nodes),
		Generation: p.Generation,
		DelayUs:    p.DelayUS,
	}
}

// DecodePath checks p: its form has to fit its kind.
func DecodePath(p *pb.Path) (cats.Path, error) {
	d := &decoder{}
	form := d.pathForm(p.GetKind(), p.GetSegments(), p.GetLabels(), p.GetHandle())
	v := cats.Path{
		Kind:       form.kind,
		Segments:   form.segments,
		Labels:     form.labels,
		Handle:     form.handle,
		Nodes:      d.nodes(p.GetNodes()),
		Generation: p.GetGeneration(),
		DelayUS:    p.GetDelayUs(),
	}
	if d.err != nil {
		return cats.Path{}, d.err
	}
	return v, nil
}

func encodeSegments(list []netip.Addr) [][]byte {
	if list == nil {
		return nil
	}
	segments := make([][]byte, len(list))
	for i, s := range list {
		segments[i] = octets(s)
	}
	return segments
}

// pathForm is what a headend activates; which field is used follows from the kind.
type pathForm struct {
	kind     cats.PathKind
	segments []netip.Addr
	labels   []uint32
	handle   string
}

// The labels below 16 are reserved (RFC 3032).
const (
	minLabel = 16
	maxLabel = 1<<20 - 1
)

func (d *decoder) pathForm(kind pb.PathKind, segments [][]byte, labels []uint32, handle string) pathForm {
	f := pathForm{kind: enumIn[cats.PathKind](d, "kind", kind, pb.PathKind_name), handle: d.text("handle", handle, 255)}
	d.most("segments", len(segments), MaxSegments)
	d.most("labels", len(labels), MaxSegments)
	d.present("segments", len(segments) > 0, f.kind == cats.PathSRv6)
	d.present("labels", len(labels) > 0, f.kind == cats.PathSRMPLS)
	switch f.kind {
	case cats.PathSRv6, cats.PathSRMPLS:
		d.present("handle", handle != "", false)
	case cats.PathTunnel:
		d.present("handle", handle != "", true)
	}
	if d.err != nil {
		return pathForm{}
	}
	for _, s := range segments {
		f.segments = append(f.segments, d.sid("segments", s))
	}
	for _, l := range labels {
		if l < minLabel || l > maxLabel {
			d.fail("labels", cats.ReasonMalformed, "%d, need %d to %d", l, minLabel, maxLabel)
		}
	}
	if len(labels) > 0 {
		f.labels = labels
	}
	return f
}

// present checks that a field stands exactly where the kind of path needs it.
func (d *decoder) present(field string, is, wanted bool) {
	switch {
	case is && !wanted:
		d.fail(field, cats.ReasonMalformed, "not under this kind of path")
	case !is && wanted:
		d.fail(field, cats.ReasonMalformed, "missing under this kind of path")
	}
}

func (d *decoder) nodes(list []string) []string {
	d.most("nodes", len(list), MaxNodes)
	if d.err != nil || len(list) == 0 {
		return nil
	}
	for _, n := range list {
		d.name("nodes", n)
	}
	return list
}

// EncodePathRequest gives the message form of r, sent at now. Only the network bounds are carried: a PCE needs nothing
// of the CST (CP section 7.1).
func EncodePathRequest(r *cats.PathRequest, now cats.Instant) *pb.PathRequest {
	m := &pb.PathRequest{
		Transaction:      encodeTransaction(r.Transaction),
		Headend:          r.Headend,
		Endpoint:         octets(r.Endpoint),
		Egress:           r.Egress,
		Attachment:       r.Attachment,
		Domain:           r.Domain,
		Color:            r.Color,
		Policy:           r.Policy,
		MaxDelayUs:       optionalOut(r.Bounds.MaxDelayUS),
		MaxJitterUs:      optionalOut(r.Bounds.MaxJitterUS),
		MaxLossPpm:       optionalOut(r.Bounds.MaxLossPPM),
		MinBandwidthKbps: optionalOut(r.Bounds.MinBandwidthKbps),
		Affinity: &pb.LinkAffinity{
			IncludeAny: r.Affinity.IncludeAny, IncludeAll: r.Affinity.IncludeAll, ExcludeAny: r.Affinity.ExcludeAny,
		},
		Disjointness:  pb.Disjointness(r.Disjointness),
		Protection:    r.Protection,
		Capabilities:  EncodeCapabilities(r.Capabilities),
		CstGeneration: r.CSTGeneration,
		NstGeneration: r.NSTGeneration,
		DeadlineMs:    milliseconds(r.Deadline.Sub(now)),
	}
	if !r.DisjointFrom.IsZero() {
		m.DisjointFrom = encodeTransaction(r.DisjointFrom)
	}
	return m
}

// DecodePathRequest checks a path request that was received at now.
func DecodePathRequest(m *pb.PathRequest, now cats.Instant) (cats.PathRequest, error) {
	d := &decoder{}
	r := cats.PathRequest{
		Transaction: d.transaction("transaction", m.GetTransaction()),
		Headend:     d.name("headend", m.GetHeadend()),
		Endpoint:    d.address("endpoint", m.GetEndpoint()),
		Egress:      d.name("egress", m.GetEgress()),
		Domain:      d.name("domain", m.GetDomain()),
		Color:       m.GetColor(),
		Policy:      d.optionalName("policy", m.GetPolicy()),
		Affinity: cats.LinkAffinity{
			IncludeAny: m.GetAffinity().GetIncludeAny(),
			IncludeAll: m.GetAffinity().GetIncludeAll(),
			ExcludeAny: m.GetAffinity().GetExcludeAny(),
		},
		Protection:    m.GetProtection(),
		CSTGeneration: m.GetCstGeneration(),
		NSTGeneration: m.GetNstGeneration(),
		Deadline:      now.Add(time.Duration(m.GetDeadlineMs()) * time.Millisecond),
	}
	if m != nil {
		r.Bounds = cats.Bounds{
			MaxDelayUS:       optionalIn(m.MaxDelayUs),
			MaxJitterUS:      optionalIn(m.MaxJitterUs),
			MaxLossPPM:       optionalIn(m.MaxLossPpm),
			MinBandwidthKbps: optionalIn(m.MinBandwidthKbps),
		}
	}
	if m.GetAttachment() != "" {
		r.Attachment = string(d.csciid("attachment", m.GetAttachment()))
	}
	r.DisjointFrom, r.Disjointness = d.disjoint(m)
	var err error
	r.Capabilities, err = DecodeCapabilities(m.GetCapabilities())
	if d.err == nil {
		d.err = err
	}
	if d.err != nil {
		return cats.PathRequest{}, d.err
	}
	return r, nil
}

func (d *decoder) disjoint(m *pb.PathRequest) (cats.Transaction, cats.Disjointness) {
	degree := m.GetDisjointness()
	if degree < 0 || int(degree) >= len(pb.Disjointness_name) {
		d.fail("disjointness", cats.ReasonMalformed, "value %d is not a disjointness", degree)
		return cats.Transaction{}, 0
	}
	if (degree == 0) != (len(m.GetDisjointFrom()) == 0) {
		d.fail("disjointness", cats.ReasonMalformed, "has to stand exactly where disjoint_from does")
		return cats.Transaction{}, 0
	}
	if degree == 0 {
		return cats.Transaction{}, cats.DisjointNone
	}
	return d.transaction("disjoint_from", m.GetDisjointFrom()), cats.Disjointness(degree)
}

// EncodePathReply gives the message form of r.
func EncodePathReply(r *cats.PathReply) *pb.PathReply {
	m := &pb.PathReply{
		Transaction:    encodeTransaction(r.Transaction),
		Status:         enumOut[pb.PathStatus](r.Status),
		Endpoint:       octets(r.Endpoint),
		Egress:         r.Egress,
		CstGeneration:  r.CSTGeneration,
		NstGeneration:  r.NSTGeneration,
		TedbGeneration: r.TEDBGeneration,
		Reason:         EncodeReason(r.Reason),
		Detail:         printable(r.Detail, MaxDetail),
	}
	if r.Status == cats.PathFound {
		m.Kind = enumOut[pb.PathKind](r.Kind)
		m.Segments = encodeSegments(r.Segments)
		m.Labels = slices.Clone(r.Labels)
		m.Handle = r.Handle
		m.Nodes = slices.Clone(r.Nodes)
		m.Metrics = EncodePathMetrics(r.Metrics)
	}
	return m
}

// DecodePathReply checks a path reply: a path where one was found and none otherwise. Whether it belongs to a request
// is the C-PS's to check (CP section 8.3).
func DecodePathReply(m *pb.PathReply) (cats.PathReply, error) {
	d := &decoder{}
	r := cats.PathReply{
		Transaction:    d.transaction("transaction", m.GetTransaction()),
		Status:         enumIn[cats.PathStatus](d, "status", m.GetStatus(), pb.PathStatus_name),
		Endpoint:       d.address("endpoint", m.GetEndpoint()),
		Egress:         d.name("egress", m.GetEgress()),
		CSTGeneration:  m.GetCstGeneration(),
		NSTGeneration:  m.GetNstGeneration(),
		TEDBGeneration: m.GetTedbGeneration(),
		Reason:         d.reason("reason", m.GetReason()),
		Detail:         d.detail(m.GetDetail()),
	}
	if r.Status == cats.PathFound {
		form := d.pathForm(m.GetKind(), m.GetSegments(), m.GetLabels(), m.GetHandle())
		r.Kind, r.Segments, r.Labels, r.Handle = form.kind, form.segments, form.labels, form.handle
		r.Nodes = d.nodes(m.GetNodes())
		var err error
		r.Metrics, err = DecodePathMetrics(m.GetMetrics())
		d.nest("metrics", err)
	} else if r.Reason == cats.ReasonNone {
		d.fail("reason", cats.ReasonMalformed, "missing where there is no path")
	}
	if d.err != nil {
		return cats.PathReply{}, d.err
	}
	return r, nil
}
