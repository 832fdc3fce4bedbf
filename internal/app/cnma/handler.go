package cnma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/cnma"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/observe"
)

// handler takes what happens on the sessions; each C-PS's calls come from the goroutine of its client.
type handler App

// Opened numbers a session.
func (h *handler) Opened(cps string) {
	h.views.opened(cps)
	h.base.Log.Info("session opened", "cps", cps)
}

// Feedback hands on what a C-PS said, and tells the operator of what it would not take.
func (h *handler) Feedback(cps string, f cats.Feedback) {
	switch f.Kind {
	case cats.FeedbackApplied:
		h.views.applied(cps)
	case cats.FeedbackRefused:
		h.views.failed(cps, fmt.Sprintf("it refused update %d: %s: %s", f.Sequence, f.Reason, f.Detail))
		h.base.Refusals.Inc(f.Reason)
		h.base.Log.Error("the C-PS refused an update", "cps", cps, "sequence", f.Sequence, "reason", f.Reason.String(), "detail", f.Detail)
	case cats.FeedbackPolicy:
		h.base.Audit.Record("policy-ignored", cps, string(h.config.Name), cats.ReasonPolicy, "a C-NMA takes no policy")
	}
	h.hand(core.SessionEvent{Peer: cps, Session: h.views.session(cps), Feedback: f})
}

// Closed tells that a session is over or could not be opened.
func (h *handler) Closed(cps string, err error) {
	h.views.failed(cps, fmt.Sprint(err))
	if !errors.Is(err, context.Canceled) { // else the C-NMA stops
		h.base.Log.Warn("no session", "cps", cps, "error", err)
	}
	h.hand(core.SessionEvent{Peer: cps, Session: h.views.session(cps), Closed: true})
}

// hand waits until the core takes an event, or takes none any more.
func (h *handler) hand(e core.SessionEvent) {
	select {
	case h.events <- e:
	case <-h.stop:
	}
}

// views is what each C-PS has of the topology, and whether any has it now: the C-NMA is of use, and ready, from then on.
type views struct {
	mutex sync.Mutex // guards all
	ready *observe.Condition
	peers map[string]*view
}

type view struct {
	session uint64 // number of the newest
	current bool   // it applied an update in that session
	why     string // if not
}

func newViews(health *observe.Health, peers []config.Peer) *views {
	v := &views{ready: health.Condition("cps"), peers: map[string]*view{}}
	for _, p := range peers {
		v.peers[string(p.Name)] = &view{why: "no session yet"}
	}
	v.tell()
	return v
}

func (v *views) session(cps string) uint64 {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.peers[cps].session
}

func (v *views) opened(cps string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	*v.peers[cps] = view{session: v.peers[cps].session + 1, why: "it has applied no update yet"}
	v.tell()
}

func (v *views) applied(cps string) { v.set(cps, true, "") }

func (v *views) failed(cps, why string) { v.set(cps, false, why) }

func (v *views) set(cps string, current bool, why string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.peers[cps].current, v.peers[cps].why = current, why
	v.tell()
}

// isCurrent tells whether a C-PS has applied an update in its session of now.
func (v *views) isCurrent(cps string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.peers[cps].current
}

// tell sets the condition; the caller holds the mutex.
func (v *views) tell() {
	var have, lack []string
	for name, p := range v.peers {
		if p.current {
			have = append(have, name)
		} else {
			lack = append(lack, name+": "+p.why)
		}
	}
	slices.Sort(have)
	slices.Sort(lack)
	if len(have) > 0 {
		v.ready.Holds("the topology is at " + strings.Join(have, ", "))
		return
	}
	v.ready.Fails("no C-PS has the topology; " + strings.Join(lack, "; "))
}
