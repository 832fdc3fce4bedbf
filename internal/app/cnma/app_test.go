package cnma

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run/runtest"
	northbound "github.com/margay-net/margay/internal/northbound/grpc"
	"github.com/margay-net/margay/internal/pce"
	"github.com/margay-net/margay/internal/pce/tedb"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// topologyOf is two routers between IF-1 and EF-1, the second of them slower.
func topologyOf(delay int) string {
	return fmt.Sprintf(`
nodes: [{name: IF-1}, {name: EF-1}, {name: R1, sid: "2001:db8:0:f1::1"}, {name: R2, sid: "2001:db8:0:f2::1"}]
links:
  - {from: IF-1, to: R1, delay_us: %d, both: true}
  - {from: R1, to: EF-1, delay_us: %d, both: true}
  - {from: IF-1, to: R2, delay_us: 4000, both: true}
  - {from: R2, to: EF-1, delay_us: 4000, both: true}
`, delay, delay)
}

// bench is a directory with an authority, the files of a C-NMA and a C-PS that takes its updates.
type bench struct {
	t *testing.T
	trusttest.Authority
	socket endpoint.Address
	cps    *receiver
}

func newBench(t *testing.T) *bench {
	// The path of a socket has to be short.
	dir, err := os.MkdirTemp("", "cnma")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{t: t, Authority: trusttest.In(t, dir), socket: endpoint.Address("unix:" + filepath.Join(dir, "cps.sock"))}
	b.Issue(trust.CNMA, "cnma-1", pki.Options{Out: dir})
	b.write("topology.yaml", topologyOf(500))
	b.write("cnma.yaml", b.configuration("cnma-1"))
	return b
}

func (b *bench) configuration(name string) string {
	return fmt.Sprintf(`
name: %s
tls: {certificate: cnma-%s.crt, key: cnma-%s.key, authority: ca.crt, domain: %s}
observe: {listen: "unix:%s"}
audit: {file: audit}
cps: [{address: "%s", name: cps-1}]
state: state
topology: topology.yaml
refresh: 1s
`, name, name, name, trusttest.Domain, filepath.Join(b.Dir, "o.sock"), b.socket)
}

// write replaces a file as a deployment does.
func (b *bench) write(name, content string) {
	b.t.Helper()
	path := filepath.Join(b.Dir, name)
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.Dir, name) }

func (b *bench) start() *runtest.Daemon[Config] {
	return runtest.Launch(b.t, Daemon, New, b.path("cnma.yaml"))
}

// receiver is the C-PS's end: it keeps the topology that it is told, and computes paths on it.
type receiver struct {
	t *testing.T

	mutex    sync.Mutex // guards all
	refuse   bool
	epoch    uint64
	sequence uint64
	kinds    []string
	snapshot *pce.Snapshot
	session  *northbound.Session
}

// serve starts the C-PS under a name; stop ends it and waits.
func (b *bench) serve(name string) (stop func()) {
	b.t.Helper()
	if b.cps == nil {
		b.cps = &receiver{t: b.t}
	}
	listener, err := trust.Listen(b.socket)
	if err != nil {
		b.t.Fatal(err)
	}
	channel := northbound.NewServer(northbound.ServerOptions{Handler: b.cps})
	guard := trust.NewGuard(trust.Roster{trust.CNMA: {"cnma-1"}}, northbound.Methods(), trusttest.Ignore{}, trusttest.Ignore{})
	server := trust.NewServer(b.Credentials(trust.CPS, name), guard)
	channel.Register(server)
	return trusttest.Serve(b.t, server, listener, channel.Wait)
}

func (r *receiver) Opened(s *northbound.Session) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.session = s
	s.Send(cats.Feedback{Kind: cats.FeedbackHello, Epoch: r.epoch, Sequence: r.sequence})
}

func (r *receiver) MetricUpdate(*northbound.Session, cats.MetricUpdate) {
	r.t.Error("a C-NMA sent a metric update")
}

