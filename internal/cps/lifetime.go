package cps

import (
	"iter"
	"maps"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/flow"
)

// end begins the end of an ACTIVE flow: its slots are free at once, its packets still pass for a while (CP section 10).
func (c *Core) end(r *record, reason cats.Reason) {
	if !c.move(r, flow.Ended) {
		return
	}
	r.reason = reason
	c.ledger.Credit(r.transaction())
	c.counters.Ended[reason]++
	c.drain(r)
	c.until(r, c.now.Add(c.config.Timing.Draining))
}

func (c *Core) drain(r *record) {
	for _, which := range bothHalves {
		if *r.standing(which) != halfInstalled {
			continue
		}
		if q := c.queue(c.forwarder(r.holder(which))); q != nil {
			q.Drains = append(q.Drains, cats.Drain{
				Transaction: r.transaction(), Shard: c.config.Shard, Epoch: c.config.Epoch, Half: which, Reason: r.reason,
			})
		}
	}
}

// lose ends a flow one half of which is gone: the other half must go too, and nothing drains.
func (c *Core) lose(r *record, reason cats.Reason) {
	if !c.move(r, flow.Ended) {
		return
	}
	r.reason = reason
	c.ledger.Credit(r.transaction())
	c.counters.Ended[reason]++
	c.unwind(r)
}

// supersede makes way for a new flow of the same key: the old halves go at once.
func (c *Core) supersede(r *record) {
	if r.state == cats.Active {
		c.move(r, flow.Ended)
		c.counters.Ended[cats.ReasonSuperseded]++
	}
	if r.state == cats.Draining {
		c.move(r, flow.NewConnection)
	}
	r.reason = cats.ReasonSuperseded
	c.ledger.Credit(r.transaction())
	c.detach(r)
	c.unwind(r)
}

// failInstance takes the flows of a failed instance away from it (CP sections 10 and 11).
func (c *Core) failInstance(i catalogue.Instance) {
	if c.ledger.Debited(i) == 0 {
		return
	}
	for _, r := range sorted(c.flows) {
		if r.instance() == i {
			c.takeAway(r, cats.ReasonInstanceFailed, &refusal{reason: cats.ReasonNoCandidate, stage: "health", detail: "the selected instance failed"})
		}
	}
}

// failRevoked takes those of some flows away from their instance whose deployment the catalogue has REVOKED or no longer
// has, and those that were bound to another locator or egress attachment of it: their delivery rule is gone.
func (c *Core) failRevoked(flows iter.Seq[*record]) {
	var gone []*record
	for r := range flows {
		if r.binding.CSCIID != "" && !c.deployed(&r.binding) {
			gone = append(gone, r)
		}
	}
	slices.SortFunc(gone, compareRecords)
	for _, r := range gone {
		c.takeAway(r, cats.ReasonRevoked, &refusal{reason: cats.ReasonNoCandidate, stage: "deployment",
			detail: "the selected deployment was revoked or changed meanwhile"})
	}
}

// deployed tells whether the catalogue still has a binding's instance where the binding delivers to.
func (c *Core) deployed(b *cats.Binding) bool {
	d := c.catalogue.Deployment(catalogue.Instance{CSID: b.CSID, CSCIID: b.CSCIID})
	return d != nil && d.State != catalogue.Revoked && d.Locator == b.Locator &&
		slices.Contains(d.Egress, catalogue.EgressAttachment{Forwarder: b.Egress, SID: b.Attachment})
}

// takeAway ends a flow whose instance is no longer there for it. A TCP client has to connect again; the next packet of
// another flow is a new one. A commit under way fails for the reason in why.
func (c *Core) takeAway(r *record, reason cats.Reason, why *refusal) {
	switch {
	case r.state == cats.Active && r.binding.Match.Tuple.Protocol == cats.TCP:
		c.move(r, flow.ReconnectNeeded)
	case r.state == cats.Active:
		c.move(r, flow.InstanceFailed)
	case r.state == cats.BindingReady:
		c.fail(r, flow.CommitFailed, why)
		return
	default:
		return
	}
	r.reason = reason
	c.ledger.Credit(r.transaction())
	c.counters.Ended[reason]++
	c.detach(r)
	c.unwind(r)
}

// unwind takes the halves of an ended flow out: the ingress's, then the egress's, then the record (CP section 10). A
// flow that was superseded has no time for the order. A forwarder without a session tells what it holds when it comes
// back; an ingress may carry packets until then, so that the egress keeps its half as long.
func (c *Core) unwind(r *record) {
	inOrder := r.state != cats.Absent
	c.takeOut(r, cats.IngressHalf)
	if inOrder && r.ingress != halfNone {
		return
	}
	c.takeOut(r, cats.EgressHalf)
	if r.ingress != halfNone || r.egress != halfNone {
		return
	}
	if r.state != cats.Absent {
		c.move(r, flow.Cleaned)
	}
	c.forget(r)
}

func (c *Core) takeOut(r *record, which cats.Half) {
	standing := r.standing(which)
	if *standing == halfNone || *standing == halfRemoving {
		return
	}
	f := c.forwarder(r.holder(which))
	if !f.connected {
		*standing = halfNone
		if which == cats.IngressHalf && r.state != cats.Absent {
			*standing = halfUnheard
		}
		return
	}
	*standing = halfRemoving
	c.order(f, r.transaction(), which, r.reason)
	c.until(r, c.now.Add(c.config.Timing.Retry))
}

// removeAgain repeats the removals that were not answered.
func (c *Core) removeAgain(r *record) {
	for _, which := range bothHalves {
		if *r.standing(which) == halfRemoving {
			c.order(c.forwarder(r.holder(which)), r.transaction(), which, r.reason)
		}
	}
	c.until(r, c.now.Add(c.config.Timing.Retry))
}

// order queues a removal. An order of the same Step to install that half is taken back, since removals go first in a
// message.
func (c *Core) order(f *forwarder, t cats.Transaction, which cats.Half, reason cats.Reason) {
	q := c.queue(f)
	if q == nil {
		return
	}
	q.Installs = slices.DeleteFunc(q.Installs, func(i cats.Install) bool {
		return i.Half == which && i.Binding.Transaction == t
	})
	q.Removes = append(q.Removes, cats.Remove{
		Transaction: t, Shard: c.config.Shard, Epoch: c.config.Epoch, Half: which, Reason: reason,
	})
}

// sorted gives flows in the order of their transactions, so that a run can be repeated.
func sorted(flows map[cats.Transaction]*record) []*record {
	return slices.SortedFunc(maps.Values(flows), compareRecords)
}

func compareRecords(a, b *record) int {
	x, y := a.transaction(), b.transaction()
	return slices.Compare(x[:], y[:])
}
