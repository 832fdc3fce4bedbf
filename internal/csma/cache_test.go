package csma

import (
	"fmt"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

func TestAging(t *testing.T) {
	t.Run("STALE after twice the interval", func(t *testing.T) {
		for _, interval := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
			c := testConfig()
			c.Interval = interval
			g := newRig(t, c)
			g.open("cps-1")
			g.accept(report("sci-a", "A", 1, "S1", 100))
			g.run(2*interval - 1)
			if n := g.core.Counts(); n.Healthy != 1 || n.Stale != 0 {
				t.Errorf("interval %v, just before: %+v", interval, n)
			}
			g.run(1)
			if n := g.core.Counts(); n.Healthy != 0 || n.Stale != 1 {
				t.Errorf("interval %v, at the time: %+v", interval, n)
			}
		}
	})
	t.Run("STALE is told and still has its slots, FAILED is withdrawn", func(t *testing.T) {
		g := settled(t, testConfig())
		for i := range uint64(3) { // B goes on
			g.run(4 * time.Second)
			g.accept(report("sci-b", "B", 2+i, "S1", 100))
		}
		g.take("cps-1")
		if r := g.peers["cps-1"].rows[key{"A", "S1"}]; r.Reporting != cats.ReportingStale || r.Metrics.GAS != 100 || r.Health != cats.Healthy {
			t.Errorf("after twice the interval the C-PS has %+v", r)
		}
		g.run(2 * time.Second)
		g.wantKinds("WITHDRAW 1")
		g.run(100 * time.Millisecond)
		g.wantKinds("FULL 1")
		row := g.core.cache.instances["A"].rows["S1"]
		if row.reporting != cats.ReportingFailed || row.health != cats.Unhealthy || row.metrics.GAS != 0 {
			t.Errorf("in the cache: %+v", row.record(g.now))
		}
		if rows := g.peers["cps-1"].rows; len(rows) != 1 {
			t.Errorf("the C-PS has %v", rows)
		}
	})
	t.Run("a valid newer report brings a FAILED row back at once", func(t *testing.T) {
		g := settled(t, testConfig())
		g.run(20 * time.Second)
		g.take("cps-1")
		g.accept(report("sci-a", "A", 2, "S1", 100))
		g.wantKinds("DELTA 1")
		if r := g.peers["cps-1"].rows[key{"A", "S1"}]; r.Reporting != cats.ReportingHealthy || r.Metrics.GAS != 100 {
			t.Errorf("the C-PS has %+v", r)
		}
		last := g.changes[len(g.changes)-1]
		if last.ReportingFrom != cats.ReportingFailed || last.Reporting != cats.ReportingHealthy || last.CSCIID != "A" {
			t.Errorf("last change %+v", last)
		}
	})
	t.Run("quasi-static values outlive reports without them, for ten intervals", func(t *testing.T) {
		g := settled(t, testConfig())
		r := report("sci-a", "A", 2, "S1", 100)
		r.Services[0].Metrics.Price = cats.Some[uint32](3)
		r.Services[0].Metrics.SecurityLevel = cats.Some[uint8](0)
		g.accept(r)
		row := g.core.cache.instances["A"].rows["S1"]
		for i := range uint64(9) {
			g.run(5 * time.Second)
			g.accept(report("sci-a", "A", 3+i, "S1", 100))
			if row.metrics.Price != cats.Some[uint32](3) || row.metrics.SecurityLevel != cats.Some[uint8](0) || row.metrics.Reputation.Present {
				t.Fatalf("after %d reports without them: %+v", i+1, row.metrics)
			}
		}
		g.run(5 * time.Second)
		g.accept(report("sci-a", "A", 12, "S1", 100))
		if row.metrics.Price.Present || row.metrics.SecurityLevel.Present {
			t.Errorf("after ten intervals: %+v", row.metrics)
		}
	})
}

