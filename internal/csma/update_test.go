package csma

import (
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

func TestTriggers(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*cats.ServiceReport)
		want string // at once
		then string // within the minimum interval
	}{
		{"the same again", func(*cats.ServiceReport) {}, "", ""},
		{"GAS to 0", func(s *cats.ServiceReport) { s.Metrics.GAS = 0 }, "DELTA 1", ""},
		{"SM-7.3-1 health", func(s *cats.ServiceReport) { s.Health = cats.Degraded }, "DELTA 1", ""},
		{"SM-7.3-1 security level", func(s *cats.ServiceReport) { s.Metrics.SecurityLevel = cats.Some[uint8](3) }, "DELTA 1", ""},
		{"SM-7.3-1 GAS by 10 %", func(s *cats.ServiceReport) { s.Metrics.GAS = 90 }, "", ""},
		{"SM-7.3-1 GAS by more than 10 %", func(s *cats.ServiceReport) { s.Metrics.GAS = 89 }, "", "DELTA 1"},
		{"SM-7.3-1 GAS up by more than 10 %", func(s *cats.ServiceReport) { s.Metrics.GAS = 111 }, "", "DELTA 1"},
		{"SM-7.3-1 computing time by 20 %", func(s *cats.ServiceReport) { s.Metrics.ComputingTimeMS = 6 }, "", ""},
		{"SM-7.3-1 computing time by more than 20 %", func(s *cats.ServiceReport) { s.Metrics.ComputingTimeMS = 7 }, "", "DELTA 1"},
		{"version", func(s *cats.ServiceReport) { s.Version = "2" }, "", "DELTA 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := settled(t, testConfig()) // the FULL was less than the minimum interval ago
			r := report("sci-a", "A", 2, "S1", 100)
			test.edit(&r.Services[0])
			g.accept(r)
			g.wantKinds(test.want)
			g.run(4200 * time.Millisecond)
			g.wantKinds(test.then)
		})
	}
	t.Run("SM-7.3-1 GAS by more than 50 where that is less than 10 %", func(t *testing.T) {
		g := settled(t, testConfig())
		g.accept(report("sci-a", "A", 2, "S1", 1000))
		g.run(6 * time.Second)
		g.take("cps-1")
		g.accept(report("sci-b", "B", 2, "S1", 100))
		g.accept(report("sci-a", "A", 3, "S1", 1050))
		g.run(1 * time.Second)
		g.wantKinds("")
		g.accept(report("sci-a", "A", 4, "S1", 1051))
		g.run(3 * time.Second)
		g.wantKinds("DELTA 1")
	})
	t.Run("SM-7.3-1 other thresholds by configuration", func(t *testing.T) {
		c := testConfig()
		c.Thresholds = Thresholds{GASPercent: 50, GASAbsolute: 80, TimePercent: 100}
		g := settled(t, c)
		step := func(sequence uint64, gas, ms uint32, want string) {
			t.Helper()
			r := report("sci-a", "A", sequence, "S1", gas)
			r.Services[0].Metrics.ComputingTimeMS = ms
			g.accept(r)
			g.accept(report("sci-b", "B", sequence, "S1", 100))
			g.run(6 * time.Second)
			g.wantKinds(want)
		}
		step(2, 50, 5, "")
		step(3, 49, 5, "DELTA 1")
		step(4, 49, 10, "")
		step(5, 49, 11, "DELTA 1")
	})
	t.Run("GAS back from 0", func(t *testing.T) {
		g := settled(t, testConfig())
		g.accept(report("sci-a", "A", 2, "S1", 0))
		g.accept(report("sci-a", "A", 3, "S1", 1))
		g.wantKinds("DELTA 1, DELTA 1")
		if r := g.peers["cps-1"].rows[key{"A", "S1"}]; r.Metrics.GAS != 1 || r.ReportSequence != 3 || r.ReportEpoch != 7 {
			t.Errorf("the C-PS has %+v", r)
		}
	})
	t.Run("what is over when the minimum interval is, is not told", func(t *testing.T) {
		g := settled(t, testConfig())
		g.accept(report("sci-a", "A", 2, "S1", 10))
		g.accept(report("sci-a", "A", 3, "S1", 100))
		g.run(6 * time.Second)
		g.wantKinds("")
	})
	t.Run("routine rows travel with a critical one, and critical ones in one message", func(t *testing.T) {
		g := settled(t, testConfig())
		g.accept(report("sci-a", "A", 2, "S1", 10))
		g.wantKinds("")
		g.accept(report("sci-b", "B", 2, "S1", 0))
		g.wantKinds("DELTA 2")
		g.step(Events{Reports: []Report{report("sci-a", "A", 3, "S1", 0), report("sci-b", "B", 3, "S1", 9)}})
		g.wantKinds("DELTA 2")
	})
	t.Run("routine updates at most one each minimum interval", func(t *testing.T) {
		g := settled(t, testConfig())
		gas := uint32(1)
		for i := range uint64(200) { // 20 s
			gas = 201 - gas // 1, 200, 1 …
			g.accept(report("sci-a", "A", 2+i, "S1", gas+1))
			g.accept(report("sci-b", "B", 2+i, "S1", 100))
			g.run(100 * time.Millisecond)
		}
		deltas := 0
		for _, u := range g.take("cps-1") {
			if u.Kind == cats.UpdateDelta && len(u.Records) == 1 && u.Records[0].CSCIID == "A" {
				deltas++
			}
		}
		if deltas < 3 || deltas > 5 {
			t.Errorf("%d routine updates in 20 s", deltas)
		}
	})
	t.Run("discoveries are coalesced into one FULL, beside the minimum interval", func(t *testing.T) {
		g := newRig(t, testConfig())
		g.open("cps-1")
		g.accept(report("sci-b", "B", 1, "S1", 100))
		g.run(6 * time.Second)
		g.take("cps-1")
		g.accept(report("sci-b", "B", 2, "S1", 0))
		g.wantKinds("DELTA 1")
		two := report("sci-a", "A", 1, "S1", 100)
		two.Full = false
		g.accept(two)
		g.run(50 * time.Millisecond)
		g.wantKinds("")
		two = report("sci-a", "A", 2, "S2", 100)
		two.Full = false
		g.accept(two)
		g.run(50 * time.Millisecond)
		g.wantKinds("FULL 3")
	})
	t.Run("heartbeat and refresh", func(t *testing.T) {
		g := settled(t, testConfig())
		var fulls, refreshes int
		for i := range uint64(150) { // 300 s
			g.run(2 * time.Second)
			g.accept(report("sci-a", "A", 2+i, "S1", 100))
			g.accept(report("sci-b", "B", 2+i, "S1", 100))
			for _, u := range g.take("cps-1") {
				switch u.Kind {
				case cats.UpdateFull:
					fulls++
				case cats.UpdateRefresh:
					refreshes++
				default:
					t.Errorf("unexpected %v", u.Kind)
				}
				if u.TTL != 150*time.Second || u.Source != "csma-1" || u.Site != "edge-1" || u.Epoch != 100 {
					t.Errorf("header %+v", u.UpdateHeader)
				}
			}
		}
		if fulls < 4 || fulls > 5 || refreshes < 4 || refreshes > 6 {
			t.Errorf("%d heartbeats and %d refreshes in 5 minutes", fulls, refreshes)
		}
	})
	t.Run("a record says how old it is", func(t *testing.T) {
		g := settled(t, testConfig())
		g.run(3 * time.Second)
		g.step(Events{Sessions: []Session{{CPS: "cps-1", Kind: SessionNeedFull}}})
		if r := g.peers["cps-1"].rows[key{"A", "S1"}]; r.Age != 4*time.Second {
			t.Errorf("age %v", r.Age)
		}
	})
}

