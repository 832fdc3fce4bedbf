package v1alpha1

import (
	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// EncodeNetworkUpdate gives the message form of u, sealed with auth where its algorithm is set.
func EncodeNetworkUpdate(u *cats.NetworkUpdate, auth cats.Auth) *pb.NetworkUpdate {
	m := &pb.NetworkUpdate{
		Header: encodeHeader(&u.UpdateHeader),
		Nodes:  make([]*pb.Node, len(u.Nodes)),
		Links:  make([]*pb.Link, len(u.Links)),
		Paths:  make([]*pb.NetworkPath, len(u.Paths)),
		Auth:   encodeAuth(auth),
	}
	for i, n := range u.Nodes {
		m.Nodes[i] = &pb.Node{Name: n.Name, Sid: octets(n.SID)}
	}
	for i, l := range u.Links {
		m.Links[i] = &pb.Link{
			From: l.From, To: l.To, DelayUs: l.DelayUS, JitterUs: l.JitterUS, LossPpm: l.LossPPM,
			BandwidthKbps: l.BandwidthKbps, TeMetric: l.TEMetric, AgeMs: milliseconds(l.Age),
		}
	}
	for i, p := range u.Paths {
		m.Paths[i] = &pb.NetworkPath{
			Headend: p.Headend, Egress: p.Egress, Color: p.Color, Reachable: p.Reachable,
			Metrics: EncodePathMetrics(p.Metrics), AgeMs: milliseconds(p.Age),
		}
	}
	return m
}

// DecodeNetworkUpdate checks the form of an update and gives it with its seal, which the caller verifies before it
// believes anything of the update. Links may name nodes that another source or update brings.
func DecodeNetworkUpdate(m *pb.NetworkUpdate) (cats.NetworkUpdate, cats.Auth, error) {
	d := &decoder{}
	header, err := decodeHeader(m.GetHeader())
	d.nest("header", err)
	auth, err := decodeAuth(m.GetAuth())
	d.nest("auth", err)
	d.most("nodes", len(m.GetNodes()), MaxRows)
	d.most("links", len(m.GetLinks()), MaxRows)
	d.most("paths", len(m.GetPaths()), MaxRows)
	rows := len(m.GetNodes()) + len(m.GetLinks()) + len(m.GetPaths())
	if header.Kind == cats.UpdateRefresh && rows > 0 {
		d.fail("header.kind", cats.ReasonMalformed, "REFRESH with %d rows, need none", rows)
	}
	if d.err != nil {
		return cats.NetworkUpdate{}, cats.Auth{}, d.err
	}
	u := cats.NetworkUpdate{UpdateHeader: header}
	u.Nodes = decodeRows(d, "nodes", m.GetNodes(), decodeNode, func(n cats.Node) string { return n.Name })
	u.Links = decodeRows(d, "links", m.GetLinks(), decodeLink, func(l cats.Link) [2]string { return [2]string{l.From, l.To} })
	u.Paths = decodeRows(d, "paths", m.GetPaths(), decodeNetworkPath, networkPathKey)
	if d.err != nil {
		return cats.NetworkUpdate{}, cats.Auth{}, d.err
	}
	return u, auth, nil
}

// decodeRows decodes a list whose rows have a key that stands once.
func decodeRows[M, R any, K comparable](d *decoder, field string, list []M, decode func(M) (R, error), key func(R) K) []R {
	seen := make(map[K]bool, len(list))
	rows := make([]R, 0, len(list))
	for i, m := range list {
		r, err := decode(m)
		d.nestAt(field, i, err)
		if d.err != nil {
			return nil
		}
		k := key(r)
		if seen[k] {
			d.fail(field, cats.ReasonDuplicate, "%v stands twice", k)
			return nil
		}
		seen[k] = true
		rows = append(rows, r)
	}
	return rows
}

func decodeNode(m *pb.Node) (cats.Node, error) {
	d := &decoder{}
	n := cats.Node{Name: d.name("name", m.GetName()), SID: d.optionalSID("sid", m.GetSid())}
	return n, d.err
}

func decodeLink(m *pb.Link) (cats.Link, error) {
	d := &decoder{}
	l := cats.Link{
		From:          d.name("from", m.GetFrom()),
		To:            d.name("to", m.GetTo()),
		DelayUS:       m.GetDelayUs(),
		JitterUS:      m.GetJitterUs(),
		LossPPM:       d.loss("loss_ppm", m.GetLossPpm()),
		BandwidthKbps: m.GetBandwidthKbps(),
		TEMetric:      m.GetTeMetric(),
		Age:           d.atMost("age_ms", uint64(m.GetAgeMs()), maxAge),
	}
	if l.From == l.To {
		d.fail("to", cats.ReasonMalformed, "%q is also where the link comes from", l.To)
	}
	return l, d.err
}

type networkPathID struct {
	headend, egress string
	color           uint32
}

func networkPathKey(p cats.NetworkPath) networkPathID {
	return networkPathID{p.Headend, p.Egress, p.Color}
}

func decodeNetworkPath(m *pb.NetworkPath) (cats.NetworkPath, error) {
	d := &decoder{}
	p := cats.NetworkPath{
		Headend:   d.name("headend", m.GetHeadend()),
		Egress:    d.name("egress", m.GetEgress()),
		Color:     m.GetColor(),
		Reachable: m.GetReachable(),
		Age:       d.atMost("age_ms", uint64(m.GetAgeMs()), maxAge),
	}
	var err error
	p.Metrics, err = DecodePathMetrics(m.GetMetrics())
	d.nest("metrics", err)
	return p, d.err
}
