package cnma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/privileges"
	"github.com/margay-net/margay/internal/app/run"
	core "github.com/margay-net/margay/internal/cnma"
	"github.com/margay-net/margay/internal/config"
	northbound "github.com/margay-net/margay/internal/northbound/grpc"
	"github.com/margay-net/margay/internal/topology/static"
	"github.com/margay-net/margay/internal/trust"
)

// Daemon is margay-cnma.
var Daemon = run.Daemon[Config]{Program: "margay-cnma", Role: trust.CNMA, Load: Load, New: start}

// start is New for a process of its own, which needs no privileges once its files are open.
func start(ctx context.Context, c Config, base *run.Base) (run.App[Config], error) {
	app, err := New(ctx, c, base)
	if err != nil {
		return nil, err
	}
	note, err := privileges.Reduce()
	if err != nil {
		return nil, errors.Join(err, app.(*App).watch.close())
	}
	base.Log.Info("privileges", "note", note)
	return app, nil
}

const (
	queueLength = 64  // session events that wait for the core before the channels do
	mostEvents  = 256 // of one step
	sourceName  = "static"
)

// App is a running C-NMA. One goroutine, that of Run, owns the core.
type App struct {
	config  Config
	base    *run.Base
	metrics *metrics
	watch   *watch
	clients map[string]*northbound.NetworkClient // by name of the C-PS; never written after New

	core   *core.Core
	clock  func() cats.Instant
	views  *views
	events chan core.SessionEvent
	stop   chan struct{} // closed when Run ends: nobody takes events any more

	mutex    sync.Mutex           // guards the sending side of topology
	topology chan static.Topology // the newest one that the core has not taken
}

// New opens what Run needs. On an error it leaves nothing open.
func New(_ context.Context, c Config, base *run.Base) (run.App[Config], error) {
	a := &App{
		config: c, base: base, clients: map[string]*northbound.NetworkClient{}, clock: run.NewClock(),
		events: make(chan core.SessionEvent, queueLength), stop: make(chan struct{}), topology: make(chan static.Topology, 1),
	}
	epoch, err := run.NextEpoch(string(c.State), time.Now())
	if err != nil {
		return nil, err
	}
	a.core = core.New(core.Config{Name: string(c.Name), Epoch: epoch, Refresh: c.Refresh})
	for _, peer := range c.CPS {
		client, err := northbound.NewNetworkClient(northbound.ClientOptions{
			Credentials: base.Trust, Peer: peer, Audit: base.Audit, Handler: (*handler)(a),
		})
		if err != nil {
			return nil, fmt.Errorf("C-PS %s: %w", peer.Name, err)
		}
		a.clients[string(peer.Name)] = client
	}
	if a.watch, err = newWatch(string(c.Topology), base.Log); err != nil {
		return nil, err
	}
	a.views = newViews(base.Health, c.CPS)
	a.metrics = newMetrics(a)
	a.offer(c.static)
	return a, nil
}

// offer hands a topology to the core; one that it has not taken yet is replaced.
func (a *App) offer(t static.Topology) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	select {
	case <-a.topology:
	default:
	}
	a.topology <- t
}

// Prepare takes a new topology file. Everything else but certificates and the log level takes a restart.
func (a *App) Prepare(_ context.Context, current, next Config) (func(), error) {
	if err := config.Fixed(current, next, "cps", "state", "topology", "refresh"); err != nil {
		return nil, err
	}
	return func() { a.offer(next.static) }, nil
}

// reread takes the topology file after it changed, all or nothing.
func (a *App) reread() {
	t, err := static.Load(string(a.config.Topology))
	if err != nil {
		a.metrics.refused.Inc()
		a.base.Log.Error("topology refused; the last good one stays in force", "error", err)
		return
	}
	a.offer(t)
}

// Run works until ctx ends.
func (a *App) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	for _, client := range a.clients {
		helpers.Go(func() { client.Run(ctx) })
	}
	helpers.Go(func() { a.watch.run(ctx, a.reread) })
	err := a.own(ctx)
	cancel()
	close(a.stop)
	helpers.Wait()
	return errors.Join(err, a.watch.close())
}

// own feeds the core until ctx ends or the state cannot be kept.
func (a *App) own(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var in core.Events
	var out core.Effects
	for {
		in.Topologies, in.Sessions = in.Topologies[:0], in.Sessions[:0]
		select {
		case <-ctx.Done():
			return nil
		case t := <-a.topology:
			in.Topologies = append(in.Topologies, core.Topology{Source: sourceName, Nodes: t.Nodes, Links: t.Links})
		case e := <-a.events:
			in.Sessions = a.drain(append(in.Sessions, e))
		case <-timer.C:
		}
		before := a.core.Generation()
		next := a.core.Step(a.clock(), &in, &out)
		if g := a.core.Generation(); g != before {
			a.metrics.generation.Store(g)
			a.base.Log.Info("topology taken", "generation", g)
		}
		if err := a.carryOut(&out); err != nil {
			return err
		}
		timer.Reset(max(0, next.Sub(a.clock())))
	}
}

func (a *App) drain(events []core.SessionEvent) []core.SessionEvent {
	for len(events) < mostEvents {
		select {
		case e := <-a.events:
			events = append(events, e)
		default:
			return events
		}
	}
	return events
}

// carryOut does what the core wants done: persist, then send.
func (a *App) carryOut(out *core.Effects) error {
	for _, r := range out.Refusals {
		a.metrics.refused.Inc()
		a.base.Log.Error("topology refused; the last good one stays in force", "source", r.Source, "error", r.Err)
	}
	if out.Epoch != 0 {
		a.base.Log.Warn("a C-PS knows a later run of this C-NMA, whose state is lost: starting above it", "epoch", out.Epoch)
		if err := run.StoreEpoch(string(a.config.State), out.Epoch); err != nil {
			return err
		}
	}
	for i := range out.Sends {
		s := &out.Sends[i]
		if !a.clients[s.Peer].Send(s.Update) {
			continue // the session is over, and its successor resynchronizes
		}
		a.metrics.sent(s.Peer, s.Update.Kind)
		a.base.Log.Log(context.Background(), levelOf(s.Update.Kind), "sent an update", "cps", s.Peer, "kind", s.Update.Kind.String(),
			"sequence", s.Update.Sequence, "nodes", len(s.Update.Nodes), "links", len(s.Update.Links))
	}
	return nil
}

// levelOf keeps the log for what is not routine.
func levelOf(k cats.UpdateKind) slog.Level {
	if k == cats.UpdateRefresh {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
