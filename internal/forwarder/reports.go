package forwarder

import (
	"bytes"
	"maps"
	"slices"

	"github.com/margay-net/margay/cats"
)

// session follows the session with the C-PS. A new one begins with everything that is in force here; what has ended
// and what waits for a decision follows (CP sections 10 and 13.2).
func (c *Core) session(s Session) {
	switch s {
	case SessionDown:
		if !c.up {
			return
		}
		c.up = false
		for _, p := range c.pending {
			p.asked = false
		}
		for _, r := range c.inOrder() {
			if r.ending != cats.ReasonNone || r.Draining || r.Half == cats.EgressHalf {
				c.lookAgain(r)
			}
		}
	case SessionUp:
		c.up = true
		c.hello()
		for _, p := range c.pendingInOrder() {
			p.asked = false
			c.ask(p)
		}
	}
}

func (c *Core) hello() {
	h := &cats.ForwarderHello{
		Name: c.cfg.Name, BootID: c.cfg.BootID, LayoutVersion: c.cfg.LayoutVersion,
		Capabilities: c.cfg.Capabilities, ReturnSID: c.cfg.ReturnSID,
	}
	h.Attachments = c.clientAttachments()
	for _, shard := range slices.Sorted(maps.Keys(c.epochs)) {
		h.Highest = append(h.Highest, cats.ShardEpoch{Shard: shard, Epoch: c.epochs[shard]})
	}
	c.out.Send.Hello = h
	c.out.Send.Statuses = append(c.out.Send.Statuses, c.unreported...)
	c.unreported = nil
	for _, r := range c.inOrder() {
		if r.phase == removing {
			continue
		}
		h.Bindings = append(h.Bindings, r.held())
		if r.phase == inForce && r.Half == cats.IngressHalf && r.over() {
			c.report(r, cats.BindingEnding, r.why(), "")
		}
	}
}

// clientAttachments gives the attachments as the C-PS is told of them; not nil.
func (c *Core) clientAttachments() []cats.ClientAttachment {
	all := make([]cats.ClientAttachment, 0, len(c.cfg.Attachments))
	for _, a := range c.cfg.Attachments {
		all = append(all, cats.ClientAttachment{Name: a.Name, Tenant: a.Tenant, Prefixes: slices.Clone(a.Prefixes)})
	}
	return all
}

// held gives a half as the C-PS is told of it.
func (r *record) held() cats.HeldBinding {
	h := cats.HeldBinding{Half: r.Half, State: cats.Active, Binding: r.Binding}
	if r.Draining {
		h.State, h.Reason = cats.Draining, r.Reason
	}
	return h
}

// why gives the reason that a flow which is over ended for.
func (r *record) why() cats.Reason {
	if r.Draining {
		return r.Reason
	}
	return r.ending
}

// inOrder gives the records by transaction and half, so that equal histories give equal effects.
func (c *Core) inOrder() []*record {
	all := make([]*record, 0, len(c.records))
	for _, r := range c.records {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *record) int {
		if d := bytes.Compare(a.id.transaction[:], b.id.transaction[:]); d != 0 {
			return d
		}
		return int(a.Half) - int(b.Half)
	})
	return all
}

func (c *Core) pendingInOrder() []*pendingFlow {
	all := make([]*pendingFlow, 0, len(c.pending))
	for _, p := range c.pending {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pendingFlow) int { return bytes.Compare(a.transaction[:], b.transaction[:]) })
	return all
}

// report tells the C-PS about a half that is here.
func (c *Core) report(r *record, result cats.BindingResult, reason cats.Reason, detail string) {
	r.reported, r.counted = c.now, false
	c.reportOf(r.Binding.Version, r, result, reason, detail)
}

func (c *Core) reportOf(version uint32, r *record, result cats.BindingResult, reason cats.Reason, detail string) {
	c.send(c.statusOf(version, r, result, reason, detail))
}

func (c *Core) statusOf(version uint32, r *record, result cats.BindingResult, reason cats.Reason, detail string) cats.BindingStatus {
	why, down := c.down[r.firstHop()]
	if down && detail == "" {
		detail = why
	}
	return cats.BindingStatus{
		Transaction: r.id.transaction, Forwarder: c.cfg.Name, Half: r.Half, Version: version, Result: result, Reason: reason,
		Detail: detail, Forward: r.forward, Reverse: r.reverse, PathUp: !down,
	}
}

// send hands a status to the session. Without one only a removal is worth keeping: the next Hello tells the rest.
func (c *Core) send(s cats.BindingStatus) {
	switch {
	case c.up:
		c.out.Send.Statuses = append(c.out.Send.Statuses, s)
	case s.Result == cats.BindingRemoved:
		if len(c.unreported) >= c.cfg.Limits.Unreported {
			c.unreported = c.unreported[1:]
			c.stats.RemovalsLost++
		}
		c.unreported = append(c.unreported, s)
	}
}

func (c *Core) refuseInstall(i *cats.Install, reason cats.Reason, detail string) {
	c.send(cats.BindingStatus{
		Transaction: i.Binding.Transaction, Forwarder: c.cfg.Name, Half: i.Half, Version: i.Binding.Version,
		Result: cats.BindingRefused, Reason: reason, Detail: detail,
	})
}

// refuseOrder answers a drain or removal of a stale owner.
func (c *Core) refuseOrder(id identity, detail string) {
	c.send(cats.BindingStatus{
		Transaction: id.transaction, Forwarder: c.cfg.Name, Half: id.half, Result: cats.BindingRefused, Reason: cats.ReasonStaleEpoch, Detail: detail,
	})
}

// reportGone answers an order about a half that is not here: it is idempotent.
func (c *Core) reportGone(id identity, reason cats.Reason) {
	c.send(cats.BindingStatus{Transaction: id.transaction, Forwarder: c.cfg.Name, Half: id.half, Result: cats.BindingRemoved, Reason: reason})
}
