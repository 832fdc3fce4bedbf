package forwarder

import (
	"encoding/binary"
	"time"

	"github.com/margay-net/margay/cats"
)

// pendingFlow is the bounded record of a flow that waits for a decision and its commit (CP section 8.1).
type pendingFlow struct {
	transaction cats.Transaction
	key         key
	flow        cats.FlowKey
	csid        cats.CSID
	announced   *announcement // nil: the flow came without metadata
	deadline    cats.Instant
	held        []heldPacket
	octets      int
	syn         bool // a SYN is among the held
	asked       bool // the request went out in this session
}

type heldPacket struct {
	handle uint64
	length int
}

// settled is the age from which on a binding cannot be younger than a packet that the data plane handed up before it was
// in force.
const settled = time.Second

// miss takes a packet that no binding covers: it is released, held, or dropped by a reason.
func (c *Core) miss(m *Miss) {
	if checkTuple(m.Tuple) != nil {
		c.drop(m.Handle, cats.ReasonBadPacket)
		return
	}
	attachment, ok := c.admits(m.Attachment, m.Tuple.Source.Addr())
	if !ok {
		c.drop(m.Handle, cats.ReasonUnauthorized)
		return
	}
	k := tupleKey(c.numberOf(m.Attachment), m.Tuple)
	if r := c.byClient[k]; r != nil && r.phase != installing {
		over := r.over() || m.Over && c.now.Sub(r.since) > settled
		if !over || !opens(m) {
			c.out.Releases = append(c.out.Releases, Release{m.Handle, r.id.transaction})
			return
		}
		c.supersede(r)
	}
	if p := c.pendingByKey[k]; p != nil {
		c.join(p, m)
		return
	}
	if h, ok := c.heldDown[k]; ok {
		c.drop(m.Handle, h.reason)
		return
	}
	if m.Tuple.Protocol == cats.TCP && !opens(m) {
		c.drop(m.Handle, cats.ReasonNoBinding)
		return
	}
	c.admit(k, attachment, m)
}

// opens tells whether a packet opens a TCP connection.
func opens(m *Miss) bool {
	return m.Tuple.Protocol == cats.TCP && m.Flags&(SYN|ACK|RST|FIN) == SYN
}

// admit opens a pending record for a new flow and asks the C-PS, within the limits per flow, client and tenant and in
// all.
func (c *Core) admit(k key, attachment *Attachment, m *Miss) {
	l := &c.cfg.Limits
	flow := cats.FlowKey{Attachment: attachment.Name, Tenant: attachment.Tenant, Tuple: m.Tuple}
	if int(m.Length) > l.OctetsPerFlow || len(c.pending) >= l.Pending ||
		c.perTenant.Of(attachment.Tenant) >= l.PendingPerTenant || c.perClient.Of(k.client()) >= l.PendingPerClient {
		c.drop(m.Handle, cats.ReasonOverload)
		c.holdDown(k, flow, cats.ReasonOverload) // or its next packet comes up again at once
		return
	}
	announced := c.announced.remove(k)
	var explicit Identity
	if announced != nil {
		explicit = announced.identity
	}
	csid, err := c.services.identify(m.Tuple, explicit)
	if err != nil {
		c.drop(m.Handle, cats.ReasonOf(err))
		c.giveBack(announced)
		c.holdDown(k, flow, cats.ReasonOf(err))
		return
	}
	p := &pendingFlow{transaction: c.newTransaction(), key: k, flow: flow, csid: csid, announced: announced,
		deadline: c.now.Add(l.PendingDeadline)}
	c.pending[p.transaction], c.pendingByKey[k] = p, p
	c.perTenant.Add(flow.Tenant)
	c.perClient.Add(k.client())
	c.pendingDue.add(p.deadline, p.transaction)
	c.hold(p, m)
	c.stats.Requests++
	c.ask(p)
}

// newTransaction names a transaction: the identity of this run, then a counter.
func (c *Core) newTransaction() (t cats.Transaction) {
	c.counter++
	copy(t[:8], c.cfg.Identity[:])
	binary.BigEndian.PutUint64(t[8:], c.counter)
	return t
}

// ask sends the request of p, or leaves it to the next session. A request that a broken session may have lost is sent
// again under its transaction, which the C-PS knows it by.
func (c *Core) ask(p *pendingFlow) {
	if !c.up || p.asked {
		return
	}
	p.asked = true
	r := cats.ServiceRequest{
		Transaction: p.transaction, CSID: p.csid, Key: p.flow, Ingress: c.cfg.Name, Disposition: cats.Held,
		Remaining: p.deadline.Sub(c.now),
	}
	if p.announced != nil {
		r.Constraints, r.RequestGeneration = p.announced.constraints, cats.Some(p.announced.generation)
	}
	c.out.Send.Requests = append(c.out.Send.Requests, r)
}

