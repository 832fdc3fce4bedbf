package sci

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run/runtest"
	collect "github.com/margay-net/margay/internal/collect/grpc"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

// collector is a C-SMA that accepts every report and keeps what it says of the health of S1.
type collector struct {
	mutex  sync.Mutex // guards health
	health []cats.Health
}

func (c *collector) Opened(*collect.Session) {}

func (c *collector) Report(s *collect.Session, r cats.SCIReport) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for i := range r.Services {
		c.health = append(c.health, r.Services[i].Health)
	}
	s.Send(cats.ReportVerdict{Sequence: r.Sequence, Disposal: cats.ReportAccepted})
}

func (c *collector) Refused(*collect.Session, cats.Reason, string) {}
func (c *collector) Closed(*collect.Session)                       {}

// heard gives what was reported so far.
func (c *collector) heard() []cats.Health {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return append([]cats.Health(nil), c.health...)
}

// collects starts a C-SMA, csma-1, which admits agent-a and has its socket and the authority in dir.
func collects(t *testing.T, dir string) *collector {
	t.Helper()
	authority := trusttest.In(t, dir)
	authority.Issue(trust.SCI, "agent-a", pki.Options{Out: dir})
	listener, err := trust.Listen(endpoint.Address("unix:" + filepath.Join(dir, "csma")))
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{}
	server := collect.NewServer(c, func(string) collect.Limit { return collect.Limit{Rate: 1000, Burst: 1000} })
	guard := trust.NewGuard(trust.Roster{trust.SCI: {"agent-a"}}, collect.Methods(), trusttest.Ignore{}, trusttest.Ignore{})
	accepts := trust.NewServer(authority.Credentials(trust.CSMA, "csma-1"), guard)
	server.Register(accepts)
	trusttest.Serve(t, accepts, listener, server.Wait)
	return c
}

// TestReadyOnceHealthIsReported: an agent is of no use before it has told what it found, and is not ready.
func TestReadyOnceHealthIsReported(t *testing.T) {
	dir, err := os.MkdirTemp("", "sci") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	csma := collects(t, dir)
	answer := make(chan struct{})
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(instance.Close)
	path := filepath.Join(dir, "sci.yaml")
	if err := os.WriteFile(path, []byte(fmt.Sprintf(`name: agent-a
tls: {certificate: sci-agent-a.crt, key: sci-agent-a.key, authority: ca.crt, domain: example.margay}
observe: {listen: "unix:%[1]s/observe"}
audit: {file: audit}
csma: {address: "unix:%[1]s/csma", name: csma-1}
site: edge-1
csci_id: "198.51.100.11:443"
state: state
services:
  - {cs_id: S1, version: "1", computing_time_ms: 12, max_slots: 10, check: {http: %[2]q, interval: 2s}}
`, dir, instance.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := runtest.Launch(t, Daemon, New, path)
	testenv.Eventually(t, "a first report", func() bool { return len(csma.heard()) > 0 })
	testenv.Eventually(t, "the session", func() bool { _, body := agent.Ready(); return strings.Contains(body, "ok csma") })
	ok, body := agent.Ready()
	// On a very slow machine the checks, of 2 s each, may have failed already; that is a verdict, too.
	if told := csma.heard(); told[len(told)-1] == cats.HealthUnknown && (ok || !strings.Contains(body, "not ready health: not reported yet of S1\n")) {
		t.Errorf("before a check was answered: %t, %s", ok, body)
	}
	close(answer)
	testenv.Eventually(t, "readiness", func() bool { ok, _ := agent.Ready(); return ok })
	testenv.Eventually(t, "a verdict at the C-SMA", func() bool { told := csma.heard(); return told[len(told)-1] == cats.Healthy })
}
