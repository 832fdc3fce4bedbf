package csma

import (
	"slices"

	"github.com/margay-net/margay/cats"
)

// row is one entry of the cache: one service at one contact instance (C-SMA section 5.1).
type row struct {
	csci      cats.CSCIID
	cs        cats.CSID
	version   string
	health    cats.Health
	reporting cats.ReportingState
	metrics   cats.Metrics
	epoch     uint64 // of the report that the values come from
	sequence  uint64
	updated   cats.Instant // when that report came

	// When the quasi-static values were last in a report.
	priceAt, reputationAt, securityAt, extensionsAt cats.Instant

	list       *rowList
	prev, next *row
}

// rowList is an intrusive list of rows, least recently updated first.
type rowList struct {
	front, back *row
	length      int
}

func (l *rowList) append(r *row) {
	r.list, r.prev, r.next = l, l.back, nil
	if l.back != nil {
		l.back.next = r
	} else {
		l.front = r
	}
	l.back = r
	l.length++
}

func (r *row) unlink() {
	l := r.list
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.front = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		l.back = r.prev
	}
	r.list, r.prev, r.next = nil, nil, nil
	l.length--
}

// instance is the hard state of one contact instance, and the order of its reports, which outlives its rows.
type instance struct {
	agent           string
	services        []cats.CSID // that it may report on
	epoch, sequence uint64      // of the last report accepted
	rows            map[cats.CSID]*row
}

// cache holds the rows. A row is in one of three lists by its reporting state; since every row of a list has the same
// lifetime, the lists are at once the timers and the order of eviction.
type cache struct {
	instances           map[cats.CSCIID]*instance // look-up by CSCI-ID
	services            map[cats.CSID][]*row      // index by CS-ID
	fresh, stale, faded rowList                   // HEALTHY, STALE, FAILED
}

func (c *cache) length() int { return c.fresh.length + c.stale.length + c.faded.length }

// oldest gives the row that has to make room: withdrawn rows first, then the least recently updated.
func (c *cache) oldest() *row {
	for _, l := range []*rowList{&c.faded, &c.stale, &c.fresh} {
		if l.front != nil {
			return l.front
		}
	}
	return nil
}

func (c *cache) insert(r *row) {
	c.instances[r.csci].rows[r.cs] = r
	c.services[r.cs] = append(c.services[r.cs], r)
	c.fresh.append(r)
}

func (c *cache) remove(r *row) {
	if i := c.instances[r.csci]; i != nil {
		delete(i.rows, r.cs)
	}
	same := c.services[r.cs]
	i := slices.Index(same, r)
	same[i] = same[len(same)-1]
	same[len(same)-1] = nil
	if same = same[:len(same)-1]; len(same) == 0 {
		delete(c.services, r.cs)
	} else {
		c.services[r.cs] = same
	}
	r.unlink()
}

// move puts r at the end of the list of a reporting state.
func (c *cache) move(r *row, state cats.ReportingState) {
	r.unlink()
	r.reporting = state
	switch state {
	case cats.ReportingStale:
		c.stale.append(r)
	case cats.ReportingFailed:
		c.faded.append(r)
	default:
		c.fresh.append(r)
	}
}

// take writes a report's values into r. A quasi-static value that the report leaves out stays until it is too old.
func (r *row) take(now cats.Instant, report *cats.SCIReport, s *cats.ServiceReport, oldest cats.Instant) {
	old := r.metrics
	r.version, r.health, r.metrics = s.Version, s.Health, s.Metrics
	r.epoch, r.sequence, r.updated = report.Epoch, report.Sequence, now
	keep(&r.metrics.Price, old.Price, &r.priceAt, now, oldest)
	keep(&r.metrics.Reputation, old.Reputation, &r.reputationAt, now, oldest)
	keep(&r.metrics.SecurityLevel, old.SecurityLevel, &r.securityAt, now, oldest)
	if len(r.metrics.Extensions) > 0 {
		r.extensionsAt = now
	} else if r.extensionsAt > oldest {
		r.metrics.Extensions = old.Extensions
	}
}

func keep[T any](current *cats.Optional[T], old cats.Optional[T], at *cats.Instant, now, oldest cats.Instant) {
	if current.Present {
		*at = now
	} else if *at > oldest {
		*current = old
	}
}

// record gives r as it goes to a C-PS.
func (r *row) record(now cats.Instant) cats.Record {
	return cats.Record{
		CSID: r.cs, CSCIID: r.csci, Version: r.version, Health: r.health, Reporting: r.reporting, Metrics: r.metrics,
		ReportEpoch: r.epoch, ReportSequence: r.sequence, Age: now.Sub(r.updated),
	}
}
