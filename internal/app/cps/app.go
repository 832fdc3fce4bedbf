package cps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/privileges"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/config"
	core "github.com/margay-net/margay/internal/cps"
	"github.com/margay-net/margay/internal/cps/admission"
	northbound "github.com/margay-net/margay/internal/northbound/grpc"
	"github.com/margay-net/margay/internal/southbound/agent"
	"github.com/margay-net/margay/internal/store"
	"github.com/margay-net/margay/internal/store/bolt"
	"github.com/margay-net/margay/internal/trust"
)

// Daemon is margay-cps.
var Daemon = run.Daemon[Config]{Program: "margay-cps", Role: trust.CPS, Load: Load, New: start, Recover: Recover}

// start is New for a process of its own, which needs no privileges once it listens.
func start(ctx context.Context, c Config, base *run.Base) (run.App[Config], error) {
	app, err := New(ctx, c, base)
	if err != nil {
		return nil, err
	}
	note, err := privileges.Reduce()
	if err != nil {
		return nil, errors.Join(err, app.(*App).close())
	}
	base.Log.Info("privileges", "note", note)
	return app, nil
}

const (
	queueLength = 1024 // events; when it is full, the sessions that they come from wait
	mostEvents  = 256  // of one Step
	shard       = cats.Shard(0)
	storeFile   = "cps.db" // below the state directory
)

// App is a running C-PS. The goroutine of Run owns what is not said to be anybody else's.
type App struct {
	base      *run.Base
	clock     func() cats.Instant
	store     store.Store
	epoch     cats.Epoch
	core      *core.Core
	topology  *topology
	guard     *trust.Guard
	server    *grpc.Server
	listeners run.Listeners
	agents    *agent.Server
	sources   *northbound.Server
	metrics   *metrics

	config     Config
	in         core.Events
	out        core.Effects
	forwarders map[string]*agent.Session      // the latest session of each
	csmas      map[string]*northbound.Session // likewise
	answers    map[uint64]chan<- core.Explanation
	question   uint64        // ID of the latest ExplainRequest
	calls      []func()      // questions that wait for the Step under way
	changed    bool          // the topology, or which of its ends count
	counted    core.Counters // whose refusals have been counted
	refusals   refusalLog
	generation uint64 // of the catalogue that was last logged

	events  chan event
	stopped chan struct{} // closed when nobody takes events any more
}

// New makes a C-PS ready to run: it listens, and takes the next epoch of its shard unless that is fenced. On an error
// nothing is left open.
func New(_ context.Context, c Config, base *run.Base) (_ run.App[Config], err error) {
	a := &App{
		base: base, clock: run.NewClock(), config: c, topology: newTopology(c.TLS.Domain),
		forwarders: make(map[string]*agent.Session), csmas: make(map[string]*northbound.Session),
		answers: make(map[uint64]chan<- core.Explanation), refusals: newRefusalLog(base.Log),
		events: make(chan event, queueLength), stopped: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	for _, address := range c.Listen {
		l, err := trust.Listen(address)
		if err != nil {
			return nil, err
		}
		a.listeners = append(a.listeners, l)
	}
	if err := a.own(); err != nil {
		return nil, err
	}
	a.in.Domain = c.domain
	a.warn(c.domain)
	a.guard = trust.NewGuard(c.roster(), methods(), base.Audit, base.Refusals)
	a.server = trust.NewServer(base.Trust, a.guard)
	a.agents = agent.NewServer((*agents)(a))
	a.agents.Register(a.server)
	a.sources = northbound.NewServer(northbound.ServerOptions{Handler: (*sources)(a), Tolerance: c.ReplayWindow})
	a.sources.Register(a.server)
	pb.RegisterOperatorServiceServer(a.server, &operator{app: a})
	a.metrics = newMetrics(a)
	return a, nil
}

// own opens the store and makes the core with the epoch that it gives. A start that fails before this uses up no epoch.
func (a *App) own() error {
	file, err := bolt.Open(a.config.store())
	if err != nil {
		return err
	}
	a.store = file
	var fence cats.Fence
	if a.epoch, fence, err = a.store.Advance(shard); err != nil {
		return err
	}
	a.core = core.New(core.Config{Shard: shard, Epoch: a.epoch, Fence: fence, RoutingDomain: a.config.TLS.Domain, Limits: a.config.Limits.core()})
	if why := a.core.Gauges().Fenced; why != "" {
		a.base.Log.Error("the shard is fenced: nothing is decided", "why", why)
		return nil
	}
	a.base.Log.Info("owner of the shard", "shard", shard, "epoch", a.epoch.String())
	return nil
}

// store gives the file of the store.
func (c *Config) store() string { return filepath.Join(string(c.State), storeFile) }

// core gives the limits that the core works by.
func (l *Limits) core() core.Limits {
	all := core.DefaultLimits()
	all.Pending = admission.Limits{Total: l.Pending, PerTenant: l.PerTenant, PerClient: l.PerClient}
	return all
}

// methods is which roles may call what.
func methods() trust.Methods {
	all := trust.Methods{}
	for _, m := range []trust.Methods{agent.Methods(), northbound.Methods(), operatorMethods} {
		maps.Copy(all, m)
	}
	return all
}

// warn tells the operator what is legal in a catalogue, and dangerous.
func (a *App) warn(d *core.Domain) {
	for _, w := range d.Catalogue.Warnings() {
		a.base.Log.Warn("catalogue", "warning", w)
	}
}

func (a *App) close() (err error) {
	err = a.listeners.Close()
	if a.store != nil {
		err = errors.Join(err, a.store.Close())
	}
	return err
}

// Addresses gives where the C-PS listens: useful where a configured port was 0.
func (a *App) Addresses() []net.Addr {
	return a.listeners.Addresses()
}

// Run works until ctx ends.
func (a *App) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var serving sync.WaitGroup
	a.listeners.Serve(a.server, &serving, cancel)
	err := a.feed(ctx)
	cancel(err)
	close(a.stopped)
	a.server.Stop()
	serving.Wait()
	a.agents.Wait()
	a.sources.Wait()
	return errors.Join(err, a.close())
}

// Prepare takes over the catalogue, and who may speak to the C-PS. Where it listens, its state and its limits take a restart.
func (a *App) Prepare(_ context.Context, current, next Config) (func(), error) {
	if err := config.Fixed(current, next, "listen", "state", "limits", "replay_window"); err != nil {
		return nil, err
	}
	if err := next.domain.Catalogue.CheckSuccession(current.domain.Catalogue); err != nil {
		return nil, fmt.Errorf("%s: %w", next.Catalogue, err)
	}
	return func() {
		a.warn(next.domain)
		a.guard.SetRoster(next.roster())
		a.post(event{config: &next})
	}, nil
}

// post hands an event to the owner, and waits while its queue is full; it tells whether the owner takes any.
func (a *App) post(e event) bool {
	select {
	case a.events <- e:
		return true
	case <-a.stopped:
		return false
	}
}
