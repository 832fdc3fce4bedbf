package selection

import (
	"cmp"
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/zeebo/xxh3"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// order compares candidates that the policy finds equal: HEALTHY first, then the request's preferences, then the
// service's tie break.
type order struct {
	request    *Request
	candidates []Candidate
	decision   *Decision
	seed       uint64 // hash of the flow key
}

func newOrder(r *Request, candidates []Candidate, d *Decision) *order {
	o := &order{request: r, candidates: candidates, decision: d}
	if r.Service.TieBreak == catalogue.Spread {
		o.seed = hashKey(&r.Key)
	}
	return o
}

// compare is negative where candidate i goes before j.
func (o *order) compare(i, j int) int {
	a, b := &o.candidates[i], &o.candidates[j]
	if c := cmp.Or(first(a.Report.Health == cats.Healthy, b.Report.Health == cats.Healthy), o.comparePreferences(a, b)); c != 0 {
		return c
	}
	if o.request.Service.TieBreak == catalogue.Strict {
		return o.compareStrict(a, b)
	}
	return cmp.Or(
		cmp.Compare(o.spread(b), o.spread(a)),
		cmp.Compare(a.Deployment.CSCIID, b.Deployment.CSCIID),
		cmp.Compare(o.decision.Outcomes[i].Value, o.decision.Outcomes[j].Value),
		cmp.Compare(a.Egress.Forwarder, b.Egress.Forwarder),
		cmp.Compare(a.Color, b.Color),
	)
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (o *order) compareStrict(a, b *Candidate) int {
	x, y := &a.Report.Metrics, &b.Report.Metrics
	return cmp.Or(
		cmp.Compare(b.Effective, a.Effective),
		lower(x.Price, y.Price),
		higher(x.Reputation, y.Reputation),
		higher(x.SecurityLevel, y.SecurityLevel),
		cmp.Compare(a.Path.Metrics.TEMetric, b.Path.Metrics.TEMetric),
		cmp.Compare(a.Deployment.CSCIID, b.Deployment.CSCIID),
		cmp.Compare(a.Egress.Forwarder, b.Egress.Forwarder),
		cmp.Compare(a.Color, b.Color),
	)
}

// lower puts the lower value first, and an absent one last.
func lower[T cmp.Ordered](a, b cats.Optional[T]) int {
	if a.Present != b.Present {
		return first(a.Present, b.Present)
	}
	return cmp.Compare(a.Value, b.Value)
}

// higher puts the higher value first, and an absent one last.
func higher[T cmp.Ordered](a, b cats.Optional[T]) int {
	if a.Present != b.Present {
		return first(a.Present, b.Present)
	}
	return cmp.Compare(b.Value, a.Value)
}

// comparePreferences puts the candidate first that meets more of the request's preferences, and among those the one
// whose price is nearer to the wanted one.
func (o *order) comparePreferences(a, b *Candidate) int {
	p := &o.request.Constraints.Preferences
	if *p == (cats.Bounds{}) {
		return 0
	}
	if c := cmp.Compare(preferencesMet(p, b), preferencesMet(p, a)); c != 0 || !p.TargetPrice.Present {
		return c
	}
	return lower(priceDistance(p, a), priceDistance(p, b))
}

func priceDistance(p *cats.Bounds, c *Candidate) cats.Optional[int64] {
	price := c.Report.Metrics.Price
	if !price.Present {
		return cats.Optional[int64]{}
	}
	distance := int64(price.Value) - int64(p.TargetPrice.Value)
	return cats.Some(max(distance, -distance))
}

func preferencesMet(p *cats.Bounds, c *Candidate) int {
	m, n := &c.Report.Metrics, &c.Path.Metrics
	met := 0
	for _, ok := range [...]bool{
		p.MaxDelayUS.Present && n.DelayUS <= p.MaxDelayUS.Value,
		p.MaxJitterUS.Present && n.JitterUS <= p.MaxJitterUS.Value,
		p.MinBandwidthKbps.Present && n.BandwidthKbps >= p.MinBandwidthKbps.Value,
		p.MaxLossPPM.Present && n.LossPPM <= p.MaxLossPPM.Value,
		p.MaxRealDelayUS.Present && c.RealDelayUS() <= uint64(p.MaxRealDelayUS.Value),
		p.MinSlots.Present && c.Effective >= p.MinSlots.Value,
		p.MaxComputingTimeMS.Present && m.ComputingTimeMS <= p.MaxComputingTimeMS.Value,
		p.MaxPrice.Present && m.Price.Present && m.Price.Value <= p.MaxPrice.Value,
		p.MinSecurity.Present && m.SecurityLevel.Present && m.SecurityLevel.Value >= p.MinSecurity.Value,
		p.MinReputation.Present && m.Reputation.Present && m.Reputation.Value >= p.MinReputation.Value,
	} {
		if ok {
			met++
		}
	}
	return met
}

// spread is a weighted rendezvous score: over many flows each instance has the highest in proportion to its slots, and
// one flow always has the same.
func (o *order) spread(c *Candidate) float64 {
	h := xxh3.HashStringSeed(string(c.Deployment.CSCIID), o.seed)
	u := (float64(h>>11) + 0.5) / (1 << 53) // in (0, 1), never an end of it
	return -float64(c.Effective) / math.Log(u)
}

// hashKey hashes a flow key unambiguously: names are ended by an octet that they cannot hold.
func hashKey(k *cats.FlowKey) uint64 {
	b := make([]byte, 0, 176)
	b = append(append(b, k.Attachment...), 0)
	b = append(append(b, k.Tenant...), 0)
	b = append(b, byte(k.Tuple.Protocol))
	for _, end := range [...]netip.AddrPort{k.Tuple.Source, k.Tuple.Target} {
		address := end.Addr().As16()
		b = binary.BigEndian.AppendUint16(append(b, address[:]...), end.Port())
	}
	return xxh3.Hash(b)
}
