package v1alpha1

import (
	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// EncodeForwarder gives the messages of one batch, in the order in which they are to be sent: as many as the limits on
// one message need.
func EncodeForwarder(b *cats.ForwarderBatch) []*pb.SteerRequest {
	var out []*pb.SteerRequest
	if b.Hello != nil {
		for _, part := range encodeHello(b.Hello) {
			out = append(out, &pb.SteerRequest{Hello: part})
		}
	}
	if b.Attachments != nil {
		out = append(out, &pb.SteerRequest{Attachments: &pb.Attachments{Attachments: encodeAttachments(b.Attachments)}})
	}
	for i := range b.Provisioned {
		out = append(out, &pb.SteerRequest{Provisioned: encodeProvisioned(&b.Provisioned[i])})
	}
	for statuses, requests := b.Statuses, b.Requests; len(statuses)+len(requests) > 0; {
		m := &pb.SteerRequest{}
		statuses = take(statuses, MaxBatch, func(s *cats.BindingStatus) { m.Statuses = append(m.Statuses, EncodeBindingStatus(s)) })
		if len(statuses) == 0 {
			requests = take(requests, MaxBatch, func(r *cats.ServiceRequest) { m.Requests = append(m.Requests, EncodeServiceRequest(r)) })
		}
		out = append(out, m)
	}
	return out
}

// take hands at most most elements of list to use and gives the rest.
func take[T any](list []T, most int, use func(*T)) []T {
	n := min(len(list), most)
	for i := range list[:n] {
		use(&list[i])
	}
	return list[n:]
}

func decodeForwarderBatch(m *pb.SteerRequest) (cats.ForwarderBatch, error) {
	d := &decoder{}
	var b cats.ForwarderBatch
	if m.GetHello() != nil {
		hello, err := decodeHello(m.GetHello())
		d.nest("hello", err)
		b.Hello = &hello
	}
	if m.GetAttachments() != nil {
		b.Attachments = decodeAttachments(d, "attachments.attachments", m.GetAttachments().GetAttachments())
	}
	if m.GetProvisioned() != nil {
		provisioned, err := decodeProvisioned(m.GetProvisioned())
		d.nest("provisioned", err)
		b.Provisioned = []cats.Provisioned{provisioned}
	}
	b.Statuses = decodeBatch(d, "statuses", m.GetStatuses(), DecodeBindingStatus)
	b.Requests = decodeBatch(d, "requests", m.GetRequests(), DecodeServiceRequest)
	if d.err == nil && b.IsEmpty() {
		d.fail("message", cats.ReasonMalformed, "carries nothing that is known here")
	}
	if d.err != nil {
		return cats.ForwarderBatch{}, d.err
	}
	return b, nil
}

// decodeBatch decodes a list of at most MaxBatch elements; nil where it is empty.
func decodeBatch[M, R any](d *decoder, field string, list []M, decode func(M) (R, error)) []R {
	d.most(field, len(list), MaxBatch)
	var out []R
	for i, m := range list {
		if d.err != nil {
			return nil
		}
		r, err := decode(m)
		d.nestAt(field, i, err)
		out = append(out, r)
	}
	return out
}

// EncodeSteering gives the messages of one batch, in the order in which they are to be sent: as many as the limits on
// one message need. Carried out one after the other they do what the batch does.
func EncodeSteering(b *cats.SteeringBatch) []*pb.SteerResponse {
	var out []*pb.SteerResponse
	m := &pb.SteerResponse{}
	if b.Provision != nil {
		m.Provision = encodeProvision(b.Provision)
	}
	removes, drains, installs, refusals := b.Removes, b.Drains, b.Installs, b.Refusals
	for {
		removes = take(removes, MaxBatch, func(r *cats.Remove) { m.Removes = append(m.Removes, encodeRemove(r)) })
		if len(removes) == 0 {
			drains = take(drains, MaxBatch, func(r *cats.Drain) { m.Drains = append(m.Drains, encodeDrain(r)) })
		}
		if len(removes)+len(drains) == 0 {
			installs = take(installs, MaxBatch, func(i *cats.Install) { m.Installs = append(m.Installs, encodeInstall(i)) })
		}
		if len(removes)+len(drains)+len(installs) == 0 {
			refusals = take(refusals, MaxBatch, func(r *cats.Refuse) { m.Refusals = append(m.Refusals, encodeRefuse(r)) })
		}
		if m.Provision != nil || len(m.Removes)+len(m.Drains)+len(m.Installs)+len(m.Refusals) > 0 {
			out = append(out, m)
		}
		if len(removes)+len(drains)+len(installs)+len(refusals) == 0 {
			return out
		}
		m = &pb.SteerResponse{}
	}
}

// DecodeSteering checks one message of the C-PS to a forwarder.
func DecodeSteering(m *pb.SteerResponse) (cats.SteeringBatch, error) {
	d := &decoder{}
	var b cats.SteeringBatch
	if m.GetProvision() != nil {
		provision, err := decodeProvision(m.GetProvision())
		d.nest("provision", err)
		b.Provision = &provision
	}
	b.Removes = decodeBatch(d, "removes", m.GetRemoves(), decodeRemove)
	b.Drains = decodeBatch(d, "drains", m.GetDrains(), decodeDrain)
	b.Installs = decodeBatch(d, "installs", m.GetInstalls(), decodeInstall)
	b.Refusals = decodeBatch(d, "refusals", m.GetRefusals(), decodeRefuse)
	if d.err == nil && b.IsEmpty() {
		d.fail("message", cats.ReasonMalformed, "carries nothing that is known here")
	}
	if d.err != nil {
		return cats.SteeringBatch{}, d.err
	}
	return b, nil
}

func (d *decoder) half(h pb.Half) cats.Half { return enumIn[cats.Half](d, "half", h, pb.Half_name) }

func encodeRemove(r *cats.Remove) *pb.Remove {
	return &pb.Remove{
		Transaction: encodeTransaction(r.Transaction), Shard: uint32(r.Shard), Epoch: EncodeEpoch(r.Epoch),
		Half: enumOut[pb.Half](r.Half), Reason: EncodeReason(r.Reason),
	}
}

func decodeRemove(m *pb.Remove) (cats.Remove, error) {
	d := &decoder{}
	r := cats.Remove{
		Transaction: d.transaction("transaction", m.GetTransaction()),
		Shard:       cats.Shard(m.GetShard()),
		Epoch:       d.epoch("epoch", m.GetEpoch()),
		Half:        d.half(m.GetHalf()),
		Reason:      d.reason("reason", m.GetReason()),
	}
	return r, d.err
}

func encodeDrain(r *cats.Drain) *pb.Drain {
	return &pb.Drain{
		Transaction: encodeTransaction(r.Transaction), Shard: uint32(r.Shard), Epoch: EncodeEpoch(r.Epoch),
		Half: enumOut[pb.Half](r.Half), Reason: EncodeReason(r.Reason),
	}
}

func decodeDrain(m *pb.Drain) (cats.Drain, error) {
	d := &decoder{}
	r := cats.Drain{
		Transaction: d.transaction("transaction", m.GetTransaction()),
		Shard:       cats.Shard(m.GetShard()),
		Epoch:       d.epoch("epoch", m.GetEpoch()),
		Half:        d.half(m.GetHalf()),
		Reason:      d.reason("reason", m.GetReason()),
	}
	return r, d.err
}

func encodeInstall(i *cats.Install) *pb.Install {
	return &pb.Install{Half: enumOut[pb.Half](i.Half), Binding: EncodeBinding(&i.Binding)}
}

func decodeInstall(m *pb.Install) (cats.Install, error) {
	d := &decoder{}
	i := cats.Install{Half: d.half(m.GetHalf())}
	var err error
	i.Binding, err = DecodeBinding(m.GetBinding())
	d.nest("binding", err)
	return i, d.err
}

func encodeRefuse(r *cats.Refuse) *pb.Refuse {
	return &pb.Refuse{
		Transaction: encodeTransaction(r.Transaction), Shard: uint32(r.Shard), Epoch: EncodeEpoch(r.Epoch),
		Reason: EncodeReason(r.Reason), Stage: printable(r.Stage, 63), Detail: printable(r.Detail, MaxDetail),
	}
}

func decodeRefuse(m *pb.Refuse) (cats.Refuse, error) {
	d := &decoder{}
	r := cats.Refuse{
		Transaction: d.transaction("transaction", m.GetTransaction()),
		Shard:       cats.Shard(m.GetShard()),
		Epoch:       d.epoch("epoch", m.GetEpoch()),
		Reason:      d.reason("reason", m.GetReason()),
		Stage:       d.label("stage", m.GetStage()),
		Detail:      d.detail(m.GetDetail()),
	}
	if r.Reason == cats.ReasonNone {
		d.fail("reason", cats.ReasonMalformed, "missing")
	}
	return r, d.err
}
