package selection

import (
	"cmp"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/cst"
)

// Request is the flow that wants a destination.
type Request struct {
	Service     *catalogue.ServiceRecord
	Key         cats.FlowKey
	Constraints cats.Constraints
}

// Slots gives what the flow is debited: at least 1.
func (r *Request) Slots() uint32 { return max(1, r.Constraints.Hard.MinSlots.Value) }

// Candidate is one deployment by one egress attachment and one path color, with the facts that the filters judge.
type Candidate struct {
	Deployment *catalogue.Deployment
	Egress     catalogue.EgressAttachment
	Color      uint32

	Authorized    bool          // the source of Report may report on this instance; true without a report
	Acknowledged  bool          // the egress has acknowledged the delivery rule
	Encapsulation bool          // ingress and egress have one in common
	Connected     bool          // the egress has a live session
	CommitFailed  bool          // the egress's last commit failed a moment ago
	Report        *cst.Row      // nil: none
	Validity      cats.Validity // of Report
	Effective     uint32        // slots reported less slots debited
	Path          *cats.NSTRow  // nil: none
	PathValidity  cats.Validity // of Path
}

// computingUS is the computing time in µs; only of a candidate with a report.
func (c *Candidate) computingUS() uint64 { return uint64(c.Report.Metrics.ComputingTimeMS) * 1000 }

// networkUS is the one-way network delay in µs; only of a candidate with a path.
func (c *Candidate) networkUS() uint64 { return uint64(c.Path.Metrics.DelayUS) }

// RealDelayUS is computing time plus one-way network delay, µs; 0 where one of them is unknown.
func (c *Candidate) RealDelayUS() uint64 {
	if c.Report == nil || c.Path == nil {
		return 0
	}
	return c.computingUS() + c.networkUS()
}

// Outcome is what became of one candidate.
type Outcome struct {
	Stage Stage  // that removed it; StageNone: it was ranked
	Value uint64 // of the policy's first key, µs; only where it was ranked
}

// Decision is the outcome of one selection. Ranks are not in it: Ranking works them out when a person asks.
type Decision struct {
	Outcomes []Outcome // one for each candidate, in their order
	Chosen   int       // index of the chosen candidate; -1: none
	Emptied  Stage     // without a choice: the first stage that left nothing
	Best     uint64    // least value of the policy's first key, µs
	Limit    uint64    // candidates whose value is below it, or equal to Best, are equal
}

// equal tells whether a ranked candidate is in the band of the best.
func (d *Decision) equal(i int) bool {
	o := &d.Outcomes[i]
	return o.Stage == StageNone && (o.Value == d.Best || o.Value < d.Limit)
}

// Select decides. The candidates are filtered stage by stage, ranked by the service's policy, and among those that the
// policy finds equal the tie is broken.
func Select(r *Request, candidates []Candidate) Decision {
	d := Decision{Outcomes: make([]Outcome, len(candidates)), Chosen: -1}
	ranked := false
	for i := range candidates {
		o := &d.Outcomes[i]
		if o.Stage = filter(r, &candidates[i]); o.Stage != StageNone {
			d.Emptied = max(d.Emptied, o.Stage)
			continue
		}
		o.Value = value(r.Service.Policy, &candidates[i])
		if !ranked || o.Value < d.Best {
			ranked, d.Best = true, o.Value
		}
	}
	if !ranked {
		if len(candidates) == 0 {
			d.Emptied = StageDeployment
		}
		return d
	}
	d.Emptied = StageNone
	d.Limit = d.Best + band(r.Service.BandPercent, d.Best)
	order := newOrder(r, candidates, &d)
	for i := range candidates {
		if d.equal(i) && (d.Chosen < 0 || order.compare(i, d.Chosen) < 0) {
			d.Chosen = i
		}
	}
	return d
}

// leastBandUS keeps delays that differ by less than measurements do equal.
const leastBandUS = 1000

// band is the width of equality at a best value: a share of it, at least 1 ms; none where the share is 0.
func band(percent uint8, best uint64) uint64 {
	if percent == 0 {
		return 0
	}
	return max(best*uint64(percent)/100, leastBandUS)
}

// value is the policy's first key, µs; the least is the best.
func value(p catalogue.Policy, c *Candidate) uint64 {
	switch p {
	case catalogue.Service:
		return c.computingUS()
	case catalogue.Network:
		return c.networkUS()
	}
	return c.RealDelayUS()
}

// Rank is the place of one candidate.
type Rank struct {
	Index int  // into the candidates
	Place int  // 1 is the chosen one
	Equal bool // within the band of the best
}

// Ranking gives the ranked candidates of a decision, best first: the equal ones as the tie is broken, then the others by
// value. It needs the request and candidates that the decision was made from.
func Ranking(r *Request, candidates []Candidate, d *Decision) []Rank {
	var ranks []Rank
	for i := range candidates {
		if d.Outcomes[i].Stage == StageNone {
			ranks = append(ranks, Rank{Index: i, Equal: d.equal(i)})
		}
	}
	order := newOrder(r, candidates, d)
	slices.SortStableFunc(ranks, func(a, b Rank) int {
		if a.Equal != b.Equal {
			return first(a.Equal, b.Equal)
		}
		if a.Equal {
			return order.compare(a.Index, b.Index)
		}
		return cmp.Or(
			cmp.Compare(d.Outcomes[a.Index].Value, d.Outcomes[b.Index].Value),
			secondKey(r.Service.Policy, &candidates[a.Index], &candidates[b.Index]),
			order.compare(a.Index, b.Index),
		)
	})
	for i := range ranks {
		ranks[i].Place = i + 1
	}
	return ranks
}

// secondKey orders candidates of one value outside the band: the service policy looks at slots next.
func secondKey(p catalogue.Policy, a, b *Candidate) int {
	if p == catalogue.Service {
		return cmp.Compare(b.Effective, a.Effective)
	}
	return 0
}
