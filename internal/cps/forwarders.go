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
	if e.Batch.Provisioned != nil {
		c.provisioned(f, e.Batch.Provisioned)
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
	case h.LayoutVersion != LayoutVersion:
		c.refuseSession(f, cats.ReasonVersion, "its maps have layout %d, this C-PS needs %d; run the same release on both", h.LayoutVersion, LayoutVersion)
		return
	case h.Highest.Compare(c.config.Epoch) > 0, h.Highest == c.config.Epoch && !f.met:
		c.fence(f, h.Highest)
		return
	}
	f.connected, f.met, f.since, f.answered = true, true, c.now, false
	f.hello = *h
	f.hello.Bindings = nil
	f.acknowledged = nil
	c.provision(f)
	c.settle(f, h.Bindings)
}

func (c *Core) refuseSession(f *forwarder, reason cats.Reason, format string, arguments ...any) {
	detail := fmt.Sprintf(format, arguments...)
	c.audit(Audit{Event: "forwarder-refused", Subject: f.name, Reason: reason, Detail: detail})
	c.out.Closes = append(c.out.Closes, SessionClose{Forwarder: f.name, Session: f.session, Reason: reason, Detail: detail})
}

// fence stops all decisions: a forwarder has obeyed an owner of the shard that this core does not come after, so the
// store of this C-PS was lost, or it has been replaced (CP section 13.2).
func (c *Core) fence(f *forwarder, highest cats.Epoch) {
	c.fenced = fmt.Sprintf("forwarder %s has obeyed epoch %s of shard %d, this C-PS has %s: its store is not the one that last owned the shard",
		f.name, highest, c.config.Shard, c.config.Epoch)
	c.refuseSession(f, cats.ReasonStaleEpoch, "%s", c.fenced)
	c.open = false
	waiting := c.waiting
	c.waiting = nil
	for _, r := range waiting {
		if r.state == cats.Pending {
			c.fail(r, flow.Rejected, refuse(cats.ReasonStaleState, "%s", c.fenced))
		}
	}
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
		for standing := r.at(f.name, halfInstalled, halfUnheard); standing != nil; standing = r.at(f.name, halfInstalled, halfUnheard) {
			*standing = halfNone
			c.halfGone(f, r, cats.ReasonOperator)
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
		if standing := r.at(f.name, halfInstalling); standing != nil {
			c.fail(r, flow.CommitFailed, refuse(cats.ReasonCommitFailed, "%s lost its session", f.name))
			continue
		}
		if standing := r.at(f.name, halfRemoving); standing != nil {
			*standing = halfInstalled // as far as is known
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
	if p.Generation != f.sent.Generation {
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

// status takes a forwarder's report on one binding. One that fits nothing that is expected changes nothing, except that
// a half which nobody wants is taken out.
func (c *Core) status(f *forwarder, s *cats.BindingStatus) {
	if s.Forwarder != f.name {
		c.audit(Audit{Event: "status-refused", Subject: f.name, Reason: cats.ReasonUnauthorized, Transaction: s.Transaction,
			Detail: fmt.Sprintf("it speaks for forwarder %q", s.Forwarder)})
		return
	}
	r := c.flows[s.Transaction]
	if r == nil {
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
		c.ending(f, r, s)
	case cats.BindingRemoved:
		c.removed(f, r, s)
	}
}

// stray answers a report on a binding that this core does not have, such as a commit that came after its deadline.
func (c *Core) stray(f *forwarder, s *cats.BindingStatus) {
	if s.Result == cats.BindingRemoved || s.Result == cats.BindingRefused {
		return
	}
	c.counters.Strays++
	c.order(f, s.Transaction, cats.IngressHalf, cats.ReasonSuperseded)
	c.order(f, s.Transaction, cats.EgressHalf, cats.ReasonSuperseded)
}

// note keeps the owner's counters, and whether each head can use its path.
func (c *Core) note(r *record, s *cats.BindingStatus) {
	if s.Forwarder == r.binding.Ingress {
		r.pathUp[cats.IngressHalf] = s.PathUp
		r.forward = cats.Usage{Packets: max(r.forward.Packets, s.Forward.Packets), Octets: max(r.forward.Octets, s.Forward.Octets)}
		r.reverse = cats.Usage{Packets: max(r.reverse.Packets, s.Reverse.Packets), Octets: max(r.reverse.Octets, s.Reverse.Octets)}
	}
	if s.Forwarder == r.binding.Egress {
		r.pathUp[cats.EgressHalf] = s.PathUp
	}
}

func (c *Core) installed(f *forwarder, r *record, s *cats.BindingStatus) {
	standing := r.at(f.name, halfInstalling)
	if standing == nil || s.Version != r.binding.Version {
		return
	}
	*standing = halfInstalled
	if r.ingress == halfInstalled {
		c.activate(r)
		return
	}
	c.commitIngress(r)
}

func (c *Core) refusedBy(f *forwarder, r *record, s *cats.BindingStatus) {
	standing := r.at(f.name, halfInstalling)
	if standing == nil || s.Version != r.binding.Version {
		return
	}
	if standing == &r.egress && s.Reason != cats.ReasonTupleInUse {
		c.pause(f.name)
	}
	*standing = halfNone
	c.fail(r, flow.CommitFailed, refuse(cats.ReasonCommitFailed, "%s refused it: %s: %s", f.name, s.Reason, s.Detail))
}

// ending begins the end of a flow that its owner saw to be over; only the owner sees both directions of all of it.
func (c *Core) ending(f *forwarder, r *record, s *cats.BindingStatus) {
	if f.name != r.binding.Ingress {
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
	if standing := r.at(f.name, halfRemoving); standing != nil {
		*standing = halfNone
		c.unwind(r)
		return
	}
	standing := r.at(f.name, halfInstalled)
	if standing == nil {
		return
	}
	*standing = halfNone
	c.halfGone(f, r, s.Reason)
}

// halfGone settles a flow whose half at a forwarder is gone without an order.
func (c *Core) halfGone(f *forwarder, r *record, reason cats.Reason) {
	c.audit(Audit{Event: "half-lost", Subject: f.name, Reason: reason, Transaction: r.transaction(),
		Detail: fmt.Sprintf("the flow is %s", r.state)})
	switch r.state {
	case cats.Active:
		c.lose(r, reason)
	case cats.BindingReady:
		c.fail(r, flow.CommitFailed, refuse(cats.ReasonCommitFailed, "%s no longer has its half", f.name))
	default:
		c.unwind(r)
	}
}
