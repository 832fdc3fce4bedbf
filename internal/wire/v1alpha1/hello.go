package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// encodeHello gives the parts of a hello: MaxBatch halves of bindings in each, more in all but the last.
func encodeHello(h *cats.ForwarderHello) []*pb.ForwarderHello {
	var parts []*pb.ForwarderHello
	bindings := h.Bindings
	for {
		n := min(len(bindings), MaxBatch)
		part := &pb.ForwarderHello{
			Name:          h.Name,
			BootId:        h.BootID,
			LayoutVersion: h.LayoutVersion,
			Capabilities:  EncodeCapabilities(h.Capabilities),
			ReturnSid:     octets(h.ReturnSID),
			More:          n < len(bindings),
		}
		part.Attachments = encodeAttachments(h.Attachments)
		for _, s := range h.Highest {
			part.Highest = append(part.Highest, &pb.ShardEpoch{Shard: uint32(s.Shard), Epoch: EncodeEpoch(s.Epoch)})
		}
		for i := range bindings[:n] {
			part.Bindings = append(part.Bindings, encodeHeld(&bindings[i]))
		}
		parts = append(parts, part)
		if bindings = bindings[n:]; len(bindings) == 0 {
			return parts
		}
	}
}

func decodeHello(m *pb.ForwarderHello) (cats.ForwarderHello, error) {
	d := &decoder{}
	h := cats.ForwarderHello{
		Name:          d.name("name", m.GetName()),
		BootID:        d.label("boot_id", m.GetBootId()),
		LayoutVersion: m.GetLayoutVersion(),
		ReturnSID:     d.optionalSID("return_sid", m.GetReturnSid()),
	}
	if h.BootID == "" {
		d.fail("boot_id", cats.ReasonMalformed, "missing")
	}
	d.most("highest", len(m.GetHighest()), MaxServices)
	if d.err != nil {
		return h, d.err
	}
	var err error
	if h.Capabilities, err = DecodeCapabilities(m.GetCapabilities()); err != nil {
		return h, err
	}
	h.Attachments = decodeAttachments(d, "attachments", m.GetAttachments())
	h.Highest = decodeRows(d, "highest", m.GetHighest(), decodeShardEpoch,
		func(s cats.ShardEpoch) cats.Shard { return s.Shard })
	h.Bindings = decodeBatch(d, "bindings", m.GetBindings(), decodeHeld)
	return h, d.err
}

func decodeShardEpoch(m *pb.ShardEpoch) (cats.ShardEpoch, error) {
	d := &decoder{}
	s := cats.ShardEpoch{Shard: cats.Shard(m.GetShard()), Epoch: d.epoch("epoch", m.GetEpoch())}
	return s, d.err
}

func encodeHeld(h *cats.HeldBinding) *pb.HeldBinding {
	return &pb.HeldBinding{
		Half: enumOut[pb.Half](h.Half), State: EncodeFlowState(h.State), Reason: EncodeReason(h.Reason), Binding: EncodeBinding(&h.Binding),
	}
}

func decodeHeld(m *pb.HeldBinding) (cats.HeldBinding, error) {
	d := &decoder{}
	h := cats.HeldBinding{
		Half:   d.half(m.GetHalf()),
		State:  enumIn[cats.FlowState](d, "state", m.GetState(), pb.FlowState_name),
		Reason: d.reason("reason", m.GetReason()),
	}
	if h.State != cats.Active && h.State != cats.Draining {
		d.fail("state", cats.ReasonMalformed, "%s, need ACTIVE or DRAINING", h.State)
	}
	var err error
	h.Binding, err = DecodeBinding(m.GetBinding())
	d.nest("binding", err)
	return h, d.err
}

// EncodeAttachment gives the message form of a.
func EncodeAttachment(a *cats.ClientAttachment) *pb.Attachment {
	m := &pb.Attachment{Name: a.Name, Tenant: a.Tenant}
	for _, p := range a.Prefixes {
		m.SourcePrefixes = append(m.SourcePrefixes, EncodePrefix(p))
	}
	return m
}