func (r *receiver) NetworkUpdate(s *northbound.Session, u cats.NetworkUpdate) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.kinds = append(r.kinds, u.Kind.String())
	if r.refuse {
		s.Send(cats.Feedback{Kind: cats.FeedbackRefused, Epoch: u.Epoch, Sequence: u.Sequence, Reason: cats.ReasonPolicy, Detail: "no thanks"})
		return
	}
	if u.Kind == cats.UpdateRefresh && (u.Epoch != r.epoch || u.Base != r.sequence) {
		s.Send(cats.Feedback{Kind: cats.FeedbackNeedFull, Epoch: r.epoch, Sequence: r.sequence})
		return
	}
	if u.Kind == cats.UpdateFull {
		snapshot, err := pce.Build(trusttest.Domain, u.Sequence, tedb.Source{Name: u.Source, TTL: u.TTL, Nodes: u.Nodes, Links: u.Links})
		if err != nil {
			r.t.Errorf("the C-PS cannot take what it is sent: %v", err)
			return
		}
		r.snapshot = snapshot
	}
	r.epoch, r.sequence = u.Epoch, u.Sequence
	s.Send(cats.Feedback{Kind: cats.FeedbackApplied, Epoch: u.Epoch, Sequence: u.Sequence})
}

func (r *receiver) Refused(_ *northbound.Session, reason cats.Reason, detail string) {
	r.t.Errorf("the channel refused an update: %s: %s", reason, detail)
}

func (r *receiver) Closed(*northbound.Session) {}

// route gives the nodes of the least-delay path from IF-1 to EF-1.
func (r *receiver) route() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.snapshot == nil {
		return ""
	}
	return strings.Join(r.snapshot.Compute(cats.PathRequest{
		Transaction: cats.Transaction{1}, Headend: "IF-1", Egress: "EF-1", Endpoint: netip.MustParseAddr("2001:db8:0:e1::11"), Domain: trusttest.Domain,
		Capabilities: cats.Capabilities{Encapsulations: cats.EncapSRv6, MaxSegments: 10},
	}).Nodes, " ")
}

// told gives how many updates came, and the last one's kind and epoch.
func (r *receiver) told() (n int, kind string, epoch uint64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if n = len(r.kinds); n > 0 {
		kind = r.kinds[n-1]
	}
	return n, kind, r.epoch
}

func TestTopologyReachesTheCPS(t *testing.T) {
	b := newBench(t)
	b.serve("cps-1")
	d := b.start()
	testenv.Eventually(t, "the fast path at the C-PS", func() bool { return b.cps.route() == "IF-1 R1 EF-1" })
	testenv.Eventually(t, "ready", func() bool { ready, _ := d.Ready(); return ready })
	testenv.Eventually(t, "a refresh", func() bool { _, kind, _ := b.cps.told(); return kind == "REFRESH" })

	b.write("topology.yaml", topologyOf(9_000))
	testenv.Eventually(t, "the other path after the file changed", func() bool { return b.cps.route() == "IF-1 R2 EF-1" })

	b.write("topology.yaml", strings.Replace(topologyOf(1), "from: IF-1, to: R1", "from: IF-1, to: R9", 1))
	testenv.Eventually(t, "the bad file refused", func() bool { return d.Metric("margay_cnma_topologies_refused_total") == 1 })
	if log := d.Log.String(); !strings.Contains(log, "topology.yaml:4") || !strings.Contains(log, "node R9 is not one of nodes") {
		t.Errorf("the log does not name the place:\n%s", log)
	}
	if err := d.Reload(); err == nil || !strings.Contains(err.Error(), "node R9 is not one of nodes") {
		t.Errorf("a reload with a bad topology: %v", err)
	}
	n, _, _ := b.cps.told()
	testenv.Eventually(t, "another refresh", func() bool { m, kind, _ := b.cps.told(); return m > n && kind == "REFRESH" })
	if route := b.cps.route(); route != "IF-1 R2 EF-1" {
		t.Errorf("after a bad file the C-PS has path %q", route)
	}

	b.write("topology.yaml", topologyOf(500))
	if err := d.Reload(); err != nil {
		t.Errorf("reload: %v", err)
	}
	testenv.Eventually(t, "the first path after the reload", func() bool { return b.cps.route() == "IF-1 R1 EF-1" })
	if generation := d.Metric("margay_cnma_topology_generation"); generation != 3 {
		t.Errorf("topology generation %v, want 3", generation)
	}
}

