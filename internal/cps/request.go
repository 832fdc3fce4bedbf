package cps

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/flow"
)

// serviceRequest takes a request of an ingress (CP section 8.2): it is authenticated and validated, and either joins
// the transaction that its key has, or becomes one that is decided now, or once the bindings are rebuilt.
func (c *Core) serviceRequest(f *forwarder, q *cats.ServiceRequest) {
	c.counters.Requests++
	if refused := c.authenticate(f, q); refused != nil {
		c.audit(Audit{Event: "request-refused", Subject: f.name, Reason: refused.reason, Transaction: q.Transaction, Detail: refused.detail})
		c.sendRefusal(f, q.Transaction, &q.Key, refused)
		return
	}
	if c.seenBefore(f, q) {
		return
	}
	if r := c.byKey[q.Key]; r != nil && !c.succeed(f, q, r) {
		return
	}
	if refused := c.enter(q); refused != nil {
		c.sendRefusal(f, q.Transaction, &q.Key, refused)
		return
	}
	r := &record{request: *q, began: c.now, counted: true, expires: c.now.Add(min(q.Remaining, c.config.Timing.Pending))}
	r.binding.Transaction, r.binding.Match, r.binding.Ingress = q.Transaction, q.Key, q.Ingress
	c.keep(r)
	c.byKey[q.Key] = r
	c.move(r, flow.NewPacket)
	c.until(r, r.expires)
	if !c.open {
		c.waiting = append(c.waiting, r)
		return
	}
	c.decide(r)
}

// authenticate checks that the request is the ingress's own, that its tuple can be served, and that its client may come
// in there: by its tenant and by its source address.
func (c *Core) authenticate(f *forwarder, q *cats.ServiceRequest) *refusal {
	switch {
	case q.Transaction.IsZero():
		return refuse(cats.ReasonMalformed, "the request has no transaction")
	case q.Ingress != f.name:
		return refuse(cats.ReasonUnauthorized, "the request names ingress %q, its session is that of %s", q.Ingress, f.name)
	}
	attachment := c.catalogue.Attachment(q.Ingress, q.Key.Attachment)
	if attachment == nil {
		return refuse(cats.ReasonUnauthorized, "no client attachment %q is provisioned at %s", q.Key.Attachment, q.Ingress)
	}
	if attachment.Tenant != q.Key.Tenant {
		return refuse(cats.ReasonUnauthorized, "attachment %s at %s belongs to tenant %s, not %q", attachment.Name, q.Ingress, attachment.Tenant, q.Key.Tenant)
	}
	at := f.attachment(attachment.Name)
	if at == nil {
		return refuse(cats.ReasonUnauthorized, "ingress %s is not configured with attachment %s: it drops what comes in there", f.name, attachment.Name)
	}
	if refused := checkTuple(&q.Key.Tuple); refused != nil {
		return refused
	}
	if source := q.Key.Tuple.Source.Addr(); !at.Admits(source) {
		return refuse(cats.ReasonUnauthorized, "source %s may not come in at attachment %s of %s, which drops it: need an address of %s",
			source, at.Name, f.name, some(at.Prefixes))
	}
	return nil
}

