package csma

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

// refused checks that r is refused for the reason, and that nothing of it reaches the cache or the C-PS.
func (g *rig) refused(r Report, reason cats.Reason) {
	g.t.Helper()
	before := g.dump()
	err := g.step(Events{Reports: []Report{r}})[0]
	if !errors.Is(err, reason) {
		g.t.Errorf("%v, want reason %v", err, reason)
	}
	if after := g.dump(); after != before {
		g.t.Errorf("the cache changed from\n%s\nto\n%s", before, after)
	}
}

// dump lists the cache in the order of its reports.
func (g *rig) dump() string {
	var s strings.Builder
	for _, l := range []*rowList{&g.core.cache.fresh, &g.core.cache.stale, &g.core.cache.faded} {
		for r := l.front; r != nil; r = r.next {
			fmt.Fprintf(&s, "%+v\n", r.record(g.now))
		}
	}
	for _, grant := range g.config.Grants {
		i := g.core.cache.instances[grant.CSCIID]
		fmt.Fprintf(&s, "%s last %d.%d\n", grant.CSCIID, i.epoch, i.sequence)
	}
	return s.String()
}

func TestRange(t *testing.T) {
	edit := func(f func(*cats.Metrics)) Report {
		r := report("sci-a", "A", 2, "S1", 100)
		f(&r.Services[0].Metrics)
		return r
	}
	outside := map[string]Report{
		"computing time": edit(func(m *cats.Metrics) { m.ComputingTimeMS = 3_600_001 }),
		"reputation":     edit(func(m *cats.Metrics) { m.Reputation = cats.Some[uint8](11) }),
		"security level": edit(func(m *cats.Metrics) { m.SecurityLevel = cats.Some[uint8](11) }),
		"not a number":   edit(func(m *cats.Metrics) { m.Extensions = map[string]float64{"x": math.NaN()} }),
		"infinity":       edit(func(m *cats.Metrics) { m.Extensions = map[string]float64{"x": math.Inf(-1)} }),
	}
	inside := map[string]Report{
		"all at the top": edit(func(m *cats.Metrics) {
			m.GAS, m.ComputingTimeMS, m.Price = math.MaxUint32, 3_600_000, cats.Some[uint32](math.MaxUint32)
			m.Reputation, m.SecurityLevel = cats.Some[uint8](10), cats.Some[uint8](10)
		}),
		"all at the bottom": edit(func(m *cats.Metrics) {
			m.GAS, m.ComputingTimeMS, m.Price = 0, 0, cats.Some[uint32](0)
			m.Reputation, m.SecurityLevel = cats.Some[uint8](0), cats.Some[uint8](0)
		}),
	}
	for name, r := range outside {
		t.Run("refused: "+name, func(t *testing.T) { settled(t, testConfig()).refused(r, cats.ReasonRange) })
	}
	for name, r := range inside {
		t.Run("accepted: "+name, func(t *testing.T) { settled(t, testConfig()).accept(r) })
	}
	t.Run("an epoch more than 30 s ahead", func(t *testing.T) {
		g := settled(t, testConfig())
		r := report("sci-a", "A", 2, "S1", 100)
		r.Epoch = uint64(g.now.Add(31 * time.Second).Wall().UnixMilli())
		g.refused(r, cats.ReasonRange)
		r.Epoch = uint64(g.now.Add(29 * time.Second).Wall().UnixMilli())
		g.accept(r)
	})
	t.Run("a health that does not exist", func(t *testing.T) {
		r := report("sci-a", "A", 2, "S1", 100)
		r.Services[0].Health = 200
		settled(t, testConfig()).refused(r, cats.ReasonMalformed)
	})
}

func TestSequence(t *testing.T) {
	at := func(epoch, sequence uint64) Report {
		r := report("sci-a", "A", sequence, "S1", 50)
		r.Epoch = epoch
		return r
	}
	for _, test := range []struct {
		name   string
		first  Report
		second Report
		want   cats.Reason
	}{
		{"SM-4.2-3 a duplicate", at(7, 5), at(7, 5), cats.ReasonReplay},
		{"SM-4.2-3 out of order", at(7, 5), at(7, 4), cats.ReasonSequence},
		{"SM-4.2-3 replayed from an earlier start", at(8, 1), at(7, 900), cats.ReasonSequence},
		{"the next", at(7, 5), at(7, 6), cats.ReasonNone},
		{"after a gap", at(7, 5), at(7, 500), cats.ReasonNone},
		{"a new start begins anew", at(7, 5), at(8, 1), cats.ReasonNone},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := settled(t, testConfig())
			g.accept(test.first)
			test.second.Services[0].Metrics.GAS = 77
			if test.want == cats.ReasonNone {
				g.accept(test.second)
			} else {
				g.refused(test.second, test.want)
			}
		})
	}
	t.Run("the order of one instance is not that of another", func(t *testing.T) {
		g := settled(t, testConfig())
		g.accept(at(7, 500))
		g.accept(report("sci-b", "B", 2, "S1", 1))
	})
	t.Run("a refused report does not use up its number", func(t *testing.T) {
		g := settled(t, testConfig())
		r := at(7, 9)
		r.Services[0].Metrics.ComputingTimeMS = math.MaxUint32
		g.refused(r, cats.ReasonRange)
		g.accept(at(7, 2))
	})
	t.Run("the order outlives failed rows", func(t *testing.T) {
		g := settled(t, testConfig())
		g.accept(at(7, 5))
		g.run(time.Minute)
		g.refused(at(7, 5), cats.ReasonReplay)
	})
}

func TestClaims(t *testing.T) {
	foreignService := report("sci-b", "B", 2, "S1", 1)
	foreignService.Services = append(foreignService.Services, cats.ServiceReport{CSID: "S2", Health: cats.Healthy})
	foreignSite := report("sci-a", "A", 2, "S1", 1)
	foreignSite.Site = "edge-2"
	twice := report("sci-a", "A", 2, "S1", 1)
	twice.Services = append(twice.Services, twice.Services[0])
	for _, test := range []struct {
		name   string
		report Report
		want   cats.Reason
	}{
		{"SM-12-1 a service that the instance may not claim", foreignService, cats.ReasonUnauthorized},
		{"SM-12-1 another agent's instance", report("sci-b", "A", 2, "S1", 1), cats.ReasonUnauthorized},
		{"SM-12-1 an instance that nobody was granted", report("sci-a", "C", 2, "S1", 1), cats.ReasonUnauthorized},
		{"SM-12-1 an agent that nobody knows", report("sci-x", "A", 2, "S1", 1), cats.ReasonUnauthorized},
		{"another site", foreignSite, cats.ReasonUnauthorized},
		{"a service twice", twice, cats.ReasonMalformed},
	} {
		t.Run(test.name, func(t *testing.T) { settled(t, testConfig()).refused(test.report, test.want) })
	}
	t.Run("SM-12-1 a grant that is taken back", func(t *testing.T) {
		g := settled(t, testConfig())
		c := testConfig()
		c.Grants = c.Grants[:1]
		g.config = c
		g.step(Events{Config: &c})
		g.wantKinds("WITHDRAW 1")
		g.run(time.Second)
		g.wantKinds("FULL 1")
		g.refused(report("sci-b", "B", 2, "S1", 1), cats.ReasonUnauthorized)
	})
}
