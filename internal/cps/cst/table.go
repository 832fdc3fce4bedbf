// Package cst is the Computing Service Table: the service-oriented metrics of every instance as its C-SMA last
// advertised them, in soft state (CP section 5, Table 1; C-SMA section 9). Ages run on the receiver's monotonic clock.
package cst

import (
	"maps"
	"slices"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/feed"
)

// Row is what the table has of one service at one instance.
type Row struct {
	Instance       catalogue.Instance
	Version        string
	Health         cats.Health
	Reporting      cats.ReportingState
	Warned         bool
	Metrics        cats.Metrics
	ReportEpoch    uint64
	ReportSequence uint64

	Source     string        // the C-SMA
	Position   feed.Position // of the update that last touched the row
	Generation uint64        // of the table when the content last changed
	Reported   cats.Instant  // when the C-SMA received the values from the instance
	Since      cats.Instant  // start of the lifetime: Reported, or a later REFRESH
	TTL        time.Duration
	Withdrawn  bool
}

// Validity gives the soft state: VALID within the ttl, STALE within as much again, then EXPIRED; WITHDRAWN if its
// source took it back.
func (r *Row) Validity(now cats.Instant) cats.Validity {
	age := now.Sub(r.Since)
	switch {
	case r.Withdrawn:
		return cats.Withdrawn
	case age < r.TTL:
		return cats.Valid
	case age < 2*r.TTL:
		return cats.Stale
	}
	return cats.Expired
}

// Age gives the time since the C-SMA received the values from the instance.
func (r *Row) Age(now cats.Instant) time.Duration { return now.Sub(r.Reported) }

// sameContent tells whether two rows say the same, their times aside.
func (r *Row) sameContent(o *Row) bool {
	a, b := r.Metrics, o.Metrics
	return r.Version == o.Version && r.Health == o.Health && r.Reporting == o.Reporting && r.Warned == o.Warned &&
		r.Source == o.Source && r.Withdrawn == o.Withdrawn &&
		a.GAS == b.GAS && a.InFlight == b.InFlight && a.ComputingTimeMS == b.ComputingTimeMS && a.Price == b.Price &&
		a.Reputation == b.Reputation && a.SecurityLevel == b.SecurityLevel && a.AcceptedTotal == b.AcceptedTotal &&
		a.FinishedTotal == b.FinishedTotal && maps.Equal(a.Extensions, b.Extensions)
}

// Table holds the rows of all sources.
type Table struct {
	rows       map[catalogue.Instance]*Row
	positions  map[string]feed.Position
	generation uint64
}

// New gives an empty table.
func New() *Table {
	return &Table{rows: make(map[catalogue.Instance]*Row), positions: make(map[string]feed.Position)}
}

// Generation grows by one with each update that changes the content of any row.
func (t *Table) Generation() uint64 { return t.generation }

// Position gives the last applied update of a source; zero if there is none.
func (t *Table) Position(source string) feed.Position { return t.positions[source] }

// Row gives the row of an instance, or nil. It must not be changed or kept.
func (t *Table) Row(i catalogue.Instance) *Row { return t.rows[i] }

// Rows gives all rows by CS-ID, then CSCI-ID.
func (t *Table) Rows() []*Row {
	return slices.SortedFunc(maps.Values(t.rows), func(a, b *Row) int { return a.Instance.Compare(b.Instance) })
}

// Result is what became of an update.
type Result struct {
	Verdict  feed.Verdict
	Position feed.Position // last applied of the source, afterwards
	Err      error         // with feed.Refuse: why
	Rejected []Rejection   // records of an applied update that were left out
	Failed   []catalogue.Instance
}

// Rejection is a record that was left out, and why; Err wraps a cats.Reason.
type Rejection struct {
	Instance catalogue.Instance
	Err      error
}