// checkTuple refuses what cannot be the tuple of a steered flow.
func checkTuple(t *cats.Tuple) *refusal {
	if t.Protocol != cats.TCP && t.Protocol != cats.UDP {
		return refuse(cats.ReasonMalformed, "protocol %d cannot be steered: need 6 (tcp) or 17 (udp)", uint8(t.Protocol))
	}
	for _, end := range []struct {
		name string
		at   netip.AddrPort
	}{{"source", t.Source}, {"target", t.Target}} {
		switch {
		case !end.at.Addr().IsValid():
			return refuse(cats.ReasonMalformed, "the flow has no %s address: need an IPv4 or IPv6 address", end.name)
		case end.at.Addr().Is4In6():
			return refuse(cats.ReasonMalformed, "%s %s is an IPv4-mapped IPv6 address: need it as IPv4, %s", end.name, end.at.Addr(), end.at.Addr().Unmap())
		case end.at.Port() == 0:
			return refuse(cats.ReasonMalformed, "%s %s has port 0: need 1 to 65535", end.name, end.at.Addr())
		}
	}
	if t.Source.Addr().Is4() != t.Target.Addr().Is4() {
		return refuse(cats.ReasonMalformed, "source %s is of %s and target %s of %s: a flow is of one family, need a source of %s",
			t.Source.Addr(), family(t.Source.Addr()), t.Target.Addr(), family(t.Target.Addr()), family(t.Target.Addr()))
	}
	return nil
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// seenBefore answers a transaction that is known: one under way or ACTIVE needs no answer, one that ended is refused
// again.
func (c *Core) seenBefore(f *forwarder, q *cats.ServiceRequest) bool {
	reason, known := c.closed.reason(q.Transaction)
	r := c.flows[q.Transaction]
	switch {
	case r != nil && (r.underway() || r.state == cats.Active):
		c.counters.Duplicates++
		return true
	case r != nil:
		reason, known = r.reason, true
	}
	if known {
		c.counters.Duplicates++
		c.sendRefusal(f, q.Transaction, &q.Key, refuse(reason, "transaction %s has ended", q.Transaction))
	}
	return known
}

// succeed settles a request whose key has a flow already; it tells whether the request may start a new one. A flow
// under way is joined: one key never has two selections. A flow that the ingress no longer has, since it asks anew, has
// ended.
func (c *Core) succeed(f *forwarder, q *cats.ServiceRequest, r *record) bool {
	switch {
	case r.binding.Ingress != f.name:
		c.sendRefusal(f, q.Transaction, &q.Key, refuse(cats.ReasonStaleState, "the flow belongs to ingress %s", r.binding.Ingress))
		return false
	case older(q.Transaction, r.transaction()):
		c.sendRefusal(f, q.Transaction, &q.Key, refuse(cats.ReasonStaleState, "the flow has the newer transaction %s", r.transaction()))
		return false
	case slices.Contains(r.joined, q.Transaction):
		c.counters.Duplicates++
		return false
	case r.underway() && len(r.joined) >= c.config.Limits.Joined:
		c.sendRefusal(f, q.Transaction, &q.Key, refuse(cats.ReasonOverload, "%d requests already wait for transaction %s", len(r.joined), r.transaction()))
		return false
	case r.underway():
		c.counters.Joined++
		r.joined = append(r.joined, q.Transaction)
		return false
	}
	c.supersede(r)
	return true
}

// older tells whether an ingress made transaction a before b; unknown, and so false, for two of different runs.
func older(a, b cats.Transaction) bool {
	return [8]byte(a[:8]) == [8]byte(b[:8]) && binary.BigEndian.Uint64(a[8:]) < binary.BigEndian.Uint64(b[8:])
}

// enter applies the limits.
func (c *Core) enter(q *cats.ServiceRequest) *refusal {
	if !c.fence.IsZero() {
		return refuse(cats.ReasonStaleState, "%s", c.whyFenced())
	}
	if q.Remaining <= 0 {
		return refuse(cats.ReasonTimeout, "no time is left")
	}
	if err := c.pending.Enter(&c.config.Limits.Pending, &q.Key); err != nil {
		return refuseBy(err)
	}
	return nil
}

// decide takes a pending flow to its binding: resolve, select, path, commit.
func (c *Core) decide(r *record) {
	service, _, refused := c.resolve(&r.request)
	if refused == nil {
		refused = c.checkGeneration(&r.request, service)
	}
	if refused != nil {
		c.fail(r, flow.Rejected, refused)
		return
	}
	chosen, refused := c.selectDestination(r, service)
	if refused != nil {
		c.fail(r, flow.Rejected, refused)
		return
	}
	c.move(r, flow.Selected)
	c.relate(r, r.binding.Egress)
	if refused := c.requestPaths(r, service, chosen); refused != nil {
		c.fail(r, flow.NoPath, refused)
		return
	}
	c.move(r, flow.PathJoined)
	c.commitEgress(r)
}

// resolve finds the service by the explicit CS-ID, else by the destination address, and tells which (CP sections 6 and
// 8.2). Both naming different services is a conflict: two services are never combined.
func (c *Core) resolve(q *cats.ServiceRequest) (*catalogue.ServiceRecord, string, *refusal) {
	byAddress := c.catalogue.Resolve(q.Key.Tuple.Protocol, q.Key.Tuple.Target)
	if q.CSID == "" {
		if byAddress == nil {
			return nil, "", refuse(cats.ReasonUnknownService, "no published service has %s %s", q.Key.Tuple.Protocol, q.Key.Tuple.Target)
		}
		return byAddress, "address", nil
	}
	service := c.catalogue.Service(q.CSID)
	switch {
	case service == nil || service.State != catalogue.Published && service.State != catalogue.Deprecated:
		return nil, "", refuse(cats.ReasonUnknownService, "no published service is called %q", q.CSID)
	case byAddress == nil:
		return service, "explicit", nil
	case byAddress != service:
		return nil, "", refuse(cats.ReasonIdentityConflict, "the request names %s, but %s belongs to %s", q.CSID, q.Key.Tuple.Target, byAddress.CSID)
	}
	return service, "both", nil
}

func (c *Core) checkGeneration(q *cats.ServiceRequest, s *catalogue.ServiceRecord) *refusal {
	if !q.RequestGeneration.Present {
		return nil
	}
	if err := c.generations.Check(c.now, q.Ingress, q.Key.Tuple.Source.Addr(), s.CSID, q.RequestGeneration.Value); err != nil {
		return refuseBy(err)
	}
	return nil
}
