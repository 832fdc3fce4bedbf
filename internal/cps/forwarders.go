package cps

import (
	"fmt"
	"maps"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/flow"
)

// forwarder is what the core knows of one forwarder.
type forwarder struct {
	name         string
	session      uint64
	connected    bool // its session is live and its Hello was accepted
	met          bool // has had a session with this core
	since        cats.Instant
	hello        cats.ForwarderHello // without bindings
	sent         *cats.Provision
	answered     bool // sent, in this session
	refused      cats.Reason
	acknowledged map[cats.Delivery]struct{} // rules that are in place
	pausedUntil  cats.Instant               // its last commit failed
	flows        map[*record]struct{}       // that have, had or will have a half here
	deadline     cats.Instant               // of the answer to sent
	disagreement string                     // of its attachments and the catalogue's, as last audited; empty: none

	queued  cats.SteeringBatch
	touched bool
}

// forwarder gives what is known of a forwarder; nothing yet, if it is new.
func (c *Core) forwarder(name string) *forwarder {
	f := c.forwarders[name]
	if f == nil {
		f = &forwarder{name: name, flows: make(map[*record]struct{}), deadline: cats.Never}
		c.forwarders[name] = f
	}
	return f
}

// records gives the flows of a forwarder in the order of their transactions.
func (f *forwarder) records() []*record {
	return slices.SortedFunc(maps.Keys(f.flows), compareRecords)
}

// queue gives the message that goes to a forwarder after this Step; nil: it has no session.
func (c *Core) queue(f *forwarder) *cats.SteeringBatch {
	if !f.connected {
		return nil
	}
	if !f.touched {
		f.touched = true
		c.touched = append(c.touched, f)
	}
	return &f.queued
}

// flush turns what was queued into effects.
func (c *Core) flush() {
	for _, f := range c.touched {
		if f.connected && !f.queued.IsEmpty() {
			c.out.Steering = append(c.out.Steering, Steering{Forwarder: f.name, Session: f.session, Batch: f.queued})
		}
		f.queued, f.touched = cats.SteeringBatch{}, false
	}
	c.touched = c.touched[:0]
}

// forwarderEvent takes what happened on the session of a forwarder. What comes from a session that was replaced or
// refused changes nothing.
func (c *Core) forwarderEvent(e *ForwarderEvent) {
	f := c.forwarder(e.Name)
	switch {
	case e.Session < f.session:
		return
	case e.Closed:
		if e.Session == f.session {
			c.disconnect(f)
		}
		return
	case e.Batch.Hello != nil:
		if e.Session == f.session {
			return
		}
		c.disconnect(f)
		f.session = e.Session
		c.hello(f, e.Batch.Hello)
	}
	if e.Session != f.session || !f.connected {
		return
	}
	if e.Batch.Attachments != nil {
		f.hello.Attachments = e.Batch.Attachments
		c.compareAttachments(f)
	}
	for i := range e.Batch.Provisioned {
		c.provisioned(f, &e.Batch.Provisioned[i])
	}
	for i := range e.Batch.Statuses {
		c.status(f, &e.Batch.Statuses[i])
	}
	for i := range e.Batch.Requests {
		c.serviceRequest(f, &e.Batch.Requests[i])
	}
}

// hello opens a session: the forwarder is authorized, understood and not ahead of this core; it gets its rules, and its
// bindings are settled with the core's.
func (c *Core) hello(f *forwarder, h *cats.ForwarderHello) {
	switch {
	case h.Name != f.name:
		c.refuseSession(f, cats.ReasonUnauthorized, "the hello names %q, the certificate %s", h.Name, f.name)
		return
	case !slices.Contains(c.expected, f.name):
		c.refuseSession(f, cats.ReasonUnauthorized, "the domain has no forwarder %s; add it to the C-PS's configuration", f.name)
		return
	case h.LayoutVersion != cats.LayoutVersion:
		c.refuseSession(f, cats.ReasonVersion, "its maps have layout %d, this C-PS needs %d; run the same release on both", h.LayoutVersion, cats.LayoutVersion)
		return
	}
	if highest := h.Obeyed(c.config.Shard); highest.Compare(c.config.Epoch) > 0 || highest == c.config.Epoch && !f.met {
		c.meetFence(f, highest)
		return
	}
	if !c.fence.IsZero() {
		c.refuseSession(f, cats.ReasonStaleEpoch, "%s", c.whyFenced())
		return
	}
	f.connected, f.met, f.since, f.answered = true, true, c.now, false
	f.hello = *h
	f.hello.Bindings = nil
	f.acknowledged = nil
	c.compareAttachments(f)
	c.provision(f)
	c.settle(f, h.Bindings)
}

