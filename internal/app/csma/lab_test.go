package csma

import (
	"bytes"
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
	"google.golang.org/grpc"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	agent "github.com/margay-net/margay/internal/app/sci"
	collect "github.com/margay-net/margay/internal/collect/grpc"
	"github.com/margay-net/margay/internal/config"
	northbound "github.com/margay-net/margay/internal/northbound/grpc"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to happen.
const patience = 60 * time.Second

const domainName = "example.margay"

// lab is a directory with an authority and everything that the daemons of a test write.
type lab struct {
	t   *testing.T
	dir string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	// Not t.TempDir: the path of a socket has to be short.
	dir, err := os.MkdirTemp("", "csma")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if _, err := pki.Init(dir, domainName); err != nil {
		t.Fatal(err)
	}
	return &lab{t, dir}
}

// issue makes the certificate of one program.
func (l *lab) issue(role trust.Role, name string) config.TLS {
	l.t.Helper()
	files, err := pki.Issue(l.dir, role, name, pki.Options{Replace: true})
	if err != nil {
		l.t.Fatal(err)
	}
	return config.TLS{Certificate: config.Path(files.Certificate), Key: config.Path(files.Key), Authority: config.Path(files.Authority), Domain: domainName}
}

func (l *lab) credentials(role trust.Role, name string) *trust.Credentials {
	l.t.Helper()
	c, err := trust.Load(l.issue(role, name))
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// stranger is like credentials, but another authority signs, which knows this one.
func (l *lab) stranger(role trust.Role, name string) *trust.Credentials {
	l.t.Helper()
	other := newLab(l.t)
	files := other.issue(role, name)
	var both []byte
	for _, dir := range []string{other.dir, l.dir} {
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
	c, err := trust.Load(files)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// write writes a configuration file with what every daemon has, and issues its certificate.
func (l *lab) write(role trust.Role, name, rest string) string {
	l.t.Helper()
	l.issue(role, name)
	path := l.path(name + ".yaml")
	text := fmt.Sprintf("name: %s\ntls: {certificate: %s-%s.crt, key: %s-%s.key, authority: ca.crt, domain: %s}\nobserve: {listen: \"unix:%s\"}\naudit: {file: %s.audit}\n%s",
		name, role, name, role, name, domainName, l.path(name+".obs"), name, rest)
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

// daemon is a daemon that runs inside the test.
type daemon[C interface{ Shared() config.Common }] struct {
	t        *testing.T
	base     *run.Base
	app      run.App[C]
	reloader *config.Reloader[C]
	log      *logBuffer
	stop     func()
}

func launch[C interface{ Shared() config.Common }](t *testing.T, d run.Daemon[C], create func(context.Context, C, *run.Base) (run.App[C], error), file string) *daemon[C] {
	t.Helper()
	loaded, err := d.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	x := &daemon[C]{t: t, log: &logBuffer{}}
	if x.base, err = run.Open(d.Role, loaded.Shared(), x.log); err != nil {
		t.Fatal(err)
	}
	if x.app, err = create(context.Background(), loaded, x.base); err != nil {
		t.Fatal(err)
	}
	x.reloader = config.NewReloader(loaded, func() (C, error) { return d.Load(file) }, x.app.Prepare, x.base.Log, x.base.Registry)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := x.app.Run(ctx); err != nil {
			t.Errorf("%s: %v", d.Program, err)
		}
	})
	x.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := x.base.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		x.stop()
		if t.Failed() {
			t.Logf("log of %s:\n%s", d.Program, x.log)
		}
	})
	return x
}

func (l *lab) csma(file string) *daemon[Config] { return launch(l.t, Daemon, New, file) }

func (l *lab) sci(file string) *daemon[agent.Config] {
	return launch(l.t, agent.Daemon, agent.New, file)
}

func (x *daemon[C]) reload() error { return x.reloader.Reload(context.Background()) }

// metric gives a metric's value as /metrics would show it, the sum over its labels where they contain all of with.
func (x *daemon[C]) metric(name string, with ...string) float64 {
	x.t.Helper()
	families, err := x.base.Registry.Gather()
	if err != nil {
		x.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			matches := true
			for _, w := range with {
				matches = matches && strings.Contains(m.String(), fmt.Sprintf("%q", w))
			}
			if matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func (x *daemon[C]) ready() (bool, string) {
	var text bytes.Buffer
	ok := x.base.Health.Ready(&text)
	return ok, text.String()
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

type logBuffer struct {
	mutex sync.Mutex // guards text
	text  bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

// cps is a C-PS: it holds to docs/by-reference.md section 7 and keeps what it is told.
type cps struct {
	t *testing.T

	mutex           sync.Mutex // guards what follows
	epoch, sequence uint64
	rows            map[cats.CSCIID]cats.Record
	kinds           []cats.UpdateKind
	sessions        int
	refused         []string
}

// startCPS serves C-SMAs until stop; a C-PS that is given goes on with what it has.
func (l *lab) startCPS(c *cps) (_ *cps, stop func()) {
	l.t.Helper()
	if c == nil {
		c = &cps{t: l.t, rows: map[cats.CSCIID]cats.Record{}}
	}
	server := trust.NewServer(l.credentials(trust.CPS, "cps-1"), trust.NewGuard(trust.Roster{trust.CSMA: {"csma-1"}}, northbound.Methods(), c, c))
	channel := northbound.NewServer(northbound.ServerOptions{Handler: c})
	channel.Restore(trust.CSMA, "csma-1", c.epoch, c.sequence)
	channel.Register(server)
	listener, err := trust.Listen(endpoint.Address("unix:" + l.path("cps.sock")))
	if err != nil {
		l.t.Fatal(err)
	}
	stop = serve(l.t, server, listener, channel.Wait)
	return c, stop
}

func serve(t *testing.T, server *grpc.Server, listener net.Listener, wait func()) (stop func()) {
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		server.Stop()
		serving.Wait()
		wait()
	})
	t.Cleanup(stop)
	return stop
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

// Record and Inc make it an auditor and a counter.
func (c *cps) Record(event, subject, _ string, reason cats.Reason, detail string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.refused = append(c.refused, fmt.Sprint(event, subject, reason, detail))
}

func (c *cps) Inc(cats.Reason) {}

// wait waits until the C-PS has a row of an instance for which ok holds, and gives it.
func (c *cps) wait(what string, id cats.CSCIID, ok func(cats.Record) bool) cats.Record {
	c.t.Helper()
	var row cats.Record
	eventually(c.t, what, func() bool {
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
	eventually(c.t, what, func() bool {
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

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
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
	case <-time.After(patience):
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
