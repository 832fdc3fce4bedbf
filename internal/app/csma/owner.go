package csma

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	collect "github.com/margay-net/margay/internal/collect/grpc"
	"github.com/margay-net/margay/internal/csma"
)

// own is the loop of the goroutine that owns the core. It ends with ctx, with an error where the state cannot be stored.
func (a *App) own(ctx context.Context) error {
	var batch batch
	var effects csma.Effects
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		batch.reset()
		select {
		case <-ctx.Done():
			return run.IgnoreCanceled(context.Cause(ctx))
		case <-timer.C:
		case e := <-a.events:
			batch.add(e)
			for n := min(len(a.events), mostEvents-1); n > 0; n-- {
				batch.add(<-a.events)
			}
		}
		next := a.core.Step(a.clock(), &batch.events, &effects)
		if err := a.carryOut(&effects, &batch); err != nil {
			return err
		}
		timer.Reset(max(0, next.Sub(a.clock())))
	}
}

// batch is the events of one Step, with the sessions that its reports came over, index by index.
type batch struct {
	events csma.Events
	from   []*collect.Session
}

func (b *batch) reset() {
	b.events.Config = nil
	b.events.Sessions, b.events.Reports, b.from = b.events.Sessions[:0], b.events.Reports[:0], b.from[:0]
}

func (b *batch) add(e event) {
	switch {
	case e.from != nil:
		b.events.Reports = append(b.events.Reports, csma.Report{Agent: e.from.Peer().Name, SCIReport: e.report})
		b.from = append(b.from, e.from)
	case e.session != nil:
		b.events.Sessions = append(b.events.Sessions, *e.session)
	case e.config != nil:
		core := e.config.core()
		b.events.Config = &core
	}
}

// carryOut stores, sends, and then answers.
func (a *App) carryOut(effects *csma.Effects, b *batch) error {
	if effects.Epoch != 0 {
		a.base.Log.Warn("a C-PS has seen a later epoch of this C-SMA, whose state was lost; going on above it", "epoch", effects.Epoch)
		if err := run.StoreEpoch(string(a.config.State), effects.Epoch); err != nil {
			return err
		}
	}
	for i := range effects.Updates {
		u := &effects.Updates[i]
		if a.clients[u.CPS].Send(u.Update) { // else the session is gone, and the next one resynchronizes
			a.metrics.updates.WithLabelValues(u.CPS, u.Update.Kind.String()).Inc()
			a.base.Log.Debug("update", "cps", u.CPS, "kind", u.Update.Kind, "sequence", u.Update.Sequence, "records", len(u.Update.Records))
		}
	}
	for i, err := range effects.Outcomes {
		a.answer(b.from[i], &b.events.Reports[i].SCIReport, err)
	}
	for i := range effects.Changes {
		a.log(&effects.Changes[i])
	}
	counts := a.core.Counts()
	a.metrics.counts.Store(&counts)
	return nil
}

// answer gives an agent the verdict on its report.
func (a *App) answer(to *collect.Session, r *cats.SCIReport, err error) {
	verdict := cats.ReportVerdict{Epoch: r.Epoch, Sequence: r.Sequence, Disposal: cats.ReportAccepted}
	if err != nil {
		verdict.Disposal, verdict.Reason, verdict.Detail = cats.ReportRefused, cmp.Or(cats.ReasonOf(err), cats.ReasonMalformed), err.Error()
		a.refuse(to, string(r.CSCIID), verdict.Reason, verdict.Detail)
	}
	a.metrics.reports.WithLabelValues(verdict.Disposal.String()).Inc()
	to.Send(verdict)
}

// refuse counts a report that did not reach the cache. The audit log has it, and so has the log, unless the agent sends
// too many of them.
func (a *App) refuse(from *collect.Session, object string, reason cats.Reason, detail string) {
	a.base.Refusals.Inc(reason)
	agent := from.Peer().String()
	if a.base.Audit.RecordFrom(agent, "report-refused", agent, object, reason, detail) {
		a.base.Log.Warn("report refused", "agent", from.Peer().Name, "object", object, "reason", reason, "detail", detail)
	}
}

func (a *App) log(c *csma.Change) {
	level := slog.LevelInfo
	if c.Reporting == cats.ReportingFailed {
		level = slog.LevelWarn
	}
	a.base.Log.Log(context.Background(), level, "instance changed", "csci_id", c.CSCIID, "cs_id", c.CSID,
		"reporting_from", c.ReportingFrom, "reporting", c.Reporting, "health_from", c.HealthFrom, "health", c.Health, "evicted", c.Evicted)
}
