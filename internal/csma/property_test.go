package csma

import (
	"fmt"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"pgregory.net/rapid"
)

// TestTheCPSIsNeverMisled runs random reports, silences, lost sessions and restarted C-PSes. While a session works, the
// C-PS never has a row that FAILED, nor slots or health of a row that lost them, but for a second where the SCI has used up
// its tokens; and after a while it has what the cache has, within the thresholds and the minimum interval.
func TestTheCPSIsNeverMisled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := testConfig()
		c.MaxRows = rapid.SampledFrom([]int{2, 3, 100}).Draw(rt, "rows")
		g := newRig(t, c)
		g.open("cps-1")
		sequence := uint64(0)
		pace := rapid.SampledFrom([]int{20, 500}).Draw(rt, "pace")
		wrong := map[key]cats.Instant{}
		for range rapid.SampledFrom([]int{5, 30, 120}).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") { // small numbers come most
			case 9:
				g.lose("cps-1")
			case 8:
				g.close("cps-1")
				g.cut["cps-1"] = true
			case 7:
				if rapid.IntRange(0, 3).Draw(rt, "restarted without its state") == 0 {
					g.peers["cps-1"] = &peer{rows: map[key]cats.Record{}}
				}
				g.close("cps-1")
				g.open("cps-1")
			case 6:
				g.run(time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds")) * time.Second)
			default:
				sequence++
				r := report("sci-a", "A", sequence, "S1", 0)
				if rapid.Bool().Draw(rt, "B") {
					r = report("sci-b", "B", sequence, "S1", 0)
				}
				r.Services[0].Metrics.GAS = uint32(rapid.SampledFrom([]int{0, 1, 100, 105, 200}).Draw(rt, "gas"))
				r.Services[0].Health = cats.Health(rapid.IntRange(0, 3).Draw(rt, "health"))
				r.Full = rapid.Bool().Draw(rt, "full")
				if r.CSCIID == "A" {
					r.Services[0].CSID = rapid.SampledFrom([]cats.CSID{"S1", "S2"}).Draw(rt, "service")
				}
				g.accept(r)
				g.run(time.Duration(rapid.IntRange(0, pace).Draw(rt, "ms")) * time.Millisecond)
			}
			if !g.cut["cps-1"] && g.core.settled {
				g.checkCritical(rt, wrong)
			} else {
				clear(wrong)
			}
		}
		g.close("cps-1")
		g.open("cps-1")
		g.run(c.Interval + c.MinInterval)
		g.checkCritical(rt, map[key]cats.Instant{})
		g.checkEqual(rt)
	})
}

// checkCritical compares what is critical; wrong is since when the C-PS has rows wrong, which is kept from call to call.
func (g *rig) checkCritical(t *rapid.T, wrong map[key]cats.Instant) {
	for k, told := range g.peers["cps-1"].rows {
		r := g.core.cache.instances[k.csci].rows[k.cs]
		why := ""
		switch {
		case r == nil:
			why = "it left the cache"
		case r.reporting == cats.ReportingFailed:
			why = "it FAILED"
		case r.health != told.Health, (r.metrics.GAS == 0) != (told.Metrics.GAS == 0):
			why = fmt.Sprintf("it is %v with %d slots", r.health, r.metrics.GAS)
		}
		since, was := wrong[k]
		switch {
		case why == "":
			delete(wrong, k)
		case was && g.now > since.Add(burstEvery):
			t.Fatalf("the C-PS has %v as %v with %d slots for more than a second, though %s", k, told.Health, told.Metrics.GAS, why)
		case g.core.views[0].buckets.ready(g.now, k.csci, forImproving) <= g.now:
			t.Fatalf("the C-PS has %v as %v with %d slots, though %s, and %s has tokens", k, told.Health, told.Metrics.GAS, why, k.csci)
		case !was:
			wrong[k] = g.now
		}
	}
}

func (g *rig) checkEqual(t *rapid.T) {
	if have, want := len(g.peers["cps-1"].rows), g.core.cache.fresh.length+g.core.cache.stale.length; have != want {
		t.Fatalf("the C-PS has %d rows, the cache %d", have, want)
	}
	for k, record := range g.peers["cps-1"].rows {
		r := g.core.cache.instances[k.csci].rows[k.cs]
		v := g.core.views[0]
		if u := (&told{record: record, current: true}).urgency(r, &g.config.Thresholds); u == routine && v.told[r].queued && g.now < v.routine {
			continue // waits for the minimum interval after another update
		} else if u != negligible {
			t.Fatalf("%v differs by urgency %d: the C-PS has %+v, it is %+v", k, u, record, r.record(g.now))
		}
	}
}
