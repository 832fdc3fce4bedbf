package cps

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	core "github.com/margay-net/margay/internal/cps"
	"github.com/margay-net/margay/internal/trust"
)

// feed is the goroutine that owns the core: it feeds it until ctx ends.
func (a *App) feed(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			a.refusals.rest()
			return run.IgnoreCanceled(context.Cause(ctx))
		case <-timer.C:
		case e := <-a.events:
			a.take(e)
			for n := min(len(a.events), mostEvents-1); n > 0; n-- {
				a.take(<-a.events)
			}
		}
		next, err := a.step()
		if err != nil {
			return err
		}
		timer.Reset(max(0, next.Sub(a.clock())))
	}
}

// step lets the core work on what came in, carries its effects out, and answers the questions that came with it.
func (a *App) step() (next cats.Instant, err error) {
	if a.changed {
		a.in.Paths, a.changed = a.topology.view(a.config.domain), false
	}
	next = a.core.Step(a.clock(), &a.in, &a.out)
	a.in = core.Events{Sources: a.in.Sources[:0], Forwarders: a.in.Forwarders[:0], Explains: a.in.Explains[:0]}
	if err := a.carryOut(); err != nil {
		return 0, err
	}
	for i := range a.out.Refused {
		a.refusals.note(&a.out.Refused[i])
	}
	next = min(next, a.refusals.tell(a.clock()))
	a.tellCatalogue()
	for _, call := range a.calls {
		call()
	}
	a.calls = a.calls[:0]
	a.metrics.note(a.core)
	return next, nil
}

// carryOut does what the core wants done, what has to be kept first.
func (a *App) carryOut() error {
	if fence := a.out.Fence; !fence.IsZero() {
		if err := a.store.Fence(shard, fence); err != nil {
			return err
		}
	}
	for i := range a.out.Audit {
		a.audit(&a.out.Audit[i])
	}
	for _, c := range a.out.Closes {
		if s := a.forwarders[c.Forwarder]; s != nil && s.ID() == c.Session {
			s.Close(fmt.Errorf("%s: %w", c.Detail, c.Reason))
		}
	}
	for _, m := range a.out.Steering {
		if s := a.forwarders[m.Forwarder]; s != nil && s.ID() == m.Session {
			s.Send(m.Batch) // lost if the session is over, which the core is told
		}
	}
	for i := range a.out.SourceReplies {
		r := &a.out.SourceReplies[i]
		if s := a.csmas[r.Source]; s != nil && s.ID() == r.Session {
			s.Send(feedback(r))
		}
	}
	for i := range a.out.Explanations {
		x := a.out.Explanations[i]
		a.answers[x.ID] <- x
		delete(a.answers, x.ID)
	}
	counters := a.core.Counters()
	for reason, n := range counters.Refused {
		if more := n - a.counted.Refused[reason]; more > 0 {
			a.base.Refusals.Add(cats.Reason(reason), more)
		}
	}
	a.counted = counters
	return nil
}

// audit keeps a record of what an operator may have to account for.
func (a *App) audit(r *core.Audit) {
	object := string(a.config.Name)
	if !r.Transaction.IsZero() {
		object = r.Transaction.String()
	}
	recorded := true
	refused := strings.HasSuffix(r.Event, "-refused")
	if refused && r.Event != "request-refused" { // requests are counted as the core does
		a.base.Refusals.Inc(r.Reason)
	}
	if refused || r.Event == "attachments-disagree" { // a peer may say such a thing as often as it likes
		recorded = a.base.Audit.RecordFrom(r.Subject, r.Event, r.Subject, object, r.Reason, r.Detail)
	} else {
		a.base.Audit.Record(r.Event, r.Subject, object, r.Reason, r.Detail)
	}
	if recorded {
		a.base.Log.Warn(r.Event, "by", r.Subject, "object", object, "reason", r.Reason.String(), "detail", r.Detail)
	}
}

// refused counts what a peer may not say, and audits it at a bounded rate.
func (a *App) refused(by trust.Identity, event, object string, reason cats.Reason, detail string) {
	a.base.Refusals.Inc(reason)
	if a.base.Audit.RecordFrom(by.String(), event, by.String(), object, reason, detail) {
		a.base.Log.Warn(event, "by", by.String(), "object", object, "reason", reason, "detail", detail)
	}
}

// tellCatalogue logs the catalogue that came into force with the Step.
func (a *App) tellCatalogue() {
	c, generation := a.core.Catalogue()
	if generation == a.generation {
		return
	}
	a.generation = generation
	r := c.Records()
	a.base.Log.Info(fmt.Sprintf("catalogue generation %d is in force", generation),
		"services", len(r.Services), "deployments", len(r.Deployments), "attachments", len(r.Attachments))
}

// feedback is a reply of the core in the form of the channel.
func feedback(r *core.SourceReply) cats.Feedback {
	f := cats.Feedback{Epoch: r.Epoch, Sequence: r.Sequence, Reason: r.Reason, Detail: r.Detail}
	switch r.Kind {
	case core.SourceHello:
		f.Kind = cats.FeedbackHello
	case core.SourceAck:
		f.Kind = cats.FeedbackApplied
	case core.SourceNeedFull:
		f.Kind = cats.FeedbackNeedFull
	case core.SourceRefused:
		f.Kind = cats.FeedbackRefused
	}
	for _, left := range r.Rejected {
		f.RowRefusals = append(f.RowRefusals, cats.RowRefusal{CSID: left.CSID, CSCIID: left.CSCIID, Reason: left.Reason})
	}
	return f
}
