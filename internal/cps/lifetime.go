package cps

import (
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
	for _, h := range [...]struct {
		which     cats.Half
		standing  half
		forwarder string
	}{{cats.IngressHalf, r.ingress, r.binding.Ingress}, {cats.EgressHalf, r.egress, r.binding.Egress}} {
		if h.standing != halfInstalled {
			continue
		}
		if q := c.queue(c.forwarder(h.forwarder)); q != nil {
			q.Drains = append(q.Drains, cats.Drain{
				Transaction: r.transaction(), Shard: c.config.Shard, Epoch: c.config.Epoch, Half: h.which, Reason: r.reason,
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

// failInstance takes the flows of a failed instance away from it (CP sections 10 and 11). A TCP client has to connect
// again; the next packet of another flow is a new one.
func (c *Core) failInstance(i catalogue.Instance, reason cats.Reason) {
	if c.ledger.Debited(i) == 0 {
		return
	}
	for _, r := range sorted(c.flows) {
		if r.instance() != i {
			continue
		}
		switch {
		case r.state == cats.Active && r.binding.Match.Tuple.Protocol == cats.TCP:
			c.move(r, flow.ReconnectNeeded)
		case r.state == cats.Active:
			c.move(r, flow.InstanceFailed)
		case r.state == cats.BindingReady:
			c.fail(r, flow.CommitFailed, &refusal{reason: cats.ReasonNoCandidate, stage: "health", detail: "the selected instance failed"})
			continue
		default:
			continue
		}
		r.reason = reason
		c.ledger.Credit(r.transaction())
		c.counters.Ended[reason]++
		c.detach(r)
		c.unwind(r)
	}
}

// failRevoked ends the flows of deployments that the catalogue has REVOKED or no longer has.
func (c *Core) failRevoked() {
	gone := make(map[catalogue.Instance]bool)
	for _, r := range c.flows {
		if r.binding.CSCIID == "" {
			continue
		}
		if d := c.catalogue.Deployment(r.instance()); d == nil || d.State == catalogue.Revoked {
			gone[r.instance()] = true
		}
	}
	for _, i := range slices.SortedFunc(maps.Keys(gone), catalogue.Instance.Compare) {
		c.failInstance(i, cats.ReasonRevoked)
	}
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
	standing, name := &r.ingress, r.binding.Ingress
	if which == cats.EgressHalf {
		standing, name = &r.egress, r.binding.Egress
	}
	if *standing == halfNone || *standing == halfRemoving {
		return
	}
	f := c.forwarder(name)
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
	if r.ingress == halfRemoving {
		c.order(c.forwarder(r.binding.Ingress), r.transaction(), cats.IngressHalf, r.reason)
	}
	if r.egress == halfRemoving {
		c.order(c.forwarder(r.binding.Egress), r.transaction(), cats.EgressHalf, r.reason)
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