// join adds a further packet of a pending flow. It never asks again (CP section 8.1).
func (c *Core) join(p *pendingFlow, m *Miss) {
	switch {
	case p.syn && opens(m):
		c.stats.Retransmits++
		c.drop(m.Handle, cats.ReasonDuplicate)
	case len(p.held) >= c.cfg.Limits.PacketsPerFlow, p.octets+int(m.Length) > c.cfg.Limits.OctetsPerFlow:
		c.drop(m.Handle, cats.ReasonOverload)
	default:
		c.stats.Joined++
		c.hold(p, m)
	}
}

func (c *Core) hold(p *pendingFlow, m *Miss) {
	p.held = append(p.held, heldPacket{m.Handle, int(m.Length)})
	p.octets += int(m.Length)
	p.syn = p.syn || opens(m)
	c.stats.HeldPackets++
	c.stats.HeldOctets += int(m.Length)
}

// release lets the packets of p go, now that both directions are in force here, and ends its record (CP section 8.4).
func (c *Core) release(p *pendingFlow) {
	for _, h := range p.held {
		c.out.Releases = append(c.out.Releases, Release{h.handle, p.transaction})
	}
	if p.announced != nil {
		c.stats.AnnounceUsed++
	}
	c.lower(p.announced)
	c.forget(p)
}

// fail drops the packets of p, ends its record and keeps its key from asking again at once (CP section 11).
func (c *Core) fail(p *pendingFlow, packets, key cats.Reason) {
	for _, h := range p.held {
		c.drop(h.handle, packets)
	}
	c.giveBack(p.announced)
	c.forget(p)
	c.holdDown(p.key, p.flow, key)
}

func (c *Core) forget(p *pendingFlow) {
	c.stats.HeldPackets -= len(p.held)
	c.stats.HeldOctets -= p.octets
	delete(c.pending, p.transaction)
	delete(c.pendingByKey, p.key)
	c.perTenant.Remove(p.flow.Tenant)
	c.perClient.Remove(p.key.client())
}

// expirePending closes the transactions whose deadline has passed; nothing can revive them (CP section 10).
func (c *Core) expirePending() {
	for {
		due, ok := c.pendingDue.take(c.now)
		if !ok {
			return
		}
		if p := c.pending[due.what]; p != nil {
			c.stats.Timeouts++
			c.fail(p, cats.ReasonHeldExpired, cats.ReasonTimeout)
		}
	}
}

// refuse ends a pending flow that the C-PS has no binding for (CP section 11).
func (c *Core) refuse(r *cats.Refuse) {
	if !c.fence(r.Shard, r.Epoch) {
		c.staleOrder("refusal", r.Transaction, r.Shard, r.Epoch)
		return
	}
	p := c.pending[r.Transaction]
	if p == nil {
		return // its deadline was first
	}
	reason := r.Reason
	if reason == cats.ReasonNone {
		reason = cats.ReasonMalformed
	}
	c.stats.Refusals++
	c.fail(p, reason, reason)
}

// heldDownKey is a failed key that may not ask again yet.
type heldDownKey struct {
	until  cats.Instant
	reason cats.Reason
}

// holdDown has the data plane answer the packets of a failed key for a while. Where too many keys are held down already,
// that is counted, and the next packet of the key is judged anew.
func (c *Core) holdDown(k key, flow cats.FlowKey, reason cats.Reason) {
	if len(c.heldDown) >= c.cfg.Limits.Pending {
		c.stats.HoldDownsLost++
		return
	}
	until := c.now.Add(c.cfg.Limits.HoldDown)
	c.heldDown[k] = heldDownKey{until, reason}
	c.holdDownDue.add(until, k)
	c.out.HoldDowns = append(c.out.HoldDowns, HoldDown{Key: flow, For: c.cfg.Limits.HoldDown, Reason: reason})
}

func (c *Core) expireHoldDowns() {
	for {
		due, ok := c.holdDownDue.take(c.now)
		if !ok {
			return
		}
		if h, ok := c.heldDown[due.what]; ok && h.until <= c.now {
			delete(c.heldDown, due.what)
		}
	}
}

func (c *Core) drop(handle uint64, reason cats.Reason) {
	c.out.Drops = append(c.out.Drops, Drop{handle, reason})
}
