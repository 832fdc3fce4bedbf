package forwarder

import (
	"context"
	"fmt"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/datapath/kernel"
	core "github.com/margay-net/margay/internal/forwarder"
	"github.com/margay-net/margay/internal/journal"
)

// own feeds the core until ctx ends or something fails that it cannot work without.
func (a *App) own(ctx context.Context, failures <-chan error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	scans := time.NewTicker(scanEvery)
	defer scans.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return a.persistTotals()
		case err := <-failures:
			return err
		case <-timer.C:
		case batch := <-a.misses:
			a.takeMisses(batch)
		case e := <-a.events:
			a.takeEvent(e)
		case hops, ok := <-a.system.resolver.Changes():
			if !ok {
				return fmt.Errorf("next hops are not followed any more: %w", a.system.resolver.Err())
			}
			err = a.follow(hops)
		case <-scans.C:
			err = a.second()
		}
		if err != nil {
			return err
		}
		a.takeMore()
		next, err := a.step()
		if err != nil {
			return err
		}
		timer.Reset(max(0, next.Sub(a.clock.now())))
	}
}

// takeMore takes what waits already, so that one Step serves it all.
func (a *App) takeMore() {
	for a.in.Len() < mostEvents && a.in.Session == core.SessionUnchanged {
		select {
		case batch := <-a.misses:
			a.takeMisses(batch)
		case e := <-a.events:
			a.takeEvent(e)
		default:
			return
		}
	}
}

// takeMisses hands packets to the core, except those whose deadline passed while they waited for this run of the agent:
// their senders have given up or sent them again.
func (a *App) takeMisses(batch []datapath.Miss) {
	oldest := datapath.Monotonic() - int64(a.config.Limits.core().PendingDeadline)
	for i := range batch {
		m := &batch[i]
		if m.Received < oldest {
			a.dropped(cats.ReasonHeldExpired)
			continue
		}
		a.in.Misses = append(a.in.Misses, core.Miss{
			Handle: a.held.put(m), Attachment: a.attachmentName(m.Key.Attachment), Tuple: m.Key.Tuple,
			Flags: core.TCPFlags(m.TCPFlags), Length: uint32(len(m.Frame)), Over: m.Over,
		})
	}
}

// attachmentName gives the attachment of a number that the data plane uses; empty if a reload took it away meanwhile.
func (a *App) attachmentName(id uint32) string {
	for i := range a.config.Attachments {
		if name := string(a.config.Attachments[i].Name); datapath.AttachmentID(name) == id {
			return name
		}
	}
	return ""
}

// takeEvent takes a call, or what happened on a session. A session that changes ends the batch: what is in it belongs
// to the time before.
func (a *App) takeEvent(e event) {
	switch {
	case e.call != nil:
		e.call()
	case e.batch != nil:
		a.in.Steering = append(a.in.Steering, e.batch)
	case e.change == core.SessionUp:
		a.in.Session, a.session = core.SessionUp, e.session
		a.in.Steering = a.in.Steering[:0]                                             // of a session that is over
		a.metrics.provision.Fails("the C-PS has not provisioned in this session yet") // first, so that nobody sees both hold
		a.metrics.session.Holds(e.detail)
	default:
		a.in.Session, a.session = core.SessionDown, 0
		a.in.Steering = a.in.Steering[:0]
		a.metrics.session.Fails(e.detail)
	}
}

// follow takes next hops that changed.
func (a *App) follow(hops []kernel.Hop) error {
	now := a.clock.now()
	for _, h := range hops {
		if err := a.system.routes.follow(now, h); err != nil {
			return err
		}
	}
	return nil
}

// second does what is done once a second.
func (a *App) second() error {
	a.system.routes.tick(a.clock.now())
	missing, err := a.system.attachAgain(&a.config)
	if err != nil {
		a.base.Log.Error("the data plane is not on every port", "error", err)
	}
	a.metrics.ports(missing, err)
	if err := a.persistTotals(); err != nil {
		return err
	}
	if a.journal.Grown() {
		if err := a.journal.Compact(journal.Contents{Restored: a.core.Snapshot(), Totals: a.totals}); err != nil {
			return err
		}
	}
	return a.scan(a.system.plane.Used)
}

// step lets the core work on what came in, and on what became of its effects, until there is nothing more.
func (a *App) step() (next cats.Instant, err error) {
	for more := true; more; {
		a.takeRoutes()
		now := a.clock.now()
		next = a.core.Step(now, &a.in, &a.out)
		a.in.Reset()
		if err := a.carryOut(now); err != nil {
			return 0, err
		}
		r := a.system.routes
		more = a.in.Len() > 0 || a.in.Provisioned != nil || len(r.changes) > 0 || r.moved
	}
	return next, a.system.routes.fault
}

// takeRoutes tells the core which paths and deliveries next hops changed for.
func (a *App) takeRoutes() {
	r := a.system.routes
	a.in.Paths = append(a.in.Paths, r.changes...)
	r.changes = r.changes[:0]
	if !r.moved {
		return
	}
	r.moved = false
	if p := a.system.provision; a.in.Provisioned == nil && len(p.inForce.Deliveries) > 0 {
		a.in.Provisioned = &core.ProvisionResult{Generation: p.inForce.Generation, Deliveries: p.inPlace()}
	}
}

// persistTotals writes the totals if they have grown.
func (a *App) persistTotals() error {
	if sum := a.totals.Sum(); sum != a.stored {
		a.stored = sum
		return a.journal.AppendTotals(a.totals)
	}
	return nil
}
