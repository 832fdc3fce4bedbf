package sci

import (
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

var exampleService = Service{
	CSID: "S1", Version: "1", ComputingTimeMS: 5, MaxSlots: 100, CheckInterval: time.Second,
	Resources: []Resource{{Name: "concurrency", Capacity: 200, Reserve: 0.1, Need: 1}},
}

func exampleConfig() Config {
	return Config{
		CSCIID: "198.51.100.11:443", Site: "edge-1", Interval: 5 * time.Second, Degraded: DefaultDegraded, Rules: DefaultRules,
		Services: []Service{exampleService},
	}
}

// rig runs a Reporter on virtual time. Checks are answered at once from alive; a service that is in silent is never
// answered.
type rig struct {
	t       *testing.T
	r       *Reporter
	now     cats.Instant
	next    cats.Instant
	alive   map[cats.CSID]bool
	silent  map[cats.CSID]bool
	probes  int
	reports []cats.SCIReport
	changes []HealthChange
}

func newRig(t *testing.T, c Config) *rig {
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, r: New(c, 1000), now: 1e18, next: 1e18, alive: map[cats.CSID]bool{"S1": true, "S2": true}, silent: map[cats.CSID]bool{}}
}

func (g *rig) step(events Events) {
	var effects Effects
	for {
		g.next = g.r.Step(g.now, &events, &effects)
		if g.next <= g.now {
			g.t.Fatalf("the next deadline, %d, is not after now, %d", g.next, g.now)
		}
		g.reports = append(g.reports, effects.Reports...)
		g.changes = append(g.changes, effects.Changes...)
		g.probes += len(effects.Probes)
		events = Events{}
		for _, p := range effects.Probes {
			if !g.silent[p.CSID] {
				events.Observations = append(events.Observations, Observation{p, g.alive[p.CSID]})
			}
		}
		if len(events.Observations) == 0 {
			return
		}
	}
}

// run lets d pass.
func (g *rig) run(d time.Duration) {
	for end := g.now.Add(d); ; {
		if g.next > end {
			g.now = end
			return
		}
		g.now = max(g.now, g.next)
		g.step(Events{})
	}
}

func (g *rig) take() []cats.SCIReport {
	reports := g.reports
	g.reports = nil
	return reports
}

func (g *rig) one() cats.SCIReport {
	g.t.Helper()
	reports := g.take()
	if len(reports) != 1 {
		g.t.Fatalf("%d reports, want 1: %+v", len(reports), reports)
	}
	return reports[0]
}

