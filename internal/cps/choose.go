package cps

import (
	"fmt"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/nst"
	"github.com/margay-net/margay/internal/cps/selection"
)

// defaultColor is the path color of flows: the default topology (RFC 9256).
const defaultColor = 0

// selectDestination makes the joint selection for a flow, debits the chosen instance in the same step, and records the
// decision (CP section 8.2).
func (c *Core) selectDestination(r *record, service *catalogue.ServiceRecord) (*selection.Candidate, *refusal) {
	request := selection.Request{Service: service, Key: r.request.Key, Constraints: r.request.Constraints}
	candidates := c.candidates(&request, r.request.Ingress)
	decision := selection.Select(&request, candidates)
	c.counters.Selections++
	for i := range decision.Outcomes {
		c.counters.Stages[decision.Outcomes[i].Stage]++
	}
	if decision.Chosen < 0 {
		return nil, noCandidate(&request, len(candidates), decision.Emptied)
	}
	chosen := &candidates[decision.Chosen]
	instance := catalogue.Instance{CSID: service.CSID, CSCIID: chosen.Deployment.CSCIID}
	if err := c.ledger.Debit(r.transaction(), instance, request.Slots()); err != nil {
		return nil, refuseBy(err)
	}
	c.recordDecision(r, &request, chosen)
	return chosen, nil
}

// recordDecision writes down what was decided, on which state, when (CP section 8.2).
func (c *Core) recordDecision(r *record, q *selection.Request, chosen *selection.Candidate) {
	b := &r.binding
	b.CSID, b.ServiceNumber, b.CSCIID = q.Service.CSID, q.Service.Number, chosen.Deployment.CSCIID
	b.Locator, b.Attachment, b.Egress = chosen.Deployment.Locator, chosen.Egress.SID, chosen.Egress.Forwarder
	b.Slots, b.PolicyVersion, b.Decided = q.Slots(), c.policies[q.Service.CSID], c.now
	b.CSTGeneration, b.NSTGeneration = c.cst.Generation(), c.nst.Generation()
}

func noCandidate(r *selection.Request, candidates int, emptied selection.Stage) *refusal {
	detail := fmt.Sprintf("service %s has no deployment", r.Service.CSID)
	if candidates > 0 {
		detail = fmt.Sprintf("none of %d candidates of %s is left after stage %s", candidates, r.Service.CSID, emptied)
	}
	return &refusal{reason: cats.ReasonNoCandidate, stage: emptied.String(), detail: detail}
}

// candidates gathers the facts about every deployment of a service by every egress attachment and path.
func (c *Core) candidates(r *selection.Request, ingress string) []selection.Candidate {
	deployments := c.catalogue.Deployments(r.Service.CSID)
	all := make([]selection.Candidate, 0, len(deployments))
	for _, d := range deployments {
		about := c.instanceFacts(d)
		if len(d.Egress) == 0 {
			all = append(all, about)
		}
		for _, e := range d.Egress {
			by := about
			c.egressFacts(&by, e)
			by.Encapsulation = c.commonEncapsulation(ingress, e.Forwarder)
			c.pathFacts(&by, ingress)
			all = append(all, by)
		}
	}
	return all
}

func (c *Core) instanceFacts(d *catalogue.Deployment) selection.Candidate {
	instance := catalogue.Instance{CSID: d.CSID, CSCIID: d.CSCIID}
	about := selection.Candidate{Deployment: d, Color: defaultColor, Authorized: true}
	if row := c.cst.Row(instance); row != nil {
		about.Report, about.Validity = row, row.Validity(c.now)
		about.Effective = c.ledger.Effective(instance, row.Metrics.GAS)
		about.Authorized = c.mayReport(row.Source, d)
	}
	return about
}

func (c *Core) egressFacts(about *selection.Candidate, e catalogue.EgressAttachment) {
	about.Egress = e
	f := c.forwarders[e.Forwarder]
	if f == nil {
		return
	}
	d := about.Deployment
	_, about.Acknowledged = f.acknowledged[cats.Delivery{CSCIID: d.CSCIID, Locator: d.Locator, SID: e.SID}]
	about.Connected = f.connected
	about.CommitFailed = c.now < f.pausedUntil
}

func (c *Core) commonEncapsulation(ingress, egress string) bool {
	head, end := c.forwarders[ingress], c.forwarders[egress]
	return head != nil && end != nil &&
		head.hello.Capabilities.Encapsulations&end.hello.Capabilities.Encapsulations&cats.EncapSRv6 != 0
}

func (c *Core) pathFacts(about *selection.Candidate, ingress string) {
	paths := c.nst.Paths(ingress, about.Egress.Forwarder)
	for i := range paths {
		if paths[i].Color == defaultColor {
			about.Path, about.PathValidity = &paths[i], nst.Validity(&paths[i], c.now)
		}
	}
}
