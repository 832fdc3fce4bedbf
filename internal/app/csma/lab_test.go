package csma

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run/runtest"
	agent "github.com/margay-net/margay/internal/app/sci"
	collect "github.com/margay-net/margay/internal/collect/grpc"
	"github.com/margay-net/margay/internal/config"
	northbound "github.com/margay-net/margay/internal/northbound/grpc"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is a directory with an authority and everything that the daemons of a test write.
type lab struct {
	t *testing.T
	trusttest.Authority
}

func newLab(t *testing.T) *lab {
	t.Helper()
	// Not t.TempDir: the path of a socket has to be short.
	dir, err := os.MkdirTemp("", "csma")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &lab{t, trusttest.In(t, dir)}
}

// stranger is like Credentials, but another authority signs, which knows this one.
func (l *lab) stranger(role trust.Role, name string) *trust.Credentials {
	l.t.Helper()
	other := newLab(l.t)
	files := other.Issue(role, name, pki.Options{})
	var both []byte
	for _, dir := range []string{other.Dir, l.Dir} {
		authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
		if err != nil {
			l.t.Fatal(err)
		}
		both = append(both, authority...)
	}
	files.Authority = config.Path(other.path("both.crt"))
	if err := os.WriteFile(string(files.Authority), both, 0o600); err != nil {
		l.t.Fatal(err)
	}
	return trusttest.Load(l.t, files)
}

func (l *lab) path(name string) string { return filepath.Join(l.Dir, name) }

// write writes a configuration file with what every daemon has, and issues its certificate.
func (l *lab) write(role trust.Role, name, rest string) string {
	l.t.Helper()
	l.Issue(role, name, pki.Options{Out: l.Dir, Replace: true})
	path := l.path(name + ".yaml")
	text := fmt.Sprintf("name: %s\ntls: {certificate: %s-%s.crt, key: %s-%s.key, authority: ca.crt, domain: %s}\nobserve: {listen: \"unix:%s\"}\naudit: {file: %s.audit}\n%s",
		name, role, name, role, name, trusttest.Domain, l.path(name+".obs"), name, rest)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// csmaFile is the configuration of a C-SMA whose agents may each report on one instance of S1.
func (l *lab) csmaFile(more string, agents ...string) string {
	l.t.Helper()
	var scis strings.Builder
	for _, a := range agents {
		fmt.Fprintf(&scis, "  - {agent: %s, instances: [{csci_id: %q, services: [S1]}]}\n", a, "I-"+a)
	}
	return l.write(trust.CSMA, "csma-1", fmt.Sprintf("site: edge-1\nlisten: [\"unix:%s\"]\ncps: [{address: \"unix:%s\", name: cps-1}]\nstate: csma-state\nscis:\n%s%s",
		l.path("csma.sock"), l.path("cps.sock"), &scis, more))
}

// sciFile is the configuration of an SCI agent that checks a TCP address.
func (l *lab) sciFile(name, check string, maxSlots int, more string) string {
	l.t.Helper()
	return l.write(trust.SCI, name, fmt.Sprintf(`csma: {address: "unix:%s", name: csma-1}
site: edge-1
csci_id: "I-%s"
state: %s-state
services:
  - {cs_id: S1, version: "1", computing_time_ms: 5, max_slots: %d, resources: [{name: concurrency, capacity: 200, reserve: 0.1, need: 1}], check: {%s, interval: 50ms}}
%s`, l.path("csma.sock"), name, name, maxSlots, check, more))
}

func (l *lab) csma(file string) *runtest.Daemon[Config] {
	return runtest.Launch(l.t, Daemon, New, file)
}

func (l *lab) sci(file string) *runtest.Daemon[agent.Config] {
	return runtest.Launch(l.t, agent.Daemon, agent.New, file)
}

// audit gives the audit log so far.
func (l *lab) audit(name string) string {
	l.t.Helper()
	text, err := os.ReadFile(l.path(name + ".audit"))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

// cps is a C-PS: it holds to docs/by-reference.md section 7 and keeps what it is told.
type cps struct {
	t *testing.T

	mutex           sync.Mutex // guards what follows
	epoch, sequence uint64
	rows            map[cats.CSCIID]cats.Record
	kinds           []cats.UpdateKind
	sessions        int
}

// startCPS serves C-SMAs until stop; a C-PS that is given goes on with what it has.
func (l *lab) startCPS(c *cps) (_ *cps, stop func()) {
	l.t.Helper()
	if c == nil {
		c = &cps{t: l.t, rows: map[cats.CSCIID]cats.Record{}}
	}
	server := trust.NewServer(l.Credentials(trust.CPS, "cps-1"), trust.NewGuard(trust.Roster{trust.CSMA: {"csma-1"}}, northbound.Methods(), trusttest.Ignore{}, trusttest.Ignore{}))
	channel := northbound.NewServer(northbound.ServerOptions{Handler: c})
	channel.Restore(trust.CSMA, "csma-1", c.epoch, c.sequence)
	channel.Register(server)
	listener, err := trust.Listen(endpoint.Address("unix:" + l.path("cps.sock")))
	if err != nil {
		l.t.Fatal(err)
	}
	stop = trusttest.Serve(l.t, server, listener, channel.Wait)
	return c, stop
}

func (c *cps) Opened(s *northbound.Session) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.sessions++
	s.Send(cats.Feedback{Kind: cats.FeedbackHello, Epoch: c.epoch, Sequence: c.sequence})
}

func (c *cps) MetricUpdate(s *northbound.Session, u cats.MetricUpdate) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if u.Kind == cats.UpdateFull {
		c.rows = map[cats.CSCIID]cats.Record{}
	} else if u.Epoch != c.epoch || u.Base != c.sequence {
		s.Send(cats.Feedback{Kind: cats.FeedbackNeedFull, Epoch: c.epoch, Sequence: c.sequence})
		return
	}
	c.epoch, c.sequence = u.Epoch, u.Sequence
	c.kinds = append(c.kinds, u.Kind)
	for _, r := range u.Records {
		if u.Kind == cats.UpdateWithdraw {
			delete(c.rows, r.CSCIID)
		} else {
			c.rows[r.CSCIID] = r
		}
	}
	s.Send(cats.Feedback{Kind: cats.FeedbackApplied, Epoch: u.Epoch, Sequence: u.Sequence})
}

