package sci

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/privileges"
	"github.com/margay-net/margay/internal/app/run"
	collect "github.com/margay-net/margay/internal/collect/grpc"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/sci"
)

// Daemon is margay-sci.
var Daemon = run.Daemon[Config]{Program: "margay-sci", Role: trust.SCI, Load: config.Load[Config], New: start}

// start is New for a process of its own, which needs no privileges from then on.
func start(ctx context.Context, c Config, base *run.Base) (run.App[Config], error) {
	app, err := New(ctx, c, base)
	if err != nil {
		return nil, err
	}
	note, err := privileges.Reduce()
	if err != nil {
		return nil, err
	}
	base.Log.Info("privileges", "note", note)
	return app, nil
}

// event is one thing that happened, for the goroutine that owns the Reporter: one field is set.
type event struct {
	config      *Config
	link        *sci.Link
	observation *sci.Observation
}

// mostEvents is how many events one Step takes at most.
const mostEvents = 256

// App is a running SCI agent.
type App struct {
	base     *run.Base
	clock    func() cats.Instant
	reporter *sci.Reporter
	client   *collect.Client
	checks   map[cats.CSID]Check
	events   chan event
	stopped  chan struct{} // closed when nobody takes events any more
	linked   *observe.Condition
	known    *observe.Condition
	told     map[cats.CSID]bool // services whose health was reported, other than UNKNOWN
	probes   sync.WaitGroup

	slots   *prometheus.GaugeVec
	health  *prometheus.GaugeVec
	sent    prometheus.Counter
	refused *observe.Reasons
}

// New makes an agent ready to run: it takes the next epoch from the state directory.
func New(_ context.Context, c Config, base *run.Base) (run.App[Config], error) {
	epoch, err := run.NextEpoch(string(c.State), time.Now())
	if err != nil {
		return nil, err
	}
	a := &App{
		base: base, clock: run.NewClock(), reporter: sci.New(c.core(), epoch), checks: checksOf(c),
		events: make(chan event, mostEvents), stopped: make(chan struct{}), linked: base.Health.Condition("csma"),
		known: base.Health.Condition("health"), told: make(map[cats.CSID]bool),
		slots:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "margay_sci_slots", Help: "Slots last reported."}, []string{"cs_id"}),
		health:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "margay_sci_health", Help: "Health last reported: 0 unknown, 1 healthy, 2 degraded, 3 unhealthy."}, []string{"cs_id"}),
		sent:    prometheus.NewCounter(prometheus.CounterOpts{Name: "margay_sci_reports_total", Help: "Reports sent to the C-SMA."}),
		refused: observe.NewReasons(base.Registry, "margay_sci_reports_refused_total", "Reports that the C-SMA refused, by reason."),
	}
	base.Registry.MustRegister(a.slots, a.health, a.sent)
	a.tell()
	a.client = collect.NewClient(collect.ClientOptions{Credentials: base.Trust, Peer: c.CSMA, Audit: base.Audit, Handler: (*link)(a)})
	return a, nil
}

func checksOf(c Config) map[cats.CSID]Check {
	checks := make(map[cats.CSID]Check, len(c.Services))
	for _, s := range c.Services {
		checks[s.CSID] = s.Check
	}
	return checks
}

// Run works until ctx ends.
func (a *App) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var channel sync.WaitGroup
	channel.Go(func() { a.client.Run(ctx) })
	a.own(ctx)
	close(a.stopped)
	a.probes.Wait()
	channel.Wait()
	return nil
}

// Prepare takes over everything but who and where the agent is.
func (a *App) Prepare(_ context.Context, current, next Config) (func(), error) {
	if err := config.Fixed(current, next, "csma", "site", "csci_id", "state"); err != nil {
		return nil, err
	}
	return func() { a.post(event{config: &next}) }, nil
}

// post hands an event to the owner, and waits while its queue is full.
func (a *App) post(e event) {
	select {
	case a.events <- e:
	case <-a.stopped:
	}
}