func (c *Core) refuseSession(f *forwarder, reason cats.Reason, format string, arguments ...any) {
	detail := fmt.Sprintf(format, arguments...)
	c.audit(Audit{Event: "forwarder-refused", Subject: f.name, Reason: reason, Detail: detail})
	c.out.Closes = append(c.out.Closes, SessionClose{Forwarder: f.name, Session: f.session, Reason: reason, Detail: detail})
}

// meetFence stops all decisions: a forwarder has obeyed an owner of the shard that this core does not come after, so the
// store of this C-PS was lost, or it has been replaced (CP section 13.2). Only a person ends that; the highest epoch that
// was heard of is what the next owner has to exceed.
func (c *Core) meetFence(f *forwarder, highest cats.Epoch) {
	if highest.Compare(c.fence.Highest) > 0 {
		c.fence = cats.Fence{Highest: highest, Forwarder: f.name}
		c.out.Fence = c.fence
		c.audit(Audit{Event: "shard-fenced", Subject: f.name, Reason: cats.ReasonStaleEpoch, Detail: c.whyFenced()})
	}
	c.refuseSession(f, cats.ReasonStaleEpoch, "%s", c.whyFenced())
	c.open = false
	waiting := c.waiting
	c.waiting = nil
	for _, r := range waiting {
		if r.state == cats.Pending {
			c.fail(r, flow.Rejected, refuse(cats.ReasonStaleState, "%s", c.whyFenced()))
		}
	}
}

// whyFenced says what the fence means and what to do about it; empty: there is none.
func (c *Core) whyFenced() string {
	if c.fence.IsZero() {
		return ""
	}
	return fmt.Sprintf("forwarder %s has obeyed epoch %s of shard %d, this C-PS has %s: its store is not the one that last owned the shard; "+
		"stop it and every other C-PS of the domain, run margay-cps --recover here, and start it again",
		c.fence.Forwarder, c.fence.Highest, c.config.Shard, c.config.Epoch)
}

// dismiss ends a live session.
func (c *Core) dismiss(f *forwarder, reason cats.Reason, detail string) {
	if !f.connected {
		return
	}
	c.refuseSession(f, reason, "%s", detail)
	c.disconnect(f)
}

// abandon gives up the halves of a forwarder that has left the domain: its flows end at the others.
func (c *Core) abandon(f *forwarder) {
	if f.connected || !f.met {
		return // not yet refused, or only known from the records of others
	}
	for _, r := range f.records() {
		for _, which := range bothHalves {
			c.gone(f, r, which, cats.ReasonOperator)
		}
	}
}

// disconnect takes note that a session is over: commits that wait for the forwarder fail, removals go on without it. Its
// bindings live on in its data plane.
func (c *Core) disconnect(f *forwarder) {
	if !f.connected {
		return
	}
	f.connected, f.since, f.deadline = false, c.now, cats.Never
	f.queued = cats.SteeringBatch{}
	for _, r := range f.records() {
		removing := false
		for _, which := range bothHalves {
			if r.at(f.name, which, halfInstalling) != nil {
				c.fail(r, flow.CommitFailed, refuse(cats.ReasonCommitFailed, "%s lost its session", f.name))
			} else if standing := r.at(f.name, which, halfRemoving); standing != nil {
				*standing, removing = halfInstalled, true // as far as is known
			}
		}
		if removing {
			c.unwind(r)
		}
	}
}

// provision sends a forwarder all its rules (CP section 9).
func (c *Core) provision(f *forwarder) {
	q := c.queue(f)
	if q == nil {
		return
	}
	generation := uint64(1)
	if f.sent != nil {
		generation = f.sent.Generation + 1
	}
	f.sent = &cats.Provision{
		Generation: generation, Shard: c.config.Shard, Epoch: c.config.Epoch,
		Deliveries: c.catalogue.Deliveries(f.name),
	}
	if c.catalogue.IsIngress(f.name) {
		f.sent.Services = c.catalogue.Rules()
	}
	q.Provision = f.sent
	c.awaitProvisioned(f)
}

func (c *Core) awaitProvisioned(f *forwarder) {
	f.deadline = c.now.Add(c.config.Timing.Retry)
	c.agenda.add(item{at: f.deadline, forwarder: f})
}

func (c *Core) retryProvision(f *forwarder) {
	if q := c.queue(f); q != nil {
		q.Provision = f.sent
		c.awaitProvisioned(f)
	}
}

// provisioned takes the acknowledgement of the last provision: only the delivery rules that it names admit traffic.
func (c *Core) provisioned(f *forwarder, p *cats.Provisioned) {
	if p.Shard != c.config.Shard || p.Generation != f.sent.Generation {
		return
	}
	f.answered, f.refused, f.deadline = true, p.Reason, cats.Never
	if p.Reason != cats.ReasonNone { // as a whole, so what was in place still is
		c.audit(Audit{Event: "provision-refused", Subject: f.name, Reason: p.Reason, Detail: p.Detail})
		return
	}
	f.acknowledged = make(map[cats.Delivery]struct{})
	for _, d := range f.sent.Deliveries {
		if slices.Contains(p.Deliveries, d.CSCIID) {
			f.acknowledged[d] = struct{}{}
		}
	}
}

