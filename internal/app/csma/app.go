package csma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/privileges"
	"github.com/margay-net/margay/internal/app/run"
	collect "github.com/margay-net/margay/internal/collect/grpc"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/csma"
	northbound "github.com/margay-net/margay/internal/northbound/grpc"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// Daemon is margay-csma.
var Daemon = run.Daemon[Config]{Program: "margay-csma", Role: trust.CSMA, Load: config.Load[Config], New: start}

// start is New for a process of its own, which needs no privileges once it listens.
func start(ctx context.Context, c Config, base *run.Base) (run.App[Config], error) {
	app, err := New(ctx, c, base)
	if err != nil {
		return nil, err
	}
	note, err := privileges.Reduce()
	if err != nil {
		return nil, errors.Join(err, app.(*App).listeners.Close())
	}
	base.Log.Info("privileges", "note", note)
	return app, nil
}

const (
	queueLength = 1024 // events; when it is full, the sessions that they come from wait
	mostEvents  = 256  // of one Step
)

// event is one thing that happened, for the goroutine that owns the core: a report with the session it came over, or
// one of the others.
type event struct {
	from    *collect.Session
	report  cats.SCIReport
	session *csma.Session
	config  *Config
}

// App is a running C-SMA.
type App struct {
	config    Config // that it was started with
	base      *run.Base
	clock     func() cats.Instant
	core      *csma.Core
	guard     *trust.Guard
	listeners run.Listeners
	server    *grpc.Server
	collector *collect.Server
	limits    atomic.Pointer[map[string]collect.Limit] // of reports, by agent
	clients   map[string]*northbound.MetricClient      // by name of the C-PS; never written after New
	events    chan event
	stopped   chan struct{} // closed when nobody takes events any more
	links     *links
	metrics   *metrics
}

// New makes a C-SMA ready to run: it listens, and takes the next epoch from the state directory. On an error nothing is
// left open.
func New(_ context.Context, c Config, base *run.Base) (_ run.App[Config], err error) {
	a := &App{
		config: c, base: base, clock: run.NewClock(), clients: make(map[string]*northbound.MetricClient, len(c.CPS)),
		events: make(chan event, queueLength), stopped: make(chan struct{}), links: newLinks(base.Health, c.CPS),
	}
	a.guard = trust.NewGuard(c.roster(), collect.Methods(), base.Audit, base.Refusals)
	a.server = trust.NewServer(base.Trust, a.guard, grpc.MaxRecvMsgSize(v1alpha1.MaxReportOctets))
	a.setLimits(c)
	a.collector = collect.NewServer((*collector)(a), func(agent string) collect.Limit { return (*a.limits.Load())[agent] })
	a.collector.Register(a.server)
	for _, p := range c.CPS {
		client, err := northbound.NewMetricClient(northbound.ClientOptions{Credentials: base.Trust, Peer: p, Audit: base.Audit, Handler: (*advertiser)(a)})
		if err != nil {
			return nil, err
		}
		a.clients[string(p.Name)] = client
	}
	epoch, err := run.NextEpoch(string(c.State), time.Now())
	if err != nil {
		return nil, err
	}
	a.core = csma.New(c.core(), epoch)
	a.metrics = newMetrics(a)
	if a.listeners, err = run.Listen(c.Listen); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *App) setLimits(c Config) {
	limits := c.limits()
	a.limits.Store(&limits)
}

// Addresses gives where the C-SMA listens: useful where a configured port was 0.
func (a *App) Addresses() []net.Addr {
	return a.listeners.Addresses()
}

// Run works until ctx ends.
func (a *App) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var helpers sync.WaitGroup
	a.listeners.Serve(a.server, &helpers, cancel)
	a.links.listening()
	for _, c := range a.clients {
		helpers.Go(func() { c.Run(ctx) })
	}
	err := a.own(ctx)
	cancel(err)
	close(a.stopped)
	a.server.Stop()
	helpers.Wait()
	a.collector.Wait()
	return err
}

// Prepare takes over agents, their grants, and timing. Where the C-SMA is and whom it advertises to takes a restart.
func (a *App) Prepare(_ context.Context, current, next Config) (func(), error) {
	if err := config.Fixed(current, next, "site", "listen", "cps", "state"); err != nil {
		return nil, err
	}
	return func() {
		a.setLimits(next)
		a.guard.SetRoster(next.roster())
		for _, agent := range current.SCIs {
			if !slices.ContainsFunc(next.SCIs, func(n Agent) bool { return n.Agent == agent.Agent }) {
				a.collector.Drop(a.base.Trust.Peer(trust.SCI, string(agent.Agent)), errRevoked)
			}
		}
		a.post(event{config: &next})
	}, nil
}

var errRevoked = fmt.Errorf("this agent is no longer configured: %w", cats.ReasonRevoked)

// post hands an event to the owner, and waits while its queue is full.
func (a *App) post(e event) {
	select {
	case a.events <- e:
	case <-a.stopped:
	}
}
