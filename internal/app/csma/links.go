package csma

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/margay-net/margay/cats"
	collect "github.com/margay-net/margay/internal/collect/grpc"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/csma"
	"github.com/margay-net/margay/internal/observe"
)

// collector is the App as the channels of the SCI agents see it.
type collector App

// Opened logs.
func (c *collector) Opened(s *collect.Session) {
	c.base.Log.Info("session of an SCI agent opened", "agent", s.Peer().Name)
}

// Report hands a report to the owner.
func (c *collector) Report(s *collect.Session, r cats.SCIReport) {
	(*App)(c).post(event{from: s, report: r})
}

// Refused audits a report that is malformed or one too many.
func (c *collector) Refused(s *collect.Session, reason cats.Reason, detail string) {
	(*App)(c).refuse(s, "report", reason, detail)
	c.metrics.reports.WithLabelValues(cats.ReportRefused.String()).Inc()
}

// Closed logs. A message that was too large has no other trace.
func (c *collector) Closed(s *collect.Session) {
	if status.Code(s.Cause()) == codes.ResourceExhausted {
		c.Refused(s, cats.ReasonOversize, s.Cause().Error())
	}
	c.base.Log.Info("session of an SCI agent closed", "agent", s.Peer().Name, "why", s.Cause())
}

// advertiser is the App as the channels to the C-PSes see it.
type advertiser App

// Opened waits for the greeting.
func (a *advertiser) Opened(cps string) {
	a.base.Log.Info("session with a C-PS opened", "cps", cps)
}

// Feedback hands on what the core has to know.
func (a *advertiser) Feedback(cps string, f cats.Feedback) {
	e := csma.Session{CPS: cps, Epoch: f.Epoch, Sequence: f.Sequence}
	switch f.Kind {
	case cats.FeedbackHello:
		a.links.set(cps, "")
		e.Kind = csma.SessionOpened
	case cats.FeedbackApplied:
		for _, r := range f.RowRefusals {
			a.base.Refusals.Inc(r.Reason)
			a.base.Log.Warn("row not taken by the C-PS", "cps", cps, "csci_id", r.CSCIID, "cs_id", r.CSID, "reason", r.Reason)
		}
		e.Kind = csma.SessionApplied
	case cats.FeedbackRefused:
		a.base.Log.Error("update refused by the C-PS", "cps", cps, "sequence", f.Sequence, "reason", f.Reason, "detail", f.Detail)
		e.Kind = csma.SessionRefused
	case cats.FeedbackNeedFull, cats.FeedbackQuery: // everything also answers a query for some
		e.Kind = csma.SessionNeedFull
	default:
		a.base.Refusals.Inc(cats.ReasonUnknownType)
		a.base.Audit.Record("feedback-refused", cps, f.Kind.String(), cats.ReasonUnknownType, "this C-SMA applies no policy of a C-PS")
		return
	}
	(*App)(a).post(event{session: &e})
}

// Closed is the local alarm of C-SMA section 10.2, too.
func (a *advertiser) Closed(cps string, err error) {
	a.links.set(cps, err.Error())
	if !errors.Is(err, context.Canceled) { // else the C-SMA stops
		a.base.Log.Warn("no session with a C-PS", "cps", cps, "error", err)
	}
	(*App)(a).post(event{session: &csma.Session{CPS: cps, Kind: csma.SessionClosed}})
}

// links is readiness: the C-SMA listens, and a C-PS hears it.
type links struct {
	listen *observe.Condition
	cps    *observe.Condition

	mutex sync.Mutex        // guards why
	why   map[string]string // there is no session, by C-PS; "": there is one
}

func newLinks(health *observe.Health, peers []config.Peer) *links {
	l := &links{listen: health.Condition("listening"), cps: health.Condition("cps"), why: make(map[string]string, len(peers))}
	for _, p := range peers {
		l.why[string(p.Name)] = "not connected yet"
	}
	return l
}

func (l *links) listening() { l.listen.Holds("") }

func (l *links) set(cps, why string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.why[cps] = why
	var have, lack []string
	for name, why := range l.why {
		if why == "" {
			have = append(have, name)
		} else {
			lack = append(lack, name+": "+why)
		}
	}
	slices.Sort(have)
	slices.Sort(lack)
	if len(have) > 0 {
		l.cps.Holds(strings.Join(have, ", "))
	} else {
		l.cps.Fails("no session with a C-PS: " + strings.Join(lack, "; "))
	}
}

// connected tells whether there is a session with a C-PS.
func (l *links) connected(cps string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.why[cps] == ""
}