// status takes a forwarder's report on one half of a binding. One that fits nothing that is expected changes nothing,
// except that a half which nobody wants there is taken out.
func (c *Core) status(f *forwarder, s *cats.BindingStatus) {
	if s.Forwarder != f.name {
		c.audit(Audit{Event: "status-refused", Subject: f.name, Reason: cats.ReasonUnauthorized, Transaction: s.Transaction,
			Detail: fmt.Sprintf("it speaks for forwarder %q", s.Forwarder)})
		return
	}
	r := c.flows[s.Transaction]
	if r == nil || r.holder(s.Half) != f.name {
		c.stray(f, s)
		return
	}
	c.note(r, s)
	switch s.Result {
	case cats.BindingInstalled:
		c.installed(f, r, s)
	case cats.BindingRefused:
		c.refusedBy(f, r, s)
	case cats.BindingEnding:
		c.ending(r, s)
	case cats.BindingRemoved:
		c.removed(f, r, s)
	}
}

// stray answers a report on a half that this core does not want there, such as a commit that came after its deadline.
func (c *Core) stray(f *forwarder, s *cats.BindingStatus) {
	if s.Result == cats.BindingRemoved || s.Result == cats.BindingRefused {
		return
	}
	c.counters.Strays++
	c.order(f, s.Transaction, s.Half, cats.ReasonSuperseded)
}

// note keeps the owner's counters, and whether each head can use its path.
func (c *Core) note(r *record, s *cats.BindingStatus) {
	r.pathUp[s.Half] = s.PathUp
	if s.Half == cats.IngressHalf {
		r.forward = cats.Usage{Packets: max(r.forward.Packets, s.Forward.Packets), Octets: max(r.forward.Octets, s.Forward.Octets)}
		r.reverse = cats.Usage{Packets: max(r.reverse.Packets, s.Reverse.Packets), Octets: max(r.reverse.Octets, s.Reverse.Octets)}
	}
}

func (c *Core) installed(f *forwarder, r *record, s *cats.BindingStatus) {
	standing := r.at(f.name, s.Half, halfInstalling)
	if standing == nil || s.Version != r.binding.Version {
		return
	}
	*standing = halfInstalled
	if s.Half == cats.IngressHalf {
		c.activate(r)
		return
	}
	c.commitIngress(r)
}

func (c *Core) refusedBy(f *forwarder, r *record, s *cats.BindingStatus) {
	standing := r.at(f.name, s.Half, halfInstalling)
	if standing == nil || s.Version != r.binding.Version {
		return
	}
	if s.Half == cats.EgressHalf && s.Reason != cats.ReasonTupleInUse {
		c.pause(f.name)
	}
	*standing = halfNone
	c.fail(r, flow.CommitFailed, refuse(cats.ReasonCommitFailed, "%s refused it: %s: %s", f.name, s.Reason, s.Detail))
}

// ending begins the end of a flow that its owner saw to be over; only the owner sees both directions of all of it.
func (c *Core) ending(r *record, s *cats.BindingStatus) {
	if s.Half != cats.IngressHalf {
		return
	}
	if r.state == cats.BindingReady && r.ingress == halfInstalling { // its install was answered, but not heard
		r.ingress = halfInstalled
		c.activate(r)
	}
	switch r.state {
	case cats.Active:
		c.end(r, s.Reason)
	case cats.Draining:
		c.drain(r)
	}
}

// removed takes note that a half is out. Where nobody ordered that, the other half goes too.
func (c *Core) removed(f *forwarder, r *record, s *cats.BindingStatus) {
	if standing := r.at(f.name, s.Half, halfRemoving); standing != nil {
		*standing = halfNone
		c.unwind(r)
		return
	}
	if r.at(f.name, s.Half, halfInstalled) != nil {
		c.gone(f, r, s.Half, s.Reason)
	}
}

// gone settles a flow whose half at a forwarder was there, as far as was known, and is gone without an order.
func (c *Core) gone(f *forwarder, r *record, which cats.Half, reason cats.Reason) {
	standing := r.at(f.name, which, halfInstalled, halfUnheard)
	if standing == nil {
		return
	}
	*standing = halfNone
	c.audit(Audit{Event: "half-lost", Subject: f.name, Reason: reason, Transaction: r.transaction(),
		Detail: fmt.Sprintf("the %s half of a flow that is %s", which, r.state)})
	switch r.state {
	case cats.Active:
		c.lose(r, reason)
	case cats.BindingReady:
		c.fail(r, flow.CommitFailed, refuse(cats.ReasonCommitFailed, "%s no longer has its half", f.name))
	default:
		c.unwind(r)
	}
}
