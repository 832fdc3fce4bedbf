package cst

import (
	"errors"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/feed"
)

const ttl = 150 * time.Second

var (
	a = catalogue.Instance{CSID: "S1", CSCIID: "a"}
	b = catalogue.Instance{CSID: "S1", CSCIID: "b"}
)

func record(i catalogue.Instance, gas uint32) cats.Record {
	return cats.Record{CSID: i.CSID, CSCIID: i.CSCIID, Version: "1", Health: cats.Healthy, Reporting: cats.ReportingHealthy,
		Metrics: cats.Metrics{GAS: gas, ComputingTimeMS: 5}}
}

func update(source string, kind cats.UpdateKind, sequence uint64, records ...cats.Record) *cats.MetricUpdate {
	return &cats.MetricUpdate{
		UpdateHeader: cats.UpdateHeader{Source: source, Epoch: 1, Sequence: sequence, Base: sequence - 1, Kind: kind, TTL: ttl},
		Records:      records,
	}
}

func anyone(*cats.Record) error { return nil }

func apply(t *testing.T, table *Table, now cats.Instant, u *cats.MetricUpdate) Result {
	t.Helper()
	r := table.Apply(now, u, anyone)
	if r.Verdict != feed.Apply || len(r.Rejected) > 0 {
		t.Fatalf("verdict %d, %v, rejected %v", r.Verdict, r.Err, r.Rejected)
	}
	return r
}

func TestUpdates(t *testing.T) {
	table := New()
	apply(t, table, 0, update("m1", cats.UpdateFull, 1, record(a, 10), record(b, 20)))

	t.Run("rows carry what was reported, and the generation", func(t *testing.T) {
		if row := table.Row(a); row == nil || row.Metrics.GAS != 10 || row.Source != "m1" || row.Generation != 1 {
			t.Fatalf("row %+v", row)
		}
	})
	t.Run("a DELTA changes its rows only, and the generation grows by one", func(t *testing.T) {
		apply(t, table, 1, update("m1", cats.UpdateDelta, 2, record(b, 0)))
		if table.Generation() != 2 || table.Row(b).Metrics.GAS != 0 || table.Row(b).Generation != 2 || table.Row(a).Generation != 1 {
			t.Fatalf("generation %d, a %+v, b %+v", table.Generation(), table.Row(a), table.Row(b))
		}
	})
	t.Run("the same values again change no generation", func(t *testing.T) {
		apply(t, table, 2, update("m1", cats.UpdateFull, 3, record(a, 10), record(b, 0)))
		if table.Generation() != 2 || table.Row(b).Generation != 2 {
			t.Fatalf("generation %d", table.Generation())
		}
	})
	t.Run("a DELTA on the wrong base changes nothing", func(t *testing.T) {
		u := update("m1", cats.UpdateDelta, 9, record(a, 99))
		if r := table.Apply(3, u, anyone); r.Verdict != feed.NeedFull || r.Position.Sequence != 3 {
			t.Fatalf("%+v", r)
		}
		if table.Row(a).Metrics.GAS != 10 || table.Generation() != 2 {
			t.Fatal("it changed the table")
		}
	})
	t.Run("a repeat changes nothing", func(t *testing.T) {
		if r := table.Apply(4, update("m1", cats.UpdateFull, 3, record(a, 99)), anyone); r.Verdict != feed.Repeated {
			t.Fatalf("%+v", r)
		}
		if table.Row(a).Metrics.GAS != 10 {
			t.Fatal("it changed the table")
		}
	})
	t.Run("WITHDRAW takes its rows back and they are told apart from unknown ones", func(t *testing.T) {
		apply(t, table, 5, update("m1", cats.UpdateWithdraw, 4, record(b, 0)))
		if got := table.Row(b).Validity(5); got != cats.Withdrawn {
			t.Fatalf("validity %s", got)
		}
	})
	t.Run("SM-9.3-1 a FULL replaces every row of its source and of no other", func(t *testing.T) {
		c := catalogue.Instance{CSID: "S2", CSCIID: "c"}
		apply(t, table, 6, update("m2", cats.UpdateFull, 1, record(c, 1)))
		apply(t, table, 7, update("m1", cats.UpdateFull, 5, record(b, 5)))
		if table.Row(a).Validity(7) != cats.Withdrawn || table.Row(b).Validity(7) != cats.Valid || table.Row(c).Validity(7) != cats.Valid {
			t.Fatalf("a %s, b %s, c %s", table.Row(a).Validity(7), table.Row(b).Validity(7), table.Row(c).Validity(7))
		}
	})
	t.Run("SM-8.3-2 the position grows with what was applied", func(t *testing.T) {
		if got := table.Position("m1"); got != (feed.Position{Epoch: 1, Sequence: 5}) {
			t.Fatalf("%+v", got)
		}
	})
}