func TestCache(t *testing.T) {
	t.Run("SM-5.1-1 an entry has all that was reported, when, in which report, and for how long it holds", func(t *testing.T) {
		g := settled(t, testConfig())
		r := report("sci-a", "A", 2, "S1", 77)
		r.Services[0].Health = cats.Degraded
		r.Services[0].Metrics = cats.Metrics{
			GAS: 77, InFlight: 3, ComputingTimeMS: 9, Price: cats.Some[uint32](4), Reputation: cats.Some[uint8](5), SecurityLevel: cats.Some[uint8](6),
			AcceptedTotal: cats.Some[uint64](8), FinishedTotal: cats.Some[uint64](7), Extensions: map[string]float64{"x": 1.5},
		}
		g.accept(r)
		updates := g.take("cps-1")
		if len(updates) != 1 || updates[0].TTL != 150*time.Second {
			t.Fatalf("updates %+v", updates)
		}
		want := cats.Record{
			CSCIID: "A", CSID: "S1", Version: "1", Health: cats.Degraded, Reporting: cats.ReportingHealthy,
			Metrics: r.Services[0].Metrics, ReportEpoch: 7, ReportSequence: 2,
		}
		if got := updates[0].Records[0]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if row := g.core.cache.instances["A"].rows["S1"]; row.updated != g.now {
			t.Errorf("updated at %d, now is %d", row.updated, g.now)
		}
	})
	t.Run("a full report removes the services that it leaves out, a partial one does not", func(t *testing.T) {
		g := settled(t, testConfig())
		r := report("sci-a", "A", 2, "S2", 10)
		r.Full = false
		g.accept(r)
		if n := g.core.Counts(); n.Healthy != 3 {
			t.Fatalf("%+v", n)
		}
		g.run(time.Second)
		g.wantKinds("FULL 3")
		g.accept(report("sci-a", "A", 3, "S2", 10))
		g.wantKinds("WITHDRAW 1")
		if n := g.core.Counts(); n.Healthy != 2 || n.Services != 2 {
			t.Errorf("%+v", n)
		}
	})
	t.Run("SM-5.2-4 bounded; the least recently updated row goes, and is withdrawn", func(t *testing.T) {
		c := testConfig()
		c.MaxRows, c.Grants = 3, nil
		for i := range 8 {
			c.Grants = append(c.Grants, Grant{Agent: "sci-a", CSCIID: cats.CSCIID(fmt.Sprint("I", i)), Services: []cats.CSID{"S1"}})
		}
		g := newRig(t, c)
		g.open("cps-1")
		for i := range 3 {
			g.run(time.Second)
			g.accept(report("sci-a", cats.CSCIID(fmt.Sprint("I", i)), 1, "S1", 100))
		}
		g.run(5 * time.Second)
		g.accept(report("sci-a", "I0", 2, "S1", 100)) // I1 is the oldest now
		g.take("cps-1")
		g.accept(report("sci-a", "I3", 1, "S1", 100))
		updates := g.take("cps-1")
		if len(updates) != 1 || updates[0].Kind != cats.UpdateWithdraw || len(updates[0].Records) != 1 || updates[0].Records[0].CSCIID != "I1" {
			t.Fatalf("the C-PS got %+v", updates)
		}
		g.run(time.Second)
		g.wantKinds("FULL 3")
		for i := range uint64(50) {
			g.accept(report("sci-a", cats.CSCIID(fmt.Sprint("I", i%8)), 10+i, "S1", 100))
			g.run(200 * time.Millisecond)
			if n := g.core.cache.length(); n != 3 {
				t.Fatalf("%d rows in a cache of 3", n)
			}
			if n := len(g.peers["cps-1"].rows); n != 3 {
				t.Fatalf("%d rows at the C-PS", n)
			}
		}
	})
	t.Run("withdrawn rows make room first", func(t *testing.T) {
		c := testConfig()
		c.MaxRows = 2
		g := settled(t, c)
		for i := range uint64(4) {
			g.run(4 * time.Second)
			g.accept(report("sci-b", "B", 2+i, "S1", 100))
		}
		g.run(time.Second)
		g.take("cps-1")
		r := report("sci-a", "A", 2, "S2", 10)
		r.Full = false
		g.accept(r) // takes the place of A/S1, which FAILED
		if _, ok := g.core.cache.instances["B"].rows["S1"]; !ok {
			t.Error("a HEALTHY row was evicted while a FAILED one was there")
		}
		g.run(time.Second)
		g.wantKinds("FULL 2")
	})
	t.Run("SM-5.1-2 found by CSCI-ID and by CS-ID, whatever came and went", func(t *testing.T) {
		c := testConfig()
		c.Grants, c.MaxRows = nil, 40
		for i := range 20 {
			c.Grants = append(c.Grants, Grant{Agent: "sci-a", CSCIID: cats.CSCIID(fmt.Sprint("I", i)), Services: []cats.CSID{"S0", "S1", "S2"}})
		}
		g := newRig(t, c)
		seed := uint32(1)
		next := func(n uint32) uint32 { seed = seed*1664525 + 1013904223; return seed >> 8 % n }
		for i := range uint64(2000) {
			r := report("sci-a", cats.CSCIID(fmt.Sprint("I", next(1<<20)%20)), 10+i, cats.CSID(fmt.Sprint("S", next(1<<20)%3)), 1+uint32(i))
			r.Full = i%3 == 0
			g.accept(r)
			g.run(time.Duration(next(1<<20)%1000) * time.Millisecond)
			checkIndex(t, &g.core.cache)
			if i%97 == 0 {
				g.run(11 * time.Second)
			}
		}
	})
}

// checkIndex compares the two ways to look rows up with the lists that hold them.
func checkIndex(t *testing.T, c *cache) {
	t.Helper()
	listed, byInstance, byService := 0, 0, 0
	for state, l := range map[cats.ReportingState]*rowList{cats.ReportingHealthy: &c.fresh, cats.ReportingStale: &c.stale, cats.ReportingFailed: &c.faded} {
		n := 0
		for r := l.front; r != nil; r = r.next {
			n++
			if r.reporting != state || c.instances[r.csci].rows[r.cs] != r {
				t.Fatalf("%s/%s in the list of %v: %v", r.csci, r.cs, state, r.reporting)
			}
			if r.next != nil && r.next.updated < r.updated {
				t.Fatalf("the list of %v is out of order", state)
			}
		}
		if n != l.length {
			t.Fatalf("the list of %v has %d rows and says %d", state, n, l.length)
		}
		listed += n
	}
	for _, i := range c.instances {
		byInstance += len(i.rows)
	}
	for id, rows := range c.services {
		for _, r := range rows {
			if r.cs != id || r.list == nil {
				t.Fatalf("%s/%s in the index of %s", r.csci, r.cs, id)
			}
		}
		byService += len(rows)
	}
	if listed != byInstance || listed != byService {
		t.Fatalf("%d rows listed, %d by CSCI-ID, %d by CS-ID", listed, byInstance, byService)
	}
}