func TestSynchronization(t *testing.T) {
	t.Run("a restarted C-SMA hears every instance before its first FULL", func(t *testing.T) {
		g := newRig(t, testConfig())
		g.peers["cps-1"].rows[key{"A", "S1"}] = cats.Record{}
		g.peers["cps-1"].epoch, g.peers["cps-1"].sequence = 50, 9
		g.open("cps-1")
		g.accept(report("sci-a", "A", 1, "S1", 100))
		g.run(time.Second)
		g.wantKinds("")
		g.accept(report("sci-b", "B", 1, "S1", 100))
		g.wantKinds("FULL 2")
	})
	t.Run("or waits for one interval", func(t *testing.T) {
		g := newRig(t, testConfig())
		g.open("cps-1")
		g.run(5*time.Second - 1)
		g.wantKinds("")
		g.run(1)
		g.wantKinds("FULL 0")
	})
	t.Run("SM-9.3-1 incremental where the C-PS kept what it had", func(t *testing.T) {
		g := settled(t, testConfig())
		g.close("cps-1")
		g.run(time.Second)
		g.accept(report("sci-a", "A", 2, "S1", 99)) // below every threshold
		g.accept(report("sci-b", "B", 2, "S1", 100))
		g.open("cps-1")
		g.wantKinds("DELTA 1")
		if r := g.peers["cps-1"].rows[key{"A", "S1"}]; r.Metrics.GAS != 99 {
			t.Errorf("the C-PS has %+v", r)
		}
	})
	t.Run("a refresh where nothing changed", func(t *testing.T) {
		g := settled(t, testConfig())
		g.close("cps-1")
		g.run(time.Second)
		g.open("cps-1")
		g.wantKinds("REFRESH 0")
	})
	t.Run("SM-9.3-1 what was lost on the way comes again", func(t *testing.T) {
		g := settled(t, testConfig())
		g.lose("cps-1")
		g.accept(report("sci-a", "A", 2, "S1", 0))
		g.close("cps-1")
		g.open("cps-1")
		g.wantKinds("DELTA 1")
		if r := g.peers["cps-1"].rows[key{"A", "S1"}]; r.Metrics.GAS != 0 {
			t.Errorf("the C-PS has %+v", r)
		}
	})
	t.Run("full where a row was discovered meanwhile is not needed", func(t *testing.T) {
		g := settled(t, testConfig())
		g.close("cps-1")
		r := report("sci-a", "A", 2, "S2", 1)
		r.Full = false
		g.accept(r)
		g.open("cps-1")
		g.wantKinds("DELTA 1")
	})
	for name, lost := range map[string]bool{"SM-9.3-1 full where a row was withdrawn meanwhile": false, "SM-9.3-1 full where the withdrawal was lost": true} {
		t.Run(name, func(t *testing.T) {
			g := settled(t, testConfig())
			if lost {
				g.lose("cps-1")
			} else {
				g.close("cps-1")
			}
			g.run(20 * time.Second)
			g.accept(report("sci-b", "B", 2, "S1", 100))
			if lost {
				g.close("cps-1")
			}
			g.open("cps-1")
			g.wantKinds("FULL 1")
		})
	}
	t.Run("SM-9.3-1 full where the C-PS lost its state", func(t *testing.T) {
		g := settled(t, testConfig())
		g.close("cps-1")
		g.peers["cps-1"] = &peer{rows: map[key]cats.Record{}}
		g.open("cps-1")
		g.wantKinds("FULL 2")
	})
	t.Run("SM-9.3-1 full on request, once for several requests", func(t *testing.T) {
		g := settled(t, testConfig())
		need := Session{CPS: "cps-1", Kind: SessionNeedFull}
		g.step(Events{Sessions: []Session{need, need, need}})
		g.wantKinds("FULL 2")
		g.step(Events{Sessions: []Session{need}})
		g.wantKinds("FULL 2")
	})
	t.Run("SM-9.3-1 where the views differ the C-SMA's wins", func(t *testing.T) {
		g := settled(t, testConfig())
		g.peers["cps-1"].rows[key{"A", "S2"}] = cats.Record{CSCIID: "A", CSID: "S2"}
		g.peers["cps-1"].rows[key{"A", "S1"}] = cats.Record{CSCIID: "A", CSID: "S1", Metrics: cats.Metrics{GAS: 7}}
		g.step(Events{Sessions: []Session{{CPS: "cps-1", Kind: SessionNeedFull}}})
		if rows := g.peers["cps-1"].rows; len(rows) != 2 || rows[key{"A", "S1"}].Metrics.GAS != 100 {
			t.Errorf("the C-PS has %+v", rows)
		}
	})
	t.Run("a refused update is followed by a FULL, not at once", func(t *testing.T) {
		g := settled(t, testConfig())
		g.step(Events{Sessions: []Session{{CPS: "cps-1", Kind: SessionRefused, Epoch: 100, Sequence: 1}}})
		g.wantKinds("")
		g.run(5 * time.Second)
		g.wantKinds("FULL 2")
	})
	t.Run("an epoch above the C-PS's, where the own store was lost", func(t *testing.T) {
		g := newRig(t, testConfig())
		g.peers["cps-1"].epoch, g.peers["cps-1"].sequence = 500, 9
		g.open("cps-1")
		g.run(5 * time.Second)
		g.wantKinds("FULL 0")
		if len(g.epochs) != 1 || g.epochs[0] != 501 || g.peers["cps-1"].epoch != 501 {
			t.Errorf("epochs to store %v, the C-PS has %d", g.epochs, g.peers["cps-1"].epoch)
		}
	})
	t.Run("each C-PS is told for itself", func(t *testing.T) {
		c := testConfig()
		c.CPS = []string{"cps-1", "cps-2"}
		g := settled(t, c)
		g.accept(report("sci-a", "A", 2, "S1", 0))
		g.open("cps-2")
		if one, two := g.kinds("cps-1"), g.kinds("cps-2"); one != "DELTA 1" || two != "FULL 2" {
			t.Errorf("cps-1 got %q, cps-2 %q", one, two)
		}
		g.accept(report("sci-a", "A", 3, "S1", 100))
		if one, two := g.kinds("cps-1"), g.kinds("cps-2"); one != "DELTA 1" || two != "DELTA 1" {
			t.Errorf("cps-1 got %q, cps-2 %q", one, two)
		}
		c.CPS = c.CPS[1:]
		g.step(Events{Config: &c})
		g.accept(report("sci-a", "A", 4, "S1", 0))
		if one, two := g.kinds("cps-1"), g.kinds("cps-2"); one != "" || two != "DELTA 1" {
			t.Errorf("cps-1 got %q, cps-2 %q", one, two)
		}
	})
}

func TestConfigCheck(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"no name":                    func(c *Config) { c.Name = "" },
		"a site with a slash":        func(c *Config) { c.Site = "a/b" },
		"no interval":                func(c *Config) { c.Interval = 0 },
		"a heartbeat beyond the ttl": func(c *Config) { c.Heartbeat = c.TTL },
		"no row":                     func(c *Config) { c.MaxRows = 0 },
		"more rows than a FULL has":  func(c *Config) { c.MaxRows = mostRows + 1 },
		"no C-PS":                    func(c *Config) { c.CPS = nil },
		"an instance twice":          func(c *Config) { c.Grants[1].CSCIID = "A" },
		"a grant without service":    func(c *Config) { c.Grants[0].Services = nil },
		"a CS-ID with a space":       func(c *Config) { c.Grants[0].Services[0] = "S 1" },
		"an agent with a colon":      func(c *Config) { c.Grants[0].Agent = "a:1" },
	} {
		t.Run(name, func(t *testing.T) {
			c := testConfig()
			spoil(&c)
			if err := c.Check(); err == nil {
				t.Error("accepted")
			}
		})
	}
}
