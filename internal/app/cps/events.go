package cps

import (
	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/cps"
	northbound "github.com/margay-net/margay/internal/northbound/grpc"
	"github.com/margay-net/margay/internal/southbound/agent"
	"github.com/margay-net/margay/internal/trust"
)

// event is one thing that another goroutine has for the owner. One of forwarder, source, config, explain and call is
// set.
type event struct {
	forwarder *agent.Session
	batch     *cats.ForwarderBatch // of forwarder; nil: its session is over

	source  *northbound.Session
	opened  bool                // of source; else one of the next two is set, or its session is over
	metric  *cats.MetricUpdate  // of a C-SMA
	network *cats.NetworkUpdate // of a C-NMA

	config *Config

	explain *cats.ServiceRequest
	answer  chan<- core.Explanation // has room for one

	call func() // after the Step
}

// take sorts an event into those of the next Step.
func (a *App) take(e event) {
	switch {
	case e.forwarder != nil:
		a.takeForwarder(e.forwarder, e.batch)
	case e.source != nil && e.source.Peer().Role == trust.CNMA:
		a.takeNetwork(&e)
	case e.source != nil:
		a.takeSource(&e)
	case e.config != nil:
		a.takeConfig(e.config)
	case e.explain != nil:
		a.question++
		a.answers[a.question] = e.answer
		a.in.Explains = append(a.in.Explains, core.ExplainRequest{ID: a.question, Request: *e.explain})
	case e.call != nil:
		a.calls = append(a.calls, e.call)
	}
}

func (a *App) takeForwarder(s *agent.Session, b *cats.ForwarderBatch) {
	name := s.Peer().Name
	e := core.ForwarderEvent{Name: name, Session: s.ID()}
	if b != nil {
		a.forwarders[name] = s
		e.Batch = *b
	} else {
		e.Closed = true
		a.base.Log.Info("forwarder's session is over", "forwarder", name, "why", s.Cause())
	}
	if b != nil && b.Hello != nil {
		a.base.Log.Info("forwarder has a session", "forwarder", name, "boot", b.Hello.BootID, "bindings", len(b.Hello.Bindings))
	}
	a.in.Forwarders = append(a.in.Forwarders, e)
}

func (a *App) takeSource(e *event) {
	name := e.source.Peer().Name
	a.csmas[name] = e.source
	a.in.Sources = append(a.in.Sources, core.SourceEvent{
		Name: name, Session: e.source.ID(), Opened: e.opened, Closed: !e.opened && e.metric == nil, Update: e.metric,
	})
	a.tellSource(e, "C-SMA")
}

// takeNetwork keeps the TEDB; the core sees only what is derived from it.
func (a *App) takeNetwork(e *event) {
	name := e.source.Peer().Name
	a.tellSource(e, "C-NMA")
	switch {
	case e.opened:
		p := a.topology.position(name)
		e.source.Send(cats.Feedback{Kind: cats.FeedbackHello, Epoch: p.Epoch, Sequence: p.Sequence})
	case e.network != nil:
		answer, changed := a.topology.apply(a.clock(), e.network)
		a.changed = a.changed || changed
		if answer.Kind == cats.FeedbackRefused {
			a.refused(e.source.Peer(), "update-refused", string(a.config.Name), answer.Reason, answer.Detail)
		}
		e.source.Send(answer)
	}
}

func (a *App) tellSource(e *event, kind string) {
	switch {
	case e.opened:
		a.base.Log.Info("source has a session", "kind", kind, "source", e.source.Peer().Name)
	case e.metric == nil && e.network == nil:
		a.base.Log.Info("source's session is over", "kind", kind, "source", e.source.Peer().Name, "why", e.source.Cause())
	}
}

func (a *App) takeConfig(c *Config) {
	a.config = *c
	a.in.Domain = c.domain
	dropped, err := a.topology.retain(names(c.CNMAs))
	if err != nil { // a part of a topology that holds together can only lack ends
		a.base.Log.Error("the topology without the C-NMAs that were taken away does not hold together; theirs stays", "error", err)
	}
	if !dropped {
		a.topology.renumber()
	}
	a.changed = true
}

// agents takes what happens on the sessions of the forwarders.
type agents App

// Batch hands a message to the owner.
func (h *agents) Batch(s *agent.Session, b cats.ForwarderBatch) {
	(*App)(h).post(event{forwarder: s, batch: &b})
}

// Refused audits and counts a message that breaks the contract.
func (h *agents) Refused(s *agent.Session, reason cats.Reason, detail string) {
	(*App)(h).refused(s.Peer(), "message-refused", "steering", reason, detail)
}

// Closed tells the owner that a session is over.
func (h *agents) Closed(s *agent.Session) { (*App)(h).post(event{forwarder: s}) }

// sources takes what happens on the sessions of C-SMAs and C-NMAs.
type sources App

// Opened tells the owner of a session.
func (h *sources) Opened(s *northbound.Session) { (*App)(h).post(event{source: s, opened: true}) }

// MetricUpdate hands an update to the owner.
func (h *sources) MetricUpdate(s *northbound.Session, u cats.MetricUpdate) {
	(*App)(h).post(event{source: s, metric: &u})
}

// NetworkUpdate hands an update to the owner.
func (h *sources) NetworkUpdate(s *northbound.Session, u cats.NetworkUpdate) {
	(*App)(h).post(event{source: s, network: &u})
}

// Refused audits and counts an update that was not let through.
func (h *sources) Refused(s *northbound.Session, reason cats.Reason, detail string) {
	(*App)(h).refused(s.Peer(), "update-refused", "metrics", reason, detail)
}

// Closed tells the owner that a session is over.
func (h *sources) Closed(s *northbound.Session) { (*App)(h).post(event{source: s}) }