// Apply takes an update of an authenticated source in. Records that admit or the registered ranges refuse are left out
// and named in the result, with the rest applied: one row of a site must not silence the others. Result.Failed names
// the instances that a valid report calls UNHEALTHY.
func (t *Table) Apply(now cats.Instant, u *cats.MetricUpdate, admit func(*cats.Record) error) Result {
	position := t.positions[u.Source]
	verdict, err := position.Judge(&u.UpdateHeader)
	if verdict != feed.Apply {
		return Result{Verdict: verdict, Position: position, Err: err}
	}
	position = feed.Next(&u.UpdateHeader)
	t.positions[u.Source] = position
	result := Result{Position: position}

	changed := false
	generation := t.generation + 1
	named := make(map[catalogue.Instance]bool, len(u.Records))
	for i := range u.Records {
		record := &u.Records[i]
		instance := catalogue.Instance{CSID: record.CSID, CSCIID: record.CSCIID}
		if err := check(record, admit); err != nil {
			result.Rejected = append(result.Rejected, Rejection{Instance: instance, Err: err})
			continue
		}
		named[instance] = true
		switch u.Kind {
		case cats.UpdateFull, cats.UpdateDelta:
			changed = t.put(rowOf(now, u, record, instance), generation) || changed
			if record.Health == cats.Unhealthy {
				result.Failed = append(result.Failed, instance)
			}
		case cats.UpdateWithdraw:
			changed = t.withdraw(instance, u.Source, position, generation) || changed
		}
	}
	switch u.Kind {
	case cats.UpdateFull:
		for instance := range t.rows {
			if !named[instance] {
				changed = t.withdraw(instance, u.Source, position, generation) || changed
			}
		}
	case cats.UpdateRefresh:
		t.refresh(now, u)
	}
	if changed {
		t.generation = generation
	}
	return result
}

func check(record *cats.Record, admit func(*cats.Record) error) error {
	if err := admit(record); err != nil {
		return err
	}
	return record.Metrics.CheckRange()
}

func rowOf(now cats.Instant, u *cats.MetricUpdate, record *cats.Record, instance catalogue.Instance) *Row {
	reported := now.Add(-max(record.Age, 0))
	return &Row{
		Instance: instance, Version: record.Version, Health: record.Health, Reporting: record.Reporting,
		Warned: record.Warned, Metrics: record.Metrics, ReportEpoch: record.ReportEpoch,
		ReportSequence: record.ReportSequence, Source: u.Source, Position: feed.Next(&u.UpdateHeader),
		Reported: reported, Since: reported, TTL: u.TTL,
	}
}

// put replaces a row and tells whether its content changed.
func (t *Table) put(row *Row, generation uint64) bool {
	old := t.rows[row.Instance]
	t.rows[row.Instance] = row
	if old != nil && old.sameContent(row) {
		row.Generation = old.Generation
		return false
	}
	row.Generation = generation
	return true
}

// withdraw marks a row of the source as taken back; the mark stays, so that explain can tell it from never reported.
func (t *Table) withdraw(instance catalogue.Instance, source string, position feed.Position, generation uint64) bool {
	row := t.rows[instance]
	if row == nil || row.Source != source || row.Withdrawn {
		return false
	}
	row.Withdrawn, row.Position, row.Generation = true, position, generation
	return true
}

// refresh starts the lifetime of the source's rows anew; their values stay as old as they are.
func (t *Table) refresh(now cats.Instant, u *cats.MetricUpdate) {
	for _, row := range t.rows {
		if row.Source == u.Source && !row.Withdrawn {
			row.Since, row.TTL, row.Position = now, u.TTL, feed.Next(&u.UpdateHeader)
		}
	}
}

// Retain drops the rows that keep refuses, after the catalogue has changed.
func (t *Table) Retain(keep func(catalogue.Instance) bool) {
	before := len(t.rows)
	maps.DeleteFunc(t.rows, func(i catalogue.Instance, _ *Row) bool { return !keep(i) })
	if len(t.rows) != before {
		t.generation++
	}
}