func TestRestarts(t *testing.T) {
	b := newBench(t)
	stop := b.serve("cps-1")
	d := b.start()
	testenv.Eventually(t, "the path", func() bool { return b.cps.route() != "" })
	testenv.Eventually(t, "ready", func() bool { ready, _ := d.Ready(); return ready })
	stop()
	testenv.Eventually(t, "not ready without a C-PS", func() bool { ready, _ := d.Ready(); return !ready })
	n, _, first := b.cps.told()
	b.serve("cps-1")
	testenv.Eventually(t, "the session again", func() bool { m, _, _ := b.cps.told(); return m > n })
	if _, kind, _ := b.cps.told(); kind != "REFRESH" {
		t.Errorf("a C-PS that kept everything was sent %s, want REFRESH", kind)
	}
	d.Stop()

	b.write("state/epoch", fmt.Sprint(first+1_000_000)) // the clock went back
	d = b.start()
	testenv.Eventually(t, "an update of the next run", func() bool { _, _, epoch := b.cps.told(); return epoch == first+1_000_001 })
	d.Stop()
	if got, err := os.ReadFile(b.path("state/epoch")); err != nil || strings.TrimSpace(string(got)) != fmt.Sprint(first+1_000_001) {
		t.Errorf("stored epoch %s, %v; want %d", got, err, first+1_000_001)
	}

	if err := os.Remove(b.path("state/epoch")); err != nil {
		t.Fatal(err)
	}
	b.start()
	testenv.Eventually(t, "an update above the lost epoch", func() bool { _, _, epoch := b.cps.told(); return epoch == first+1_000_002 })
	got, err := os.ReadFile(b.path("state/epoch"))
	if err != nil || strings.TrimSpace(string(got)) != fmt.Sprint(first+1_000_002) {
		t.Errorf("stored epoch %s, %v; want %d", got, err, first+1_000_002)
	}
}

func TestRefusalIsVisible(t *testing.T) {
	b := newBench(t)
	b.cps = &receiver{t: t, refuse: true}
	b.serve("cps-1")
	d := b.start()
	testenv.Eventually(t, "the refusal in the readiness", func() bool {
		_, why := d.Ready()
		return strings.Contains(why, "it refused update") && strings.Contains(why, "no thanks")
	})
	if ready, why := d.Ready(); ready {
		t.Errorf("ready while the C-PS refuses: %s", why)
	}
}

func TestAnotherCPSIsRefused(t *testing.T) {
	b := newBench(t)
	b.serve("cps-2")
	d := b.start()
	testenv.Eventually(t, "the refusal in the audit log", func() bool {
		if err := d.Base.Audit.Flush(); err != nil {
			t.Fatal(err)
		}
		log, err := os.ReadFile(b.path("audit"))
		return err == nil && strings.Contains(string(log), "cps-2")
	})
	if n, _, _ := b.cps.told(); n != 0 {
		t.Errorf("%d updates went to a C-PS that is not configured", n)
	}
}

func TestBadConfiguration(t *testing.T) {
	for _, c := range []struct {
		name, old, new, want string
	}{
		{"unknown key", "refresh: 1s", "refrsh: 1s", `unknown key "refrsh"`},
		{"no C-PS", `cps: [{address: "%s", name: cps-1}]`, "cps: []", "cps: need at least one C-PS"},
		{"C-PS twice", "name: cps-1}]", `name: cps-1}, {address: "127.0.0.1:1", name: cps-1}]`, "cps[1].name: C-PS cps-1 is given twice"},
		{"refresh", "refresh: 1s", "refresh: 1ms", "refresh: need 1s to 1h0m0s, have 1ms"},
		{"no topology", "topology: topology.yaml", "topology: nowhere.yaml", "nowhere.yaml: no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			old := strings.ReplaceAll(c.old, "%s", string(b.socket))
			before := b.configuration("cnma-1")
			after := strings.Replace(before, old, c.new, 1)
			if after == before {
				t.Fatalf("%q is not in the configuration", old)
			}
			b.write("cnma.yaml", after)
			if _, err := Load(b.path("cnma.yaml")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not say %q", err, c.want)
			}
		})
	}
	t.Run("topology", func(t *testing.T) {
		b := newBench(t)
		b.write("topology.yaml", "nodes: [{name: IF-1}]\nlinks:\n  - {from: IF-1, to: R1}\n")
		_, err := Load(b.path("cnma.yaml"))
		if err == nil || !strings.Contains(err.Error(), "topology.yaml:3") || !strings.Contains(err.Error(), `key "delay_us" is missing`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("reload of what takes a restart", func(t *testing.T) {
		b := newBench(t)
		d := b.start()
		b.write("cnma.yaml", strings.Replace(b.configuration("cnma-1"), "refresh: 1s", "refresh: 2s", 1))
		if err := d.Reload(); err == nil || !strings.Contains(err.Error(), "refresh changed: restart") {
			t.Errorf("error %v", err)
		}
	})
}
