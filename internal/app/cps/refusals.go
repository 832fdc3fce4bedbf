package cps

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/cps"
)

// summaryEvery is how often refused flows of one reason may be told at level info.
const summaryEvery = time.Second

// refusalLog tells of refused flows: each at level debug, and for every reason a summary at level info, at once and then
// at most once in summaryEvery.
type refusalLog struct {
	log     *slog.Logger
	reasons map[cats.Reason]*refusalSummary
}

// refusalSummary is what is to be told of one reason.
type refusalSummary struct {
	flows int // since the last line
	last  core.RefusedFlow
	quiet cats.Instant // no line before this
}

func newRefusalLog(log *slog.Logger) refusalLog {
	return refusalLog{log: log, reasons: make(map[cats.Reason]*refusalSummary)}
}

// note takes one refusal.
func (l *refusalLog) note(r *core.RefusedFlow) {
	l.log.Debug("refused a flow", "transaction", r.Transaction.String(), "flow", r.Key.String(), "ingress", r.Ingress,
		"reason", r.Reason.String(), "stage", r.Stage, "detail", r.Detail)
	s := l.reasons[r.Reason]
	if s == nil {
		s = &refusalSummary{}
		l.reasons[r.Reason] = s
	}
	s.flows++
	s.last = *r
}

// tell writes the lines that are due, and gives when the next one is.
func (l *refusalLog) tell(now cats.Instant) (next cats.Instant) {
	next = cats.Never
	for _, reason := range slices.Sorted(maps.Keys(l.reasons)) {
		s := l.reasons[reason]
		switch {
		case s.flows == 0:
		case now < s.quiet:
			next = min(next, s.quiet)
		default:
			l.log.Info(s.String())
			s.flows, s.quiet = 0, now.Add(summaryEvery)
		}
	}
	return next
}

// rest writes what has not been told yet.
func (l *refusalLog) rest() { l.tell(cats.Never) }

// String gives "refused 2 flows: no-candidate at stage health, last: transaction …, flow … at IF-1: …".
func (s *refusalSummary) String() string {
	flows, stage := "flows", ""
	if s.flows == 1 {
		flows = "flow"
	}
	if s.last.Stage != "" {
		stage = " at stage " + s.last.Stage
	}
	return fmt.Sprintf("refused %d %s: %s%s, last: transaction %s, flow %s at %s: %s",
		s.flows, flows, s.last.Reason, stage, s.last.Transaction, s.last.Key, s.last.Ingress, s.last.Detail)
}
