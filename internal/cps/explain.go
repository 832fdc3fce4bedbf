package cps

import (
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/nst"
	"github.com/margay-net/margay/internal/cps/selection"
)

// explain works out what would be decided for a flow now, by the same functions, and keeps, counts and debits nothing.
func (c *Core) explain(e *ExplainRequest) Explanation {
	counters := c.counters
	defer func() { c.counters = counters }()
	x := Explanation{ID: e.ID, Request: e.Request, CSTGeneration: c.cst.Generation(), NSTGeneration: c.nst.Generation()}
	if refused := c.explainDecision(e, &x); refused != nil {
		x.Refusal, x.Stage, x.Detail = refused.reason, refused.stage, refused.detail
	}
	return x
}

func (c *Core) explainDecision(e *ExplainRequest, x *Explanation) *refusal {
	r := &record{request: e.Request, expires: cats.Never}
	r.binding.Transaction, r.binding.Match, r.binding.Ingress = e.Request.Transaction, e.Request.Key, e.Request.Ingress
	f := c.forwarders[e.Request.Ingress]
	if f == nil || !f.connected {
		return refuse(cats.ReasonUnauthorized, "ingress %s has no session", e.Request.Ingress)
	}
	if refused := c.authenticate(f, &e.Request); refused != nil {
		return refused
	}
	service, how, refused := c.resolve(&e.Request)
	if refused != nil {
		return refused
	}
	request := selection.Request{Service: service, Key: e.Request.Key, Constraints: e.Request.Constraints}
	x.CSID, x.Resolved, x.Policy, x.Version, x.Slots = service.CSID, how, service.Policy, c.policies[service.CSID], request.Slots()
	candidates := c.candidates(&request, e.Request.Ingress)
	decision := selection.Select(&request, candidates)
	x.Candidates, x.Band = c.explainCandidates(&request, candidates, &decision), decision.Limit-decision.Best
	if decision.Chosen < 0 {
		return noCandidate(&request, len(candidates), decision.Emptied)
	}
	chosen := &candidates[decision.Chosen]
	x.Chosen = &x.Candidates[0]
	c.recordDecision(r, &request, chosen)
	routes, refused := c.paths(c.pathRequest(r, chosen), service)
	x.PathRequest, x.Path, x.ReturnPath, x.ReturnTo = routes.request, routes.forward, routes.reverse, routes.returnTo
	back := reverse(e.Request.Key.Tuple, r.binding.Locator)
	x.Before, x.After, x.Answer, x.Delivered = e.Request.Key.Tuple, back.Service.Reverse(), back.Service, back.Client
	return refused
}

// explainCandidates gives the ranked candidates, best first, then the removed ones in the order of the stages.
func (c *Core) explainCandidates(q *selection.Request, candidates []selection.Candidate, d *selection.Decision) []ExplainedCandidate {
	all := make([]ExplainedCandidate, 0, len(candidates))
	for _, rank := range selection.Ranking(q, candidates, d) {
		x := c.explainCandidate(&candidates[rank.Index])
		x.Rank, x.Equal, x.Value = rank.Place, rank.Equal, d.Outcomes[rank.Index].Value
		all = append(all, x)
	}
	for stage := selection.StageNone + 1; int(stage) < selection.Stages; stage++ {
		for i := range candidates {
			if d.Outcomes[i].Stage == stage {
				x := c.explainCandidate(&candidates[i])
				x.Stage, x.Why = stage, selection.Why(q, &candidates[i], stage)
				all = append(all, x)
			}
		}
	}
	return all
}

func (c *Core) explainCandidate(candidate *selection.Candidate) ExplainedCandidate {
	d := candidate.Deployment
	x := ExplainedCandidate{
		CSCIID: d.CSCIID, Site: d.Site, Locator: d.Locator, Egress: candidate.Egress.Forwarder,
		Attachment: candidate.Egress.SID, Color: candidate.Color, State: d.State, RealDelayUS: candidate.RealDelayUS(),
		EffectiveSlots: candidate.Effective,
		DebitedSlots:   c.ledger.Debited(catalogue.Instance{CSID: d.CSID, CSCIID: d.CSCIID}),
	}
	if candidate.Report != nil {
		x.Report = c.reportView(candidate.Report)
	}
	if candidate.Path != nil {
		x.Path = c.pathView(candidate.Path)
	}
	return x
}

func (c *Core) pathView(row *cats.NSTRow) *PathRowView {
	return &PathRowView{NSTRow: *row, TableGeneration: c.nst.Generation(), Validity: nst.Validity(row, c.now), Age: nst.Age(row, c.now)}
}