func TestLifetimes(t *testing.T) {
	t.Run("a valid row, a stale and an expired one are told apart", func(t *testing.T) {
		table := New()
		apply(t, table, 0, update("m1", cats.UpdateFull, 1, record(a, 10)))
		for _, c := range []struct {
			age  time.Duration
			want cats.Validity
		}{{0, cats.Valid}, {ttl - 1, cats.Valid}, {ttl, cats.Stale}, {2*ttl - 1, cats.Stale}, {2 * ttl, cats.Expired}} {
			if got := table.Row(a).Validity(cats.Instant(0).Add(c.age)); got != c.want {
				t.Errorf("after %s: %s, want %s", c.age, got, c.want)
			}
		}
	})
	t.Run("the age that a record had at its C-SMA counts", func(t *testing.T) {
		table := New()
		old := record(a, 10)
		old.Age = ttl - time.Second
		now := cats.Instant(time.Hour)
		apply(t, table, now, update("m1", cats.UpdateFull, 1, old))
		if got := table.Row(a).Age(now); got != old.Age {
			t.Errorf("age %s, want %s", got, old.Age)
		}
		if got := table.Row(a).Validity(now.Add(time.Second)); got != cats.Stale {
			t.Errorf("%s, want STALE", got)
		}
	})
	t.Run("SM-9.2-2 a REFRESH extends lifetimes and changes no value", func(t *testing.T) {
		table := New()
		apply(t, table, 0, update("m1", cats.UpdateFull, 1, record(a, 10)))
		now := cats.Instant(0).Add(ttl)
		apply(t, table, now, update("m1", cats.UpdateRefresh, 2))
		row := table.Row(a)
		if row.Validity(now) != cats.Valid || row.Age(now) != ttl || table.Generation() != 1 {
			t.Errorf("%s, age %s, generation %d", row.Validity(now), row.Age(now), table.Generation())
		}
	})
}

func TestRecordsThatMayNotEnter(t *testing.T) {
	t.Run("an unauthorized record is left out, the rest applied", func(t *testing.T) {
		table := New()
		r := table.Apply(0, update("m1", cats.UpdateFull, 1, record(a, 10), record(b, 20)), func(r *cats.Record) error {
			if r.CSCIID == "b" {
				return cats.ReasonUnauthorized
			}
			return nil
		})
		if len(r.Rejected) != 1 || r.Rejected[0].Instance != b || !errors.Is(r.Rejected[0].Err, cats.ReasonUnauthorized) {
			t.Fatalf("rejected %v", r.Rejected)
		}
		if table.Row(a) == nil || table.Row(b) != nil {
			t.Fatal("want row a and no row b")
		}
	})
	t.Run("a value out of range is left out", func(t *testing.T) {
		table := New()
		wrong := record(a, 1)
		wrong.Metrics.ComputingTimeMS = cats.MaxComputingTimeMS + 1
		if r := table.Apply(0, update("m1", cats.UpdateFull, 1, wrong), anyone); len(r.Rejected) != 1 || !errors.Is(r.Rejected[0].Err, cats.ReasonRange) {
			t.Fatalf("rejected %v", r.Rejected)
		}
	})
	t.Run("a valid report of UNHEALTHY names the instance", func(t *testing.T) {
		table := New()
		sick := record(a, 0)
		sick.Health = cats.Unhealthy
		if r := apply(t, table, 0, update("m1", cats.UpdateFull, 1, sick, record(b, 1))); len(r.Failed) != 1 || r.Failed[0] != a {
			t.Fatalf("failed %v", r.Failed)
		}
	})
}

func TestRetain(t *testing.T) {
	table := New()
	apply(t, table, 0, update("m1", cats.UpdateFull, 1, record(a, 1), record(b, 1)))
	table.Retain(func(i catalogue.Instance) bool { return i == a })
	if table.Row(a) == nil || table.Row(b) != nil || table.Generation() != 2 {
		t.Fatalf("rows %v, generation %d", table.Rows(), table.Generation())
	}
}
