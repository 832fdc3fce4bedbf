package cps

import (
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/flow"
)

// commitEgress orders the egress half in, first: a packet that the ingress lets go must find its delivery (CP section
// 8.4).
func (c *Core) commitEgress(r *record) {
	if other := c.byTuple[r.binding.Reverse.Service]; other != nil {
		c.fail(r, flow.CommitFailed, refuse(cats.ReasonCommitFailed, "%s: %s is that of transaction %s",
			cats.ReasonTupleInUse, r.binding.Reverse.Service, other.transaction()))
		return
	}
	c.byTuple[r.binding.Reverse.Service] = r
	r.egress = c.install(r, cats.EgressHalf, r.binding.Egress)
}

// commitIngress orders the ingress half in, once the egress has its own.
func (c *Core) commitIngress(r *record) {
	if !c.forwarder(r.binding.Ingress).connected {
		c.fail(r, flow.CommitFailed, refuse(cats.ReasonCommitFailed, "ingress %s has no session", r.binding.Ingress))
		return
	}
	r.ingress = c.install(r, cats.IngressHalf, r.binding.Ingress)
}

func (c *Core) install(r *record, which cats.Half, forwarder string) half {
	if q := c.queue(c.forwarder(forwarder)); q != nil {
		q.Installs = append(q.Installs, cats.Install{Half: which, Binding: r.binding})
	}
	c.until(r, min(c.now.Add(c.config.Timing.Commit), r.expires))
	return halfInstalling
}

// activate ends a transaction well: both halves are in force. Requests that joined it find the ingress bound.
func (c *Core) activate(r *record) {
	if !c.move(r, flow.Committed) {
		return
	}
	c.until(r, cats.Never)
	c.counters.Admitted++
	c.forwarder(r.binding.Egress).pausedUntil = 0
	c.refuseJoined(r, refuse(cats.ReasonStaleState, "the flow was bound by transaction %s", r.transaction()))
}

// fail ends a transaction without a binding: the slots are given back, the ingress is told, and what a forwarder may
// have of it is taken out (CP section 11).
func (c *Core) fail(r *record, event flow.Event, why *refusal) {
	if !c.move(r, event) {
		return
	}
	r.reason = why.reason
	c.ledger.Credit(r.transaction())
	c.detach(r)
	c.sendRefusal(c.forwarder(r.binding.Ingress), r.transaction(), &r.binding.Match, why)
	c.refuseJoined(r, why)
	c.unwind(r)
}

func (c *Core) refuseJoined(r *record, why *refusal) {
	f := c.forwarder(r.binding.Ingress)
	for _, t := range r.joined {
		c.sendRefusal(f, t, &r.binding.Match, why)
		c.closed.add(t, why.reason)
	}
	r.joined = nil
}

func (c *Core) sendRefusal(f *forwarder, t cats.Transaction, key *cats.FlowKey, why *refusal) {
	c.counters.Refused[why.reason]++
	c.out.Refused = append(c.out.Refused, RefusedFlow{
		Transaction: t, Ingress: f.name, Key: *key, Reason: why.reason, Stage: why.stage, Detail: why.detail,
	})
	if q := c.queue(f); q != nil {
		q.Refusals = append(q.Refusals, cats.Refuse{
			Transaction: t, Shard: c.config.Shard, Epoch: c.config.Epoch,
			Reason: why.reason, Stage: why.stage, Detail: why.detail,
		})
	}
}

// deadline is called when the deadline of a flow's present step has passed.
func (c *Core) deadline(r *record) {
	switch {
	case r.state == cats.Pending || r.state == cats.DestinationSelected || r.state == cats.BindingReady && c.now >= r.expires:
		c.fail(r, flow.Deadline, refuse(cats.ReasonTimeout, "the transaction's time is over in %s", r.state))
	case r.state == cats.BindingReady:
		c.commitTimedOut(r)
	case r.state == cats.Draining && r.ingress != halfRemoving && r.egress != halfRemoving:
		c.unwind(r)
	default:
		c.removeAgain(r)
	}
}

func (c *Core) commitTimedOut(r *record) {
	which := cats.IngressHalf
	if r.egress == halfInstalling {
		which = cats.EgressHalf
		c.pause(r.binding.Egress)
	}
	c.fail(r, flow.CommitFailed, refuse(cats.ReasonCommitFailed, "%s %s did not answer within %s", which, r.holder(which), c.config.Timing.Commit))
}

// pause keeps an egress whose commit failed out of selections for a while.
func (c *Core) pause(egress string) {
	c.forwarder(egress).pausedUntil = c.now.Add(c.config.Timing.EgressPause)
}
