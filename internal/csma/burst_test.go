package csma

import (
	"fmt"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

// flap has an instance alternate between slots and none, n times at the pace, and gives the number of its next report.
func (g *rig) flap(agent string, csci cats.CSCIID, sequence uint64, n int, pace time.Duration) uint64 {
	g.t.Helper()
	for i := range n {
		g.accept(report(agent, csci, sequence, "S1", uint32(i%2)*100))
		sequence++
		g.run(pace)
	}
	return sequence
}

// drained gives a rig, settled long ago, whose instance A has no token left and is told to have 100 slots.
func drained(t *testing.T) (g *rig, sequence uint64) {
	t.Helper()
	g = settled(t, testConfig())
	sequence = g.flap("sci-a", "A", 2, 9, 0) // the last for the worse, which leaves one token
	worse := report("sci-a", "A", sequence, "S1", 0)
	worse.Services[0].Health = cats.Unhealthy
	g.accept(worse)
	g.accept(report("sci-a", "A", sequence+1, "S1", 100))
	g.run(burstEvery) // it goes with the token of this second
	sequence += 2
	g.take("cps-1")
	if told := g.peers["cps-1"].rows[key{"A", "S1"}]; told.Metrics.GAS != 100 {
		t.Fatalf("the C-PS has %+v", told)
	}
	if due := g.core.views[0].buckets.ready(g.now, "A", 1); due != g.now.Add(burstEvery) {
		t.Fatalf("A has a token in %v", due.Sub(g.now))
	}
	return g, sequence
}

func TestBurstControl(t *testing.T) {
	t.Run("SM-7.3-3 an SCI causes ten messages at once, and then one a second", func(t *testing.T) {
		g := settled(t, testConfig())
		sequence := g.flap("sci-a", "A", 2, 200, 0)
		if n := len(g.take("cps-1")); n < burstMessages-1 || n > burstMessages {
			t.Errorf("%d messages at once", n)
		}
		const seconds = 60
		g.flap("sci-a", "A", sequence, seconds*50, 20*time.Millisecond)
		changes := 0
		for _, u := range g.take("cps-1") {
			if u.Kind == cats.UpdateDelta {
				changes++
			}
		}
		if changes < seconds-10 || changes > seconds+2 {
			t.Errorf("%d messages in %d s", changes, seconds)
		}
	})
	t.Run("SM-7.3-3 another SCI is not held up, and takes along what waits", func(t *testing.T) {
		g, sequence := drained(t)
		g.accept(report("sci-a", "A", sequence, "S1", 0))
		g.wantKinds("")
		g.accept(report("sci-b", "B", 2, "S1", 0))
		g.wantKinds("DELTA 2")
	})
	t.Run("SM-7.3-3 what is critical waits a second at most, and rows coalesce meanwhile", func(t *testing.T) {
		g, sequence := drained(t)
		g.accept(report("sci-a", "A", sequence, "S1", 0))
		more := report("sci-a", "A", sequence+1, "S1", 0)
		more.Services[0].Health = cats.Unhealthy
		g.run(300 * time.Millisecond)
		g.accept(more)
		g.run(300 * time.Millisecond)
		g.wantKinds("")
		g.run(400 * time.Millisecond)
		g.wantKinds("DELTA 1")
		if r := g.peers["cps-1"].rows[key{"A", "S1"}]; r.Health != cats.Unhealthy || r.Metrics.GAS != 0 {
			t.Errorf("the C-PS has %+v", r)
		}
	})
	t.Run("without a token it is told like a routine row, where that is sooner", func(t *testing.T) {
		g, sequence := drained(t)
		g.core.views[0].routine = g.now.Add(200 * time.Millisecond) // as if the last message were almost 5 s ago
		g.accept(report("sci-a", "A", sequence, "S1", 0))
		g.run(199 * time.Millisecond)
		g.wantKinds("")
		g.run(time.Millisecond)
		g.wantKinds("DELTA 1")
	})
	t.Run("what is over when the token comes is not told, and routine rows keep waiting", func(t *testing.T) {
		g, sequence := drained(t)
		g.accept(report("sci-b", "B", 2, "S1", 50)) // routine
		g.accept(report("sci-a", "A", sequence, "S1", 0))
		g.accept(report("sci-a", "A", sequence+1, "S1", 100))
		g.run(2 * time.Second)
		g.wantKinds("")
		g.run(3 * time.Second)
		g.wantKinds("DELTA 1")
	})
	t.Run("SM-7.3-3 what gets worse is never behind what got better", func(t *testing.T) {
		g := settled(t, testConfig())
		two := func(sequence uint64, first, second uint32) Report {
			r := report("sci-a", "A", sequence, "S1", first)
			r.Services = append(r.Services, r.Services[0])
			r.Services[1].CSID, r.Services[1].Metrics.GAS = "S2", second
			return r
		}
		g.accept(two(2, 100, 0)) // discovers S2
		g.run(20 * time.Second)
		g.accept(two(3, 100, 0)) // again HEALTHY; what it had to say is said
		g.run(20 * time.Second)
		sequence := uint64(4)
		g.accept(two(sequence, 100, 0))
		g.run(5 * time.Second)
		g.take("cps-1")
		for range 4 { // eight tokens
			g.accept(two(sequence+1, 0, 0))
			g.accept(two(sequence+2, 100, 0))
			sequence += 2
		}
		g.accept(two(sequence+1, 0, 0)) // the ninth
		g.wantKinds("DELTA 1, DELTA 1, DELTA 1, DELTA 1, DELTA 1, DELTA 1, DELTA 1, DELTA 1, DELTA 1")
		g.accept(two(sequence+2, 0, 100)) // better: it leaves the last token
		g.wantKinds("")
		worse := two(sequence+3, 0, 100)
		worse.Services[0].Health = cats.Unhealthy
		g.accept(worse)
		g.wantKinds("DELTA 2")
		g.accept(two(sequence+4, 0, 100)) // better, without any token
		g.run(burstEvery)
		g.wantKinds("DELTA 1")
	})
	t.Run("SM-7.3-3 withdrawals are messages too", func(t *testing.T) {
		g, sequence := drained(t)
		none := report("sci-a", "A", sequence, "S1", 100)
		none.Services = nil
		g.accept(none)
		g.wantKinds("")
		g.run(burstEvery)
		g.wantKinds("WITHDRAW 1")
		g.run(g.config.Coalesce)
		g.wantKinds("FULL 1")
	})
	t.Run("SM-7.3-3 services that come and go make few messages", func(t *testing.T) {
		g := settled(t, testConfig())
		const seconds = 60
		for i := range uint64(10 * seconds) {
			r := report("sci-a", "A", 2+i, "S1", 100)
			if i%2 == 0 {
				r.Services = append(r.Services, r.Services[0])
				r.Services[1].CSID = "S2"
			}
			g.accept(r)
			g.run(100 * time.Millisecond)
		}
		if n := len(g.take("cps-1")); n > 4*seconds+2*burstMessages {
			t.Errorf("%d messages in %d s", n, seconds)
		}
	})
	t.Run("a session that begins anew is told everything at once, and it costs nothing", func(t *testing.T) {
		g, sequence := drained(t)
		g.close("cps-1")
		g.accept(report("sci-a", "A", sequence, "S1", 0))
		before := fmt.Sprint(g.core.views[0].buckets)
		g.open("cps-1")
		g.wantKinds("DELTA 1")
		if after := fmt.Sprint(g.core.views[0].buckets); after != before {
			t.Errorf("buckets %s, then %s", before, after)
		}
	})
	t.Run("SCIs that are no longer configured are forgotten", func(t *testing.T) {
		g, _ := drained(t)
		c := testConfig()
		c.Grants = c.Grants[1:]
		g.step(Events{Config: &c})
		if b := g.core.views[0].buckets; len(b) > 1 {
			t.Errorf("buckets %v", b)
		}
	})
}

func TestUrgency(t *testing.T) {
	level := func(n uint8) cats.Optional[uint8] { return cats.Some(n) }
	record := func(h cats.Health, gas uint32, security cats.Optional[uint8]) cats.Record {
		return cats.Record{Version: "1", Health: h, Reporting: cats.ReportingHealthy, Metrics: cats.Metrics{GAS: gas, ComputingTimeMS: 5, SecurityLevel: security}}
	}
	for name, c := range map[string]struct {
		was, is cats.Record
		want    urgency
	}{
		"the same":                          {record(cats.Healthy, 9, level(3)), record(cats.Healthy, 9, level(3)), negligible},
		"no slots any more":                 {record(cats.Healthy, 9, level(3)), record(cats.Healthy, 0, level(3)), worsening},
		"slots again":                       {record(cats.Healthy, 0, level(3)), record(cats.Healthy, 9, level(3)), improving},
		"UNHEALTHY":                         {record(cats.Degraded, 9, level(3)), record(cats.Unhealthy, 9, level(3)), worsening},
		"DEGRADED":                          {record(cats.Healthy, 9, level(3)), record(cats.Degraded, 9, level(3)), worsening},
		"UNKNOWN":                           {record(cats.Degraded, 9, level(3)), record(cats.HealthUnknown, 9, level(3)), worsening},
		"HEALTHY again":                     {record(cats.Degraded, 9, level(3)), record(cats.Healthy, 9, level(3)), improving},
		"less secure":                       {record(cats.Healthy, 9, level(3)), record(cats.Healthy, 9, level(2)), worsening},
		"as secure as nobody knows":         {record(cats.Healthy, 9, level(3)), record(cats.Healthy, 9, cats.Optional[uint8]{}), worsening},
		"more secure":                       {record(cats.Healthy, 9, level(3)), record(cats.Healthy, 9, level(4)), improving},
		"secure at all":                     {record(cats.Healthy, 9, cats.Optional[uint8]{}), record(cats.Healthy, 9, level(0)), improving},
		"slots again, but worse in the end": {record(cats.Healthy, 0, level(3)), record(cats.Degraded, 9, level(3)), worsening},
	} {
		r := &row{version: c.is.Version, health: c.is.Health, reporting: c.is.Reporting, metrics: c.is.Metrics}
		told := &told{record: c.was, current: true}
		if got := told.urgency(r, &DefaultConfig.Thresholds); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
