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
	critical  bool   // one of them must not wait
	withdrawn []cats.Record
	full      cats.Instant // next FULL
	routine   cats.Instant // earliest next update without a critical row
	refresh   cats.Instant // next REFRESH
}

// told is what a C-PS was last told of one row.
type told struct {
	record   cats.Record
	sequence uint64 // of the update that carried it
	current  bool   // it was not withdrawn since
	repeat   bool   // that update may not have arrived
	queued   bool
}

// urgency is how much a row differs from what was told.
type urgency uint8

const (
	negligible urgency = iota // waits for the next FULL
	routine                   // above a threshold
	critical                  // to be told at once
)

func (c *Core) configureViews() {
	views := make([]*view, 0, len(c.config.CPS))
	for _, name := range c.config.CPS {
		i := slices.IndexFunc(c.views, func(v *view) bool { return v.cps == name })
		if i >= 0 {
			views = append(views, c.views[i])
			continue
		}
		views = append(views, &view{cps: name, told: make(map[*row]*told)})
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
				v.enqueue(r, t, critical)
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
	v.open, v.withdrawn, v.unapplied = false, nil, 0
}

func (v *view) entry(r *row) *told {
	t := v.told[r]
	if t == nil {
		t = &told{}
		v.told[r] = t
	}
	return t
}

func (v *view) enqueue(r *row, t *told, u urgency) {
	v.critical = v.critical || u == critical
	if !t.queued {
		t.queued = true
		v.queue = append(v.queue, r)
	}
}

// dequeue empties the queue and gives what was in it, without the rows that left the cache meanwhile.
func (v *view) dequeue() []*row {
	rows := v.queue[:0]
	for _, r := range v.queue {
		if t := v.told[r]; t != nil {
			t.queued = false
			rows = append(rows, r)
		}
	}
	v.queue, v.critical = nil, false
	return rows
}

// note takes notice of a changed row. A row that this C-PS never heard of is announced with a FULL at the time due,
// together with others that come until then.
func (v *view) note(due cats.Instant, r *row, limits *Thresholds) {
	if !v.open {
		return
	}
	t := v.told[r]
	if t == nil {
		v.full = min(v.full, due)
		return
	}
	if u := t.urgency(r, limits); u != negligible {
		v.enqueue(r, t, u)
	}
}

// withdraw takes notice that r must not be relied on any more; a FULL at the time due settles what is left.
func (v *view) withdraw(due cats.Instant, r *row) {
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
	v.full = min(v.full, due)
}

// urgency compares r with what was told of it.
func (t *told) urgency(r *row, limits *Thresholds) urgency {
	was, is := &t.record.Metrics, &r.metrics
	switch {
	case t.repeat, !t.current, t.record.Health != r.health, (was.GAS == 0) != (is.GAS == 0), was.SecurityLevel != is.SecurityLevel:
		return critical
	case t.record.Reporting != r.reporting, t.record.Version != r.version,
		exceeds(was.GAS, is.GAS, limits.GASPercent), distance(was.GAS, is.GAS) > limits.GASAbsolute,
		exceeds(was.ComputingTimeMS, is.ComputingTimeMS, limits.TimePercent):
		return routine
	}
	return negligible
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
