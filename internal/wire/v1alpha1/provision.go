package v1alpha1

import (
	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

func encodeProvision(p *cats.Provision) *pb.Provision {
	m := &pb.Provision{
		Generation: p.Generation,
		Shard:      uint32(p.Shard),
		Epoch:      EncodeEpoch(p.Epoch),
		Services:   make([]*pb.ServiceRule, len(p.Services)),
		Deliveries: make([]*pb.Delivery, len(p.Deliveries)),
	}
	for i, r := range p.Services {
		m.Services[i] = &pb.ServiceRule{
			Number: r.Number, CsId: string(r.CSID), Prefix: EncodePrefix(r.Prefix),
			Protocol: uint32(r.Protocol), Port: uint32(r.Port),
		}
	}
	for i, r := range p.Deliveries {
		m.Deliveries[i] = &pb.Delivery{CsciId: string(r.CSCIID), Locator: EncodeLocator(r.Locator), Sid: octets(r.SID)}
	}
	return m
}

func decodeProvision(m *pb.Provision) (cats.Provision, error) {
	d := &decoder{}
	p := cats.Provision{
		Generation: m.GetGeneration(),
		Shard:      cats.Shard(m.GetShard()),
		Epoch:      d.epoch("epoch", m.GetEpoch()),
	}
	d.most("services", len(m.GetServices()), MaxRows)
	d.most("deliveries", len(m.GetDeliveries()), MaxRows)
	if d.err != nil {
		return p, d.err
	}
	for i, r := range m.GetServices() {
		v, err := decodeServiceRule(r)
		d.nestAt("services", i, err)
		p.Services = append(p.Services, v)
	}
	for i, r := range m.GetDeliveries() {
		v, err := decodeDelivery(r)
		d.nestAt("deliveries", i, err)
		p.Deliveries = append(p.Deliveries, v)
	}
	return p, d.err
}

func decodeServiceRule(m *pb.ServiceRule) (cats.ServiceRule, error) {
	d := &decoder{}
	r := cats.ServiceRule{
		Number:   m.GetNumber(),
		CSID:     d.csid("cs_id", m.GetCsId()),
		Protocol: d.protocol("protocol", m.GetProtocol()),
		Port:     d.port("port", m.GetPort()),
	}
	d.positive("number", uint64(r.Number))
	var err error
	r.Prefix, err = DecodePrefix(m.GetPrefix())
	d.nest("prefix", err)
	return r, d.err
}

func decodeDelivery(m *pb.Delivery) (cats.Delivery, error) {
	d := &decoder{}
	r := cats.Delivery{CSCIID: d.csciid("csci_id", m.GetCsciId()), SID: d.sid("sid", m.GetSid())}
	var err error
	r.Locator, err = DecodeLocator(m.GetLocator())
	d.nest("locator", err)
	return r, d.err
}

func encodeProvisioned(p *cats.Provisioned) *pb.Provisioned {
	m := &pb.Provisioned{
		Forwarder: p.Forwarder, Shard: uint32(p.Shard), Generation: p.Generation,
		Reason: EncodeReason(p.Reason), Detail: printable(p.Detail, MaxDetail),
	}
	for _, id := range p.Deliveries {
		m.Deliveries = append(m.Deliveries, string(id))
	}
	return m
}

func decodeProvisioned(m *pb.Provisioned) (cats.Provisioned, error) {
	d := &decoder{}
	p := cats.Provisioned{
		Forwarder:  d.name("forwarder", m.GetForwarder()),
		Shard:      cats.Shard(m.GetShard()),
		Generation: m.GetGeneration(),
		Reason:     d.reason("reason", m.GetReason()),
		Detail:     d.detail(m.GetDetail()),
	}
	d.most("deliveries", len(m.GetDeliveries()), MaxRows)
	if d.err != nil {
		return p, d.err
	}
	for _, id := range m.GetDeliveries() {
		p.Deliveries = append(p.Deliveries, d.csciid("deliveries", id))
	}
	return p, d.err
}
