package cps

import (
	"fmt"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/flow"
)

// settle compares what a forwarder holds with what this core knows, at the start of each of its sessions (CP sections
// 10 and 13.2). A binding that both forwarders have is ACTIVE, under this core's epoch, without touching the data plane.
// A half whose other half is known to be missing is taken out. A half whose other forwarder was not heard stays.
func (c *Core) settle(f *forwarder, bindings []cats.Binding) {
	held := make(map[cats.Transaction]bool, len(bindings))
	for i := range bindings {
		b := &bindings[i]
		if b.Shard != c.config.Shard || b.Transaction.IsZero() || b.Ingress != f.name && b.Egress != f.name {
			c.audit(Audit{Event: "binding-ignored", Subject: f.name, Reason: cats.ReasonMalformed, Transaction: b.Transaction,
				Detail: fmt.Sprintf("shard %d, from %s to %s", b.Shard, b.Ingress, b.Egress)})
			continue
		}
		held[b.Transaction] = true
		if r := c.flows[b.Transaction]; r != nil {
			if r.underway() && r.at(f.name, halfInstalling, halfInstalled) == nil {
				c.undo(f, r, b)
				continue
			}
			c.heard(f, r)
			continue
		}
		if reason, ended := c.closed.reason(b.Transaction); ended {
			c.orderBoth(f, b, reason)
			continue
		}
		c.restore(f, b)
	}
	for _, r := range f.records() {
		if held[r.transaction()] {
			continue
		}
		if standing := r.at(f.name, halfInstalled, halfUnheard); standing != nil {
			*standing = halfNone
			c.halfGone(f, r, cats.ReasonSuperseded)
		}
	}
}

// heard takes note that a forwarder has its half of a flow that is known.
func (c *Core) heard(f *forwarder, r *record) {
	if standing := r.at(f.name, halfUnheard); standing != nil {
		*standing = halfInstalled
		if r.state == cats.Active {
			c.claim(r)
		}
	}
	switch r.state {
	case cats.Draining:
		c.drain(r)
		if r.deadline == cats.Never { // its time was over while nobody was there to be told
			c.unwind(r)
		}
	case cats.Failed, cats.ReconnectRequired, cats.Absent:
		// Its removal was given up with the last session.
		if r.binding.Ingress == f.name && r.ingress == halfNone {
			r.ingress = halfInstalled
		}
		if r.binding.Egress == f.name && r.egress == halfNone {
			r.egress = halfInstalled
		}
		c.unwind(r)
	}
}

// undo takes out a half that an earlier owner of the shard committed for a transaction that the ingress has asked for
// again. One that is not decided yet ends with it; the client's next packet begins a new one.
func (c *Core) undo(f *forwarder, r *record, b *cats.Binding) {
	if r.state != cats.Pending {
		c.orderBoth(f, b, cats.ReasonSuperseded)
		return
	}
	r.binding = *b
	c.relate(r, b.Ingress)
	c.relate(r, b.Egress)
	if b.Ingress == f.name {
		r.ingress = halfInstalled
	}
	if b.Egress == f.name {
		r.egress = halfInstalled
	}
	c.fail(r, flow.Rejected, refuse(cats.ReasonStaleState, "an earlier owner of the shard left the transaction half committed at %s", f.name))
}

func (c *Core) orderBoth(f *forwarder, b *cats.Binding, reason cats.Reason) {
	if b.Ingress == f.name {
		c.order(f, b.Transaction, cats.IngressHalf, reason)
	}
	if b.Egress == f.name {
		c.order(f, b.Transaction, cats.EgressHalf, reason)
	}
}

// restore rebuilds a flow from the record of one of its forwarders.
func (c *Core) restore(f *forwarder, b *cats.Binding) {
	r := &record{binding: *b, state: cats.Active, ingress: halfUnheard, egress: halfUnheard, began: b.Decided}
	r.binding.Epoch = c.config.Epoch
	r.request = cats.ServiceRequest{Transaction: b.Transaction, CSID: b.CSID, Key: b.Match, Ingress: b.Ingress}
	r.pathUp = [2]bool{true, true}
	if b.Ingress == f.name {
		r.ingress = halfInstalled
	}
	if b.Egress == f.name {
		r.egress = halfInstalled
	}
	c.keep(r)
	c.counters.Restored++
	if err := c.ledger.Debit(b.Transaction, r.instance(), max(1, b.Slots)); err != nil { // it was unknown, so it holds none
		c.audit(Audit{Event: "ledger-mistake", Subject: f.name, Transaction: b.Transaction, Detail: err.Error()})
	}
	c.claim(r)
	for _, other := range [...]struct {
		name     string
		standing *half
	}{{b.Ingress, &r.ingress}, {b.Egress, &r.egress}} {
		if *other.standing == halfUnheard && c.forwarder(other.name).connected {
			*other.standing = halfNone
			c.halfGone(f, r, cats.ReasonSuperseded)
			return
		}
	}
}

// claim files a restored flow under its key and tuple. Where two want the same, the one that both forwarders have wins:
// the other is what an earlier flow of the key left behind at one of them.
func (c *Core) claim(r *record) {
	whole := r.ingress == halfInstalled && r.egress == halfInstalled
	if c.byKey[r.binding.Match] == nil || whole {
		c.byKey[r.binding.Match] = r
	}
	if c.byTuple[r.binding.Reverse.Service] == nil || whole {
		c.byTuple[r.binding.Reverse.Service] = r
	}
}
