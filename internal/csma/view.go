package csma

import (
	"maps"
	"math"
	"slices"

	"github.com/margay-net/margay/cats"
)

// view is what one C-PS has been told, and what it has to be told next (C-SMA sections 7.3 and 9).
type view struct {
	cps       string
	open      bool
	sequence  uint64 // of the last update made
	base      uint64 // that the next DELTA, REFRESH or WITHDRAW builds on
	removal   uint64 // of the last update that removed rows; a DELTA cannot repeat it
	unapplied uint64 // sequence of a FULL that was not answered yet; 0: none
	told      map[*row]*told
	queue     []*row // that differ enough from what was told
	withdrawn []cats.Record
	buckets   buckets

	full       cats.Instant // next FULL
	critical   cats.Instant // next update for what must not wait; Never: nothing is critical
	withdrawal cats.Instant // the part of withdrawn in critical
	routine    cats.Instant // earliest next update without anything critical
	refresh    cats.Instant // next REFRESH
}

// told is what a C-PS was last told of one row.
type told struct {
	record   cats.Record
	sequence uint64 // of the update that carried it
	current  bool   // it was not withdrawn since
	repeat   bool   // that update may not have arrived
	queued   bool
	due      cats.Instant // while it is queued: when it must be told; Never: it is not critical
}

// urgency is how much a row differs from what was told.
type urgency uint8

const (
	negligible urgency = iota // waits for the next FULL
	routine                   // above a threshold
	improving                 // critical, for the better
	worsening                 // critical, for the worse
)

func (c *Core) configureViews() {
	views := make([]*view, 0, len(c.config.CPS))
	for _, name := range c.config.CPS {
		i := slices.IndexFunc(c.views, func(v *view) bool { return v.cps == name })
		if i >= 0 {
			v := c.views[i]
			maps.DeleteFunc(v.buckets, func(id cats.CSCIID, _ bucket) bool { return c.cache.instances[id] == nil })
			views = append(views, v)
			continue
		}
		views = append(views, &view{
			cps: name, told: make(map[*row]*told), buckets: make(buckets), critical: cats.Never, withdrawal: cats.Never,
		})
	}
	c.views = views
}

// session takes an event of the session with a C-PS. One of a C-PS that the configuration no longer names is ignored.
func (c *Core) session(now cats.Instant, s Session) {
	i := slices.IndexFunc(c.views, func(v *view) bool { return v.cps == s.CPS })
	if i < 0 {
		return
	}
	v := c.views[i]
	switch s.Kind {
	case SessionOpened:
		c.open(now, v, s.Epoch, s.Sequence)
	case SessionClosed:
		v.close()
	case SessionApplied:
		if s.Epoch == c.epoch && s.Sequence >= v.unapplied {
			v.unapplied = 0
		}
	case SessionRefused:
		v.unapplied = 0
		v.full = min(v.full, now.Add(c.config.MinInterval))
	case SessionNeedFull:
		if v.unapplied == 0 { // else the answer is on its way
			v.full = now
		}
	}
}

// open resynchronizes a C-PS (C-SMA section 9.3): from the sequence it has where it has one of this epoch and no row was
// removed since, with everything otherwise.
func (c *Core) open(now cats.Instant, v *view, epoch, sequence uint64) {
	v.close()
	v.open = true
	v.refresh = now.Add(c.config.Heartbeat / 2)
	if epoch > c.epoch && epoch < math.MaxUint64 {
		c.raise(now, epoch+1)
	}
	if epoch != c.epoch || sequence == 0 || sequence > v.sequence || sequence < v.removal {
		v.full = now
		return
	}
	v.base = sequence
	v.full = now.Add(c.config.Heartbeat)
	for _, l := range []*rowList{&c.cache.fresh, &c.cache.stale} {
		for r := l.front; r != nil; r = r.next {
			t := v.entry(r)
			t.repeat = t.sequence > sequence || !t.current || !same(r, &t.record)
			if t.repeat {
				v.enqueue(r, t, now)
			}
		}
	}
	if len(v.queue) == 0 {
		v.refresh = now
	}
}

// raise takes an epoch above what a C-PS has seen from an earlier start whose store was lost.
func (c *Core) raise(now cats.Instant, epoch uint64) {
	c.epoch = epoch
	c.effects.Epoch = epoch
	for _, v := range c.views {
		v.full = now
	}
}

func (v *view) close() {
	if len(v.withdrawn) > 0 {
		v.removal = math.MaxUint64 // until the next FULL
	}
	v.dequeue()
	v.open, v.unapplied = false, 0
}

func (v *view) entry(r *row) *told {
	t := v.told[r]
	if t == nil {
		t = &told{}
		v.told[r] = t
	}
	return t
}

// enqueue has r told at the time due; Never: with the next routine update.
func (v *view) enqueue(r *row, t *told, due cats.Instant) {
	if !t.queued {
		t.queued, t.due = true, cats.Never
		v.queue = append(v.queue, r)
	}
	t.due = min(t.due, due)
	v.critical = min(v.critical, due)
}