func (c *cps) NetworkUpdate(*northbound.Session, cats.NetworkUpdate) {
	c.t.Error("a network update of a C-SMA")
}

func (c *cps) Refused(_ *northbound.Session, reason cats.Reason, detail string) {
	c.t.Errorf("update refused: %v: %s", reason, detail)
}

func (c *cps) Closed(*northbound.Session) {}

// wait waits until the C-PS has a row of an instance for which ok holds, and gives it.
func (c *cps) wait(what string, id cats.CSCIID, ok func(cats.Record) bool) cats.Record {
	c.t.Helper()
	var row cats.Record
	testenv.Eventually(c.t, what, func() bool {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		var has bool
		row, has = c.rows[id]
		return has && ok(row)
	})
	return row
}

// gone waits until the C-PS has no row of an instance.
func (c *cps) gone(what string, id cats.CSCIID) {
	c.t.Helper()
	testenv.Eventually(c.t, what, func() bool {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		_, has := c.rows[id]
		return !has
	})
}

func (c *cps) kindsSince(n int) []cats.UpdateKind {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return append([]cats.UpdateKind(nil), c.kinds[n:]...)
}

// service is something that accepts TCP connections, for health checks.
func (l *lab) service() (address string, stop func()) {
	l.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	})
	stop = sync.OnceFunc(func() { listener.Close(); serving.Wait() })
	l.t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// reporter is an SCI agent's channel by hand, for reports that the agent never makes.
type reporter struct {
	t        *testing.T
	client   *collect.Client
	verdicts chan cats.ReportVerdict
	up, down chan error
	stop     func()
}

func (l *lab) reporter(credentials *trust.Credentials) *reporter {
	l.t.Helper()
	r := &reporter{t: l.t, verdicts: make(chan cats.ReportVerdict, 1000), up: make(chan error, 1000), down: make(chan error, 1000)}
	r.client = collect.NewClient(collect.ClientOptions{
		Credentials: credentials, Peer: config.Peer{Address: endpoint.Address("unix:" + l.path("csma.sock")), Name: "csma-1"}, Handler: r,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.client.Run(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	l.t.Cleanup(r.stop)
	return r
}

func (r *reporter) Opened()                      { r.up <- nil }
func (r *reporter) Verdict(v cats.ReportVerdict) { r.verdicts <- v }
func (r *reporter) Pull()                        {}
func (r *reporter) Closed(err error)             { r.down <- err }

func await[E any](t *testing.T, what string, c <-chan E) E {
	t.Helper()
	select {
	case e := <-c:
		return e
	case <-time.After(testenv.Patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// send reports and gives the verdict.
func (r *reporter) send(report cats.SCIReport) cats.ReportVerdict {
	r.t.Helper()
	if !r.client.Send(report) {
		r.t.Fatal("no session to report in")
	}
	return await(r.t, "verdict", r.verdicts)
}

func reportOf(id cats.CSCIID, sequence uint64, services ...cats.ServiceReport) cats.SCIReport {
	if len(services) == 0 {
		services = []cats.ServiceReport{{CSID: "S1", Version: "1", Health: cats.Healthy, Healthy: 1, Metrics: cats.Metrics{GAS: 10, ComputingTimeMS: 5}}}
	}
	return cats.SCIReport{
		CSCIID: id, Site: "edge-1", Epoch: 1, Sequence: sequence, Timestamp: time.Now(), Interval: 5 * time.Second, Full: true, Services: services,
	}
}