func TestReporter(t *testing.T) {
	t.Run("says nothing without a link, everything with it", func(t *testing.T) {
		g := newRig(t, exampleConfig())
		g.step(Events{})
		g.run(20 * time.Second)
		if n := len(g.take()); n != 0 {
			t.Fatalf("%d reports without a link", n)
		}
		g.step(Events{Links: []Link{LinkUp}})
		r := g.one()
		if r.CSCIID != "198.51.100.11:443" || r.Site != "edge-1" || r.Epoch != 1000 || r.Sequence != 1 || !r.Full || r.Interval != 5*time.Second || !r.Timestamp.Equal(g.now.Wall()) {
			t.Errorf("envelope %+v", r)
		}
		s := r.Services[0]
		if s.CSID != "S1" || s.Version != "1" || s.Health != cats.Healthy || s.Healthy != 1 || s.Metrics.GAS != 100 || s.Metrics.ComputingTimeMS != 5 {
			t.Errorf("service %+v", s)
		}
		g.step(Events{Links: []Link{LinkDown}})
		g.run(20 * time.Second)
		if n := len(g.take()); n != 0 {
			t.Fatalf("%d reports after the link went", n)
		}
		g.step(Events{Links: []Link{LinkUp, LinkDown, LinkUp}})
		if r := g.one(); !r.Full || r.Sequence != 2 {
			t.Errorf("after a new link: %+v", r)
		}
	})
	t.Run("reports by the interval and at once on a change", func(t *testing.T) {
		g := newRig(t, exampleConfig())
		g.step(Events{Links: []Link{LinkUp}})
		if s := g.one().Services[0]; s.Health != cats.HealthUnknown || s.Unknown != 1 || s.Metrics.GAS != 0 {
			t.Errorf("before any check: %+v", s)
		}
		g.run(time.Second)
		if r := g.one(); r.Full || r.Services[0].Health != cats.Healthy || r.Services[0].Metrics.GAS != 100 {
			t.Errorf("after the second check: %+v", r)
		}
		g.run(3 * time.Second)
		if n := len(g.take()); n != 0 {
			t.Errorf("%d reports without a change", n)
		}
		g.run(11 * time.Second)
		reports := g.take()
		if len(reports) != 3 {
			t.Errorf("%d reports in 11 seconds with three ends of an interval", len(reports))
		}
		for i, r := range reports {
			if !r.Full || r.Sequence != uint64(3+i) {
				t.Errorf("by the interval: %+v", r)
			}
		}
		g.alive["S1"] = false
		g.run(3 * time.Second)
		if r := g.one(); r.Full || r.Services[0].Health != cats.Unhealthy || r.Services[0].Failing != 1 || r.Services[0].Metrics.GAS != 0 {
			t.Errorf("after three failed checks: %+v", r)
		}
		if last := g.changes[len(g.changes)-1]; last != (HealthChange{"S1", cats.Healthy, cats.Unhealthy}) {
			t.Errorf("last change %+v", last)
		}
		g.alive["S1"] = true
		g.run(2 * time.Second)
		var degraded bool
		for _, r := range g.take() {
			degraded = degraded || r.Services[0].Health == cats.Degraded && r.Services[0].Metrics.GAS == 50 && r.Services[0].Degraded == 1
		}
		if !degraded {
			t.Error("no report of a DEGRADED instance with half its slots")
		}
	})
	t.Run("only what changed is in a report between", func(t *testing.T) {
		c := exampleConfig()
		second := exampleService
		second.CSID = "S2"
		c.Services = append(c.Services, second)
		g := newRig(t, c)
		g.step(Events{Links: []Link{LinkUp}})
		g.run(6 * time.Second)
		g.take()
		g.alive["S2"] = false
		g.run(3 * time.Second)
		if r := g.one(); r.Full || len(r.Services) != 1 || r.Services[0].CSID != "S2" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("a new limit of 0 is reported at once", func(t *testing.T) {
		g := newRig(t, exampleConfig())
		g.step(Events{Links: []Link{LinkUp}})
		g.run(2 * time.Second)
		g.take()
		c := exampleConfig()
		c.Services[0].MaxSlots = 0
		g.step(Events{Config: &c})
		if r := g.one(); r.Services[0].Metrics.GAS != 0 || r.Services[0].Health != cats.Healthy {
			t.Errorf("%+v", r)
		}
	})
	t.Run("a service that is taken out is out of the full report that follows at once", func(t *testing.T) {
		c := exampleConfig()
		second := exampleService
		second.CSID = "S2"
		c.Services = append(c.Services, second)
		g := newRig(t, c)
		g.step(Events{Links: []Link{LinkUp}})
		g.run(2 * time.Second)
		g.take()
		c = exampleConfig()
		g.step(Events{Config: &c})
		if r := g.one(); !r.Full || len(r.Services) != 1 || r.Services[0].Health != cats.Healthy {
			t.Errorf("%+v", r)
		}
	})
	t.Run("one check at a time, and unknown while it hangs", func(t *testing.T) {
		g := newRig(t, exampleConfig())
		g.step(Events{})
		g.run(5 * time.Second)
		g.silent["S1"] = true
		before := g.probes
		g.run(10 * time.Second)
		if n := g.probes - before; n != 1 {
			t.Errorf("%d checks were started while one hung", n)
		}
		if h, _ := g.r.Health("S1"); h != cats.HealthUnknown {
			t.Errorf("health %v", h)
		}
	})
	t.Run("an outcome of another check is ignored", func(t *testing.T) {
		g := newRig(t, exampleConfig())
		g.silent["S1"] = true
		g.step(Events{})
		for range 5 {
			g.step(Events{Observations: []Observation{{Probe{"S1", 99}, true}, {Probe{"S1", 0}, true}, {Probe{"S2", 1}, true}}})
		}
		if h, _ := g.r.Health("S1"); h != cats.HealthUnknown {
			t.Errorf("health %v", h)
		}
	})
}

func TestConfigCheck(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"an instance without a name":  func(c *Config) { c.CSCIID = "" },
		"a site with a slash":         func(c *Config) { c.Site = "a/b" },
		"no interval":                 func(c *Config) { c.Interval = 0 },
		"a weight above one":          func(c *Config) { c.Degraded = 1.5 },
		"no service":                  func(c *Config) { c.Services = nil },
		"a service twice":             func(c *Config) { c.Services = append(c.Services, c.Services[0]) },
		"a service without bound":     func(c *Config) { c.Services[0].MaxSlots, c.Services[0].Resources = NoLimit, nil },
		"only a resource not needed":  func(c *Config) { c.Services[0].MaxSlots, c.Services[0].Resources = NoLimit, []Resource{{Capacity: 1}} },
		"a negative need":             func(c *Config) { c.Services[0].Resources = []Resource{{Capacity: 1, Need: -1}} },
		"no check interval":           func(c *Config) { c.Services[0].CheckInterval = 0 },
		"a computing time of 2 hours": func(c *Config) { c.Services[0].ComputingTimeMS = 7_200_000 },
		"a reputation of 11":          func(c *Config) { c.Services[0].Reputation = cats.Some[uint8](11) },
	} {
		t.Run(name, func(t *testing.T) {
			c := exampleConfig()
			spoil(&c)
			if err := c.Check(); err == nil {
				t.Error("accepted")
			}
		})
	}
}