// waiting tells whether there is something to tell.
func (v *view) waiting() bool { return len(v.queue) > 0 || len(v.withdrawn) > 0 }

// sift takes out of the queue what left the cache and what is not worth telling any more, and gives the time at which the
// most urgent of the rest must be told.
func (v *view) sift(limits *Thresholds) (due cats.Instant) {
	due = cats.Never
	v.queue = slices.DeleteFunc(v.queue, func(r *row) bool {
		t := v.told[r]
		if t == nil {
			return true
		}
		switch t.urgency(r, limits) {
		case negligible:
			t.queued = false
			return true
		case routine:
			t.due = cats.Never
		}
		due = min(due, t.due)
		return false
	})
	return due
}

// dequeue forgets what waits to be told.
func (v *view) dequeue() {
	for _, r := range v.queue {
		if t := v.told[r]; t != nil {
			t.queued = false
		}
	}
	v.queue, v.withdrawn, v.critical, v.withdrawal = nil, nil, cats.Never, cats.Never
}

// note takes notice of a changed row. A row that this C-PS never heard of is announced with a FULL, after the coalescing
// time together with others that come until then, and not before its SCI may cause a message.
func (v *view) note(now cats.Instant, r *row, c *Config) {
	if !v.open {
		return
	}
	t := v.told[r]
	if t == nil {
		if due := max(now.Add(c.Coalesce), v.buckets.ready(now, r.csci, forWorsening)); due < v.full {
			v.full = due
			v.buckets.take(now, r.csci, v.sequence+1)
		}
		return
	}
	switch t.urgency(r, &c.Thresholds) {
	case worsening:
		v.enqueue(r, t, v.buckets.ready(now, r.csci, forWorsening))
	case improving:
		v.enqueue(r, t, v.buckets.ready(now, r.csci, forImproving))
	case routine:
		v.enqueue(r, t, cats.Never)
	}
}

// withdraw takes notice that r must not be relied on any more; a FULL settles what is left, after the coalescing time.
func (v *view) withdraw(now cats.Instant, r *row, c *Config) {
	t := v.told[r]
	if t == nil || !t.current {
		return
	}
	t.current = false
	if !v.open {
		v.removal = math.MaxUint64 // until the next FULL
		return
	}
	v.withdrawn = append(v.withdrawn, cats.Record{
		CSID: r.cs, CSCIID: r.csci, Health: cats.HealthUnknown, Reporting: cats.ReportingFailed, ReportEpoch: r.epoch, ReportSequence: r.sequence,
	})
	due := v.buckets.ready(now, r.csci, forWorsening)
	v.withdrawal, v.critical = min(v.withdrawal, due), min(v.critical, due)
	v.full = min(v.full, due.Add(c.Coalesce))
}

// urgency compares r with what was told of it. Of a FAILED row there is nothing to tell: it is withdrawn.
func (t *told) urgency(r *row, limits *Thresholds) urgency {
	was, is := &t.record.Metrics, &r.metrics
	switch {
	case r.reporting == cats.ReportingFailed:
		return negligible
	case t.repeat, t.current && t.worse(r):
		return worsening
	case !t.current, t.record.Health != r.health, (was.GAS == 0) != (is.GAS == 0), was.SecurityLevel != is.SecurityLevel:
		return improving
	case t.record.Reporting != r.reporting, t.record.Version != r.version,
		exceeds(was.GAS, is.GAS, limits.GASPercent), distance(was.GAS, is.GAS) > limits.GASAbsolute,
		exceeds(was.ComputingTimeMS, is.ComputingTimeMS, limits.TimePercent):
		return routine
	}
	return negligible
}

// worse tells whether a decision on what was told would count on what r no longer has.
func (t *told) worse(r *row) bool {
	was, is := &t.record.Metrics, &r.metrics
	return trouble(r.health) > trouble(t.record.Health) || was.GAS > 0 && is.GAS == 0 ||
		was.SecurityLevel.Present && (!is.SecurityLevel.Present || is.SecurityLevel.Value < was.SecurityLevel.Value)
}

// trouble orders health from the best to the worst.
func trouble(h cats.Health) int {
	return slices.Index([]cats.Health{cats.Healthy, cats.Degraded, cats.HealthUnknown, cats.Unhealthy}, h)
}

func distance(a, b uint32) uint64 { return uint64(max(a, b) - min(a, b)) }

// exceeds tells whether b is more than percent away from a.
func exceeds(a, b uint32, percent uint64) bool { return distance(a, b)*100 > uint64(a)*percent }

// same tells whether r says what record said, whichever report it came with.
func same(r *row, record *cats.Record) bool {
	a, b := &r.metrics, &record.Metrics
	return r.health == record.Health && r.reporting == record.Reporting && r.version == record.Version &&
		a.GAS == b.GAS && a.InFlight == b.InFlight && a.ComputingTimeMS == b.ComputingTimeMS &&
		a.Price == b.Price && a.Reputation == b.Reputation && a.SecurityLevel == b.SecurityLevel &&
		a.AcceptedTotal == b.AcceptedTotal && a.FinishedTotal == b.FinishedTotal && maps.Equal(a.Extensions, b.Extensions)
}