func encodeAttachments(all []cats.ClientAttachment) []*pb.Attachment {
	var out []*pb.Attachment
	for i := range all {
		out = append(out, EncodeAttachment(&all[i]))
	}
	return out
}

// decodeAttachments decodes all attachments of a forwarder; not nil, unless there is an error.
func decodeAttachments(d *decoder, field string, all []*pb.Attachment) []cats.ClientAttachment {
	if d.most(field, len(all), MaxServices); d.err != nil {
		return nil
	}
	return decodeRows(d, field, all, decodeAttachment, func(a cats.ClientAttachment) string { return a.Name })
}

func decodeAttachment(m *pb.Attachment) (cats.ClientAttachment, error) {
	d := &decoder{}
	a := cats.ClientAttachment{Name: d.name("name", m.GetName()), Tenant: d.name("tenant", m.GetTenant())}
	if d.most("source_prefixes", len(m.GetSourcePrefixes()), MaxServices); d.err == nil && len(m.GetSourcePrefixes()) > 0 {
		a.Prefixes = decodeRows(d, "source_prefixes", m.GetSourcePrefixes(), DecodePrefix, func(p netip.Prefix) netip.Prefix { return p })
	}
	return a, d.err
}

// join adds the bindings of a further part to h; the parts of one hello agree in everything else.
func join(h, part *cats.ForwarderHello) error {
	d := &decoder{}
	if h.Name != part.Name || h.BootID != part.BootID || h.LayoutVersion != part.LayoutVersion ||
		h.Capabilities != part.Capabilities || h.ReturnSID != part.ReturnSID ||
		!slices.Equal(h.Highest, part.Highest) || !slices.EqualFunc(h.Attachments, part.Attachments, cats.ClientAttachment.Equal) {
		d.fail("hello", cats.ReasonMalformed, "a part differs from the first one in more than bindings")
	}
	d.most("hello.bindings", len(h.Bindings)+len(part.Bindings), MaxHelloBindings)
	h.Bindings = append(h.Bindings, part.Bindings...)
	return d.err
}

// A ForwarderReader puts the messages of one forwarder's session together again: it joins the parts of a hello and
// refuses what does not begin with one. The zero value is ready.
type ForwarderReader struct {
	hello   *cats.ForwarderHello // of which parts are still to come
	greeted bool
}

// Next checks one message. It gives a batch, or an empty one while parts of the hello are still to come. After an error
// the session is of no further use.
func (r *ForwarderReader) Next(m *pb.SteerRequest) (cats.ForwarderBatch, error) {
	batch, err := decodeForwarderBatch(m)
	if err != nil {
		return cats.ForwarderBatch{}, err
	}
	if r.greeted {
		if batch.Hello != nil {
			return cats.ForwarderBatch{}, fmt.Errorf("hello: a second one in this session: %w", cats.ReasonDuplicate)
		}
		return batch, nil
	}
	if batch.Hello == nil {
		return cats.ForwarderBatch{}, fmt.Errorf("hello: missing in the first message: %w", cats.ReasonMalformed)
	}
	if r.hello != nil {
		if err := join(r.hello, batch.Hello); err != nil {
			return cats.ForwarderBatch{}, err
		}
		batch.Hello = r.hello
	}
	if !m.GetHello().GetMore() {
		r.greeted, r.hello = true, nil
		return batch, nil
	}
	if batch.Attachments != nil || len(batch.Provisioned)+len(batch.Statuses)+len(batch.Requests) > 0 {
		return cats.ForwarderBatch{}, fmt.Errorf("hello: other parts of the session before its last part: %w", cats.ReasonMalformed)
	}
	r.hello = batch.Hello
	return cats.ForwarderBatch{}, nil
}