// own is the loop of the goroutine that owns the Reporter.
func (a *App) own(ctx context.Context) {
	var effects sci.Effects
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var events sci.Events
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case e := <-a.events:
			a.take(&events, e)
			for n := len(a.events); n > 0; n-- {
				a.take(&events, <-a.events)
			}
		}
		next := a.reporter.Step(a.clock(), &events, &effects)
		a.carryOut(ctx, &effects)
		timer.Reset(max(0, next.Sub(a.clock())))
	}
}

func (a *App) take(events *sci.Events, e event) {
	switch {
	case e.config != nil:
		core := e.config.core()
		events.Config, a.checks = &core, checksOf(*e.config)
		a.tell()
		a.slots.Reset()
		a.health.Reset()
	case e.link != nil:
		events.Links = append(events.Links, *e.link)
	case e.observation != nil:
		events.Observations = append(events.Observations, *e.observation)
	}
}

// carryOut starts checks and sends reports. A report that no session takes is not kept: the next session begins with a
// full one.
func (a *App) carryOut(ctx context.Context, effects *sci.Effects) {
	for _, p := range effects.Probes {
		check := a.checks[p.CSID]
		a.probes.Go(func() {
			err := check.run(ctx)
			if err != nil && ctx.Err() == nil {
				a.base.Log.Debug("health check failed", "cs_id", p.CSID, "error", err)
			}
			a.post(event{observation: &sci.Observation{Probe: p, OK: err == nil}})
		})
	}
	for _, c := range effects.Changes {
		a.base.Log.Info("health changed", "cs_id", c.CSID, "from", c.From, "to", c.To)
	}
	for _, r := range effects.Reports {
		if !a.client.Send(r) {
			continue
		}
		a.sent.Inc()
		for i := range r.Services {
			s := &r.Services[i]
			a.slots.WithLabelValues(string(s.CSID)).Set(float64(s.Metrics.GAS))
			a.health.WithLabelValues(string(s.CSID)).Set(float64(s.Health))
			if s.Health != cats.HealthUnknown && !a.told[s.CSID] {
				a.told[s.CSID] = true
				a.tell()
			}
		}
	}
}

// tell says whether each service's health was reported once: the agent is of use from then on.
func (a *App) tell() {
	var unknown []string
	for id := range a.checks {
		if !a.told[id] {
			unknown = append(unknown, string(id))
		}
	}
	if len(unknown) == 0 {
		a.known.Holds("reported of every service")
		return
	}
	slices.Sort(unknown)
	a.known.Fails("not reported yet of " + strings.Join(unknown, ", "))
}

// link is the App as its channel to the C-SMA sees it.
type link App

// Opened begins with everything.
func (l *link) Opened() {
	l.linked.Holds("")
	l.base.Log.Info("session with the C-SMA opened")
	up := sci.LinkUp
	(*App)(l).post(event{link: &up})
}

// Verdict tells of a report that was refused; there is nothing to repeat, as the next report replaces it.
func (l *link) Verdict(v cats.ReportVerdict) {
	if v.Disposal == cats.ReportAccepted {
		return
	}
	if v.Reason != cats.ReasonNone {
		l.refused.Inc(v.Reason)
	}
	l.base.Log.Warn("report not taken by the C-SMA", "disposal", v.Disposal, "reason", v.Reason, "detail", v.Detail, "sequence", v.Sequence)
}

// Pull answers with everything.
func (l *link) Pull() {
	up := sci.LinkUp
	(*App)(l).post(event{link: &up})
}

// Closed stops reporting until the next session.
func (l *link) Closed(err error) {
	l.linked.Fails("no session with the C-SMA: " + err.Error())
	if !errors.Is(err, context.Canceled) { // else the agent stops
		l.base.Log.Warn("no session with the C-SMA", "error", err)
	}
	down := sci.LinkDown
	(*App)(l).post(event{link: &down})
}
