package forwarder

import (
	"errors"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	core "github.com/margay-net/margay/internal/forwarder"
)

// carryOut does what the core wants done, in the order of its effects, and puts what became of it into the next events.
func (a *App) carryOut(now cats.Instant) error {
	out := &a.out
	if err := a.persist(); err != nil {
		return err
	}
	for i := range out.Operations {
		r := a.system.halves.carryOut(now, &out.Operations[i])
		a.metrics.operations.WithLabelValues(out.Operations[i].Kind.String(), r.Reason.String()).Inc()
		a.in.Results = append(a.in.Results, r)
	}
	if out.Provision != nil {
		a.in.Provisioned = a.system.provision.result(now, out.Provision)
		a.metrics.provisioned(a.in.Provisioned, &a.system.provision.inForce)
	}
	if err := a.changeMisses(); err != nil {
		return err
	}
	a.release()
	a.drop()
	a.send()
	for _, answer := range out.Answers {
		if waits := a.answers[answer.Token]; waits != nil {
			delete(a.answers, answer.Token)
			waits <- answer // it has room for the one answer
		}
	}
	for _, r := range out.Audit {
		a.audit(&r)
	}
	stats := out.Stats
	a.metrics.stats.Store(&stats)
	return nil
}

// persist writes what must be known after a crash before anything is done in its name.
func (a *App) persist() error {
	if err := a.journal.Append(a.out.Journal, a.out.NeedsSync()); err != nil {
		return err
	}
	for _, e := range a.out.Journal {
		if e.Kind == core.JournalEpoch {
			if err := a.system.plane.RaiseEpoch(e.Shard, e.Epoch); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeMisses changes which packets the data plane hands up. One that it has no room for costs the flow, not the
// forwarder.
func (a *App) changeMisses() error {
	for _, f := range a.out.Announced {
		var err error
		if f.For > 0 {
			err = a.system.plane.Announce(ingressKey(f.Key), f.For)
		} else {
			err = a.system.plane.Withdraw(ingressKey(f.Key))
		}
		if err := a.tolerate(err, "announcement"); err != nil {
			return err
		}
	}
	for _, h := range a.out.HoldDowns {
		if err := a.tolerate(a.system.plane.HoldDown(ingressKey(h.Key), h.Reason, h.For), "hold-down"); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) tolerate(err error, what string) error {
	if errors.Is(err, cats.ReasonTableFull) {
		a.base.Log.Warn("the data plane has no room", "for", what, "error", err)
		return nil
	}
	return err
}

// release sends held packets back into the program, which now has their bindings.
func (a *App) release() {
	if len(a.out.Releases) == 0 {
		return
	}
	frames := make([][]byte, 0, len(a.out.Releases))
	for _, r := range a.out.Releases {
		f := a.held.take(r.Handle)
		frames = append(frames, datapath.ReleaseFrame(make([]byte, 0, len(f.octets)+datapath.ReleaseOverhead), f.from, f.octets))
	}
	a.totals.Released += uint64(len(frames))
	if err := a.system.release.Send(frames); err != nil {
		a.base.Log.Error("released packets were lost", "error", err)
		a.metrics.releaseErrors.Inc()
	}
}

func (a *App) drop() {
	for _, d := range a.out.Drops {
		a.held.take(d.Handle)
		a.dropped(d.Reason)
	}
}

// dropped counts a packet that was handed up and goes no further.
func (a *App) dropped(reason cats.Reason) {
	a.totals.Drops[reason]++
	a.metrics.drops.Inc(reason)
}

// send hands the batch to the session that the core knows. If that is over, the next one begins with all there is.
func (a *App) send() {
	batch := a.out.Send
	if batch.IsEmpty() {
		return
	}
	if a.session != a.handler.latest.Load() || !a.client.Send(batch) {
		a.base.Log.Debug("no session takes the batch", "requests", len(batch.Requests), "statuses", len(batch.Statuses))
		return
	}
	a.totals.Requests += uint64(len(batch.Requests))
}

func (a *App) audit(r *core.Audit) {
	by := r.By
	if by == "" {
		by = string(a.config.CPS.Name)
	}
	object := a.name
	if !r.Transaction.IsZero() {
		object = r.Transaction.String()
	}
	a.base.Audit.Record(r.Event, by, object, r.Reason, r.Detail)
	if r.Reason != cats.ReasonNone {
		a.base.Refusals.Inc(r.Reason)
		a.base.Log.Warn(r.Event, "by", by, "object", object, "reason", r.Reason.String(), "detail", r.Detail)
	}
}
