package csma

import (
	"fmt"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

type key struct {
	csci cats.CSCIID
	cs   cats.CSID
}

// peer is a C-PS that holds to docs/by-reference.md section 7 and fails the test where the Core does not.
type peer struct {
	epoch, sequence uint64
	rows            map[key]cats.Record
	received        []cats.MetricUpdate
}

// apply takes an update and gives the answer.
func (p *peer) apply(u cats.MetricUpdate) (SessionKind, error) {
	p.received = append(p.received, u)
	if u.Epoch < p.epoch || u.Epoch == p.epoch && u.Sequence <= p.sequence {
		return 0, fmt.Errorf("update %d.%d after %d.%d", u.Epoch, u.Sequence, p.epoch, p.sequence)
	}
	if u.Kind == cats.UpdateFull {
		if u.Base != 0 {
			return 0, fmt.Errorf("a FULL with base %d", u.Base)
		}
		p.rows = map[key]cats.Record{}
	} else if u.Epoch != p.epoch || u.Base != p.sequence {
		return SessionNeedFull, nil
	}
	p.epoch, p.sequence = u.Epoch, u.Sequence
	seen := map[key]bool{}
	for _, r := range u.Records {
		k := key{r.CSCIID, r.CSID}
		if seen[k] {
			return 0, fmt.Errorf("%v twice in one update", k)
		}
		seen[k] = true
		if u.Kind == cats.UpdateWithdraw {
			if r.Health != cats.HealthUnknown || r.Reporting != cats.ReportingFailed {
				return 0, fmt.Errorf("a withdrawal of %v with health %v and reporting state %v", k, r.Health, r.Reporting)
			}
			delete(p.rows, k)
			continue
		}
		if r.Reporting != cats.ReportingHealthy && r.Reporting != cats.ReportingStale {
			return 0, fmt.Errorf("%v is advertised in reporting state %v", k, r.Reporting)
		}
		p.rows[k] = r
	}
	if u.Kind == cats.UpdateRefresh && len(u.Records) > 0 {
		return 0, fmt.Errorf("a REFRESH with %d records", len(u.Records))
	}
	return SessionApplied, nil
}

// rig runs a Core on virtual time with well-behaved C-PSes. A C-PS that is in cut gets nothing: its session is open, as
// the Core sees it, and what is sent is lost.
type rig struct {
	t       testing.TB
	core    *Core
	config  Config
	now     cats.Instant
	next    cats.Instant
	peers   map[string]*peer
	cut     map[string]bool
	effects Effects
	changes []Change
	epochs  []uint64
}

const start cats.Instant = 1e18 // 2001; its ms are the epochs' range

func testConfig() Config {
	c := DefaultConfig
	c.Name, c.Site, c.CPS = "csma-1", "edge-1", []string{"cps-1"}
	c.Grants = []Grant{
		{Agent: "sci-a", CSCIID: "A", Services: []cats.CSID{"S1", "S2"}},
		{Agent: "sci-b", CSCIID: "B", Services: []cats.CSID{"S1"}},
	}
	return c
}

func newRig(t testing.TB, c Config) *rig {
	t.Helper()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, core: New(c, 100), config: c, now: start, next: start, peers: map[string]*peer{}, cut: map[string]bool{}}
	for _, name := range c.CPS {
		g.peers[name] = &peer{rows: map[key]cats.Record{}}
	}
	return g
}

// step takes the events, and the C-PSes' answers until there are none.
func (g *rig) step(events Events) []error {
	g.t.Helper()
	var outcomes []error
	for first := true; first || len(events.Sessions) > 0; first = false {
		g.next = g.core.Step(g.now, &events, &g.effects)
		if g.next <= g.now {
			g.t.Fatalf("the next deadline, %d, is not after now, %d", g.next, g.now)
		}
		if first {
			outcomes = append(outcomes, g.effects.Outcomes...)
		}
		g.changes = append(g.changes, g.effects.Changes...)
		if g.effects.Epoch != 0 {
			g.epochs = append(g.epochs, g.effects.Epoch)
		}
		events = Events{}
		for _, o := range g.effects.Updates {
			if g.cut[o.CPS] {
				continue
			}
			kind, err := g.peers[o.CPS].apply(o.Update)
			if err != nil {
				g.t.Fatalf("%s: %v", o.CPS, err)
			}
			events.Sessions = append(events.Sessions, Session{CPS: o.CPS, Kind: kind, Epoch: o.Update.Epoch, Sequence: o.Update.Sequence})
		}
	}
	return outcomes
}

// run lets d pass.
func (g *rig) run(d time.Duration) {
	g.t.Helper()
	for end := g.now.Add(d); ; {
		if g.next > end {
			g.now = end
			return
		}
		g.now = max(g.now, g.next)
		g.step(Events{})
	}
}

func (g *rig) open(cps string) {
	g.t.Helper()
	p := g.peers[cps]
	delete(g.cut, cps)
	g.step(Events{Sessions: []Session{{CPS: cps, Kind: SessionOpened, Epoch: p.epoch, Sequence: p.sequence}}})
}

// lose breaks the session; what the Core sends before it knows is lost.
func (g *rig) lose(cps string) { g.cut[cps] = true }

func (g *rig) close(cps string) {
	g.t.Helper()
	g.step(Events{Sessions: []Session{{CPS: cps, Kind: SessionClosed}}})
}

// take gives what a C-PS has received since the last take.
func (g *rig) take(cps string) []cats.MetricUpdate {
	p := g.peers[cps]
	received := p.received
	p.received = nil
	return received
}

// kinds gives what take gives, in short: "FULL 2, DELTA 1".
func (g *rig) kinds(cps string) string {
	s := ""
	for i, u := range g.take(cps) {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%v %d", u.Kind, len(u.Records))
	}
	return s
}

func (g *rig) wantKinds(want string) {
	g.t.Helper()
	if got := g.kinds("cps-1"); got != want {
		g.t.Fatalf("the C-PS got %q, want %q", got, want)
	}
}

// report makes a valid full report of one service.
func report(agent string, csci cats.CSCIID, sequence uint64, cs cats.CSID, gas uint32) Report {
	return Report{Agent: agent, SCIReport: cats.SCIReport{
		CSCIID: csci, Site: "edge-1", Epoch: 7, Sequence: sequence, Timestamp: start.Wall(), Interval: 5 * time.Second, Full: true,
		Services: []cats.ServiceReport{{CSID: cs, Version: "1", Health: cats.Healthy, Healthy: 1, Metrics: cats.Metrics{GAS: gas, ComputingTimeMS: 5}}},
	}}
}

// accept steps with one report that must be accepted.
func (g *rig) accept(r Report) {
	g.t.Helper()
	if err := g.step(Events{Reports: []Report{r}})[0]; err != nil {
		g.t.Fatal(err)
	}
}

// settled gives a rig with a session, rows A/S1 at GAS 100 and B/S1 at GAS 100, and both told.
func settled(t testing.TB, c Config) *rig {
	t.Helper()
	g := newRig(t, c)
	g.open("cps-1")
	g.accept(report("sci-a", "A", 1, "S1", 100))
	g.accept(report("sci-b", "B", 1, "S1", 100))
	g.run(time.Second)
	g.take("cps-1")
	if n := len(g.peers["cps-1"].rows); n != 2 {
		t.Fatalf("%d rows at the C-PS", n)
	}
	return g
}
