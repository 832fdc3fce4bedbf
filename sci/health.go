package sci

import (
	"time"

	"github.com/margay-net/margay/cats"
)

// Rules are the thresholds of an instance's health. Each counts checks; DefaultRules gives the settled values.
type Rules struct {
	Good    int // good checks in a row: UNKNOWN to HEALTHY, UNHEALTHY to DEGRADED
	Bad     int // failed checks in a row: any state to UNHEALTHY
	Recover int // good checks in a row since DEGRADED began: DEGRADED to HEALTHY
	Silent  int // check intervals without an observation: any state to UNKNOWN
}

// DefaultRules are those of docs/by-reference.md section 6. Where only checks observe an instance, one check is one
// window of observation.
var DefaultRules = Rules{Good: 2, Bad: 3, Recover: 5, Silent: 3}

// Tracker is the health state machine of one instance as far as checks give it. Its zero value with Rules and Interval
// set is an instance that was not observed yet: UNKNOWN.
type Tracker struct {
	Rules    Rules
	Interval time.Duration // between checks

	health    cats.Health
	good, bad int // in a row; good starts anew with each change of state
	lastSeen  cats.Instant
}

// Health gives the current state.
func (t *Tracker) Health() cats.Health { return t.health }

// Observe takes the outcome of one check and tells whether the state changed.
func (t *Tracker) Observe(now cats.Instant, ok bool) bool {
	t.lastSeen = now
	if !ok {
		t.good, t.bad = 0, t.bad+1
		return t.bad >= t.Rules.Bad && t.become(cats.Unhealthy)
	}
	t.good, t.bad = t.good+1, 0
	switch {
	case t.health == cats.HealthUnknown && t.good >= t.Rules.Good:
		return t.become(cats.Healthy)
	case t.health == cats.Unhealthy && t.good >= t.Rules.Good:
		return t.become(cats.Degraded)
	case t.health == cats.Degraded && t.good >= t.Rules.Recover:
		return t.become(cats.Healthy)
	}
	return false
}

// Age makes the state UNKNOWN when nothing was observed for too long, and tells whether it did.
func (t *Tracker) Age(now cats.Instant) bool {
	if now < t.Deadline() {
		return false
	}
	t.bad = 0
	return t.become(cats.HealthUnknown)
}

// Deadline gives when Age has something to do.
func (t *Tracker) Deadline() cats.Instant {
	if t.health == cats.HealthUnknown {
		return cats.Never
	}
	return t.lastSeen.Add(time.Duration(t.Rules.Silent) * t.Interval)
}

func (t *Tracker) become(h cats.Health) bool {
	if t.health == h {
		return false
	}
	t.health, t.good = h, 0
	return true
}
