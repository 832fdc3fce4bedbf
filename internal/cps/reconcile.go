package cps

import (
	"fmt"
	"maps"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/flow"
)

// heldHalf names one half of a binding.
type heldHalf struct {
	transaction cats.Transaction
	which       cats.Half
}

// settle compares what a forwarder holds of this shard with what this core knows, at the start of each of its sessions (CP
// sections 10 and 13.2). A binding that both forwarders have is ACTIVE, under this core's epoch, without touching the data
// plane. A half whose other half is known to be missing is taken out. A half whose other forwarder was not heard stays.
func (c *Core) settle(f *forwarder, bindings []cats.HeldBinding) {
	held := make(map[heldHalf]bool, len(bindings))
	for i := range bindings {
		h := &bindings[i]
		b := &h.Binding
		if b.Shard != c.config.Shard {
			continue // another core's
		}
		if b.Transaction.IsZero() || holder(b, h.Half) != f.name {
			c.audit(Audit{Event: "binding-ignored", Subject: f.name, Reason: cats.ReasonMalformed, Transaction: b.Transaction,
				Detail: fmt.Sprintf("its %s half is that of %q", h.Half, holder(b, h.Half))})
			continue
		}
		held[heldHalf{b.Transaction, h.Half}] = true
		c.settleHalf(f, h)
	}
	for _, r := range f.records() {
		for _, which := range bothHalves {
			if !held[heldHalf{r.transaction(), which}] {
				c.gone(f, r, which, cats.ReasonSuperseded)
			}
		}
	}
	c.failRevoked(maps.Keys(f.flows)) // bindings may be older than the catalogue
}

func (c *Core) settleHalf(f *forwarder, h *cats.HeldBinding) {
	t := h.Binding.Transaction
	r := c.flows[t]
	if r == nil {
		if reason, ended := c.closed.reason(t); ended {
			c.evict(h, reason)
			return
		}
		c.restore(f, h)
		return
	}
	switch {
	case r.underway() && r.at(f.name, h.Half, halfInstalling, halfInstalled) == nil:
		c.undo(f, r, h)
	case r.holder(h.Half) != f.name:
		c.order(f, t, h.Half, cats.ReasonSuperseded)
	default:
		c.heard(f, r, h)
	}
}

// evict takes out a half that outlived its flow. It is known again until its forwarder says that it is gone.
func (c *Core) evict(h *cats.HeldBinding, reason cats.Reason) {
	r := &record{binding: h.Binding, state: cats.Absent, reason: reason, began: h.Binding.Decided}
	*r.standing(h.Half) = halfInstalled
	c.keep(r)
	c.unwind(r)
}

// heard takes note that a forwarder has its half of a flow that is known.
func (c *Core) heard(f *forwarder, r *record, h *cats.HeldBinding) {
	if standing := r.at(f.name, h.Half, halfUnheard); standing != nil {
		*standing = halfInstalled
		if r.state == cats.Active {
			c.claim(r)
		}
	}
	switch r.state {
	case cats.Active:
		c.endIfDraining(r, h)
	case cats.Draining:
		c.drain(r)
		if r.deadline == cats.Never { // its time was over while nobody was there to be told
			c.unwind(r)
		}
	case cats.Failed, cats.ReconnectRequired, cats.Absent:
		// Its removal was given up with the last session.
		if standing := r.standing(h.Half); *standing == halfNone {
			*standing = halfInstalled
		}
		c.unwind(r)
	}
}

// endIfDraining ends an ACTIVE flow one half of which a forwarder has begun to drain: by order of an earlier owner of the
// shard, or alone while there was none. A half that drains never carries the flow for good again.
func (c *Core) endIfDraining(r *record, h *cats.HeldBinding) {
	if h.State == cats.Draining {
		c.end(r, h.Reason)
	}
}

// undo takes out a half that an earlier owner of the shard committed for a transaction that the ingress has asked for
// again. One that is not decided yet ends with it; the client's next packet begins a new one.
func (c *Core) undo(f *forwarder, r *record, h *cats.HeldBinding) {
	if r.state != cats.Pending {
		c.order(f, r.transaction(), h.Half, cats.ReasonSuperseded)
		return
	}
	r.binding = h.Binding
	c.relate(r, r.binding.Ingress)
	c.relate(r, r.binding.Egress)
	*r.standing(h.Half) = halfInstalled
	c.fail(r, flow.Rejected, refuse(cats.ReasonStaleState, "an earlier owner of the shard left the transaction half committed at %s", f.name))
}

// restore rebuilds a flow from the half that one of its forwarders holds.
func (c *Core) restore(f *forwarder, h *cats.HeldBinding) {
	b := &h.Binding
	r := &record{binding: *b, state: cats.Active, ingress: halfUnheard, egress: halfUnheard, began: b.Decided}
	r.binding.Epoch = c.config.Epoch
	r.request = cats.ServiceRequest{Transaction: b.Transaction, CSID: b.CSID, Key: b.Match, Ingress: b.Ingress}
	r.pathUp = [2]bool{true, true}
	*r.standing(h.Half) = halfInstalled
	c.keep(r)
	c.counters.Restored++
	if err := c.ledger.Debit(b.Transaction, r.instance(), max(1, b.Slots)); err != nil { // it was unknown, so it holds none
		c.audit(Audit{Event: "ledger-mistake", Subject: f.name, Transaction: b.Transaction, Detail: err.Error()})
	}
	c.claim(r)
	c.endIfDraining(r, h)
	for _, which := range bothHalves {
		// What this forwarder does not hold, settle finds at the end of its list.
		if other := c.forwarder(r.holder(which)); other != f && other.connected {
			c.gone(other, r, which, cats.ReasonSuperseded)
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
