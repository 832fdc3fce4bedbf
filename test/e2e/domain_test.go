// Package e2e tests the whole domain: every role a real process in its own network namespace, real sockets at both ends,
// and assertions on packets captured on the wire.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/capture"
	"github.com/margay-net/margay/internal/operator/client"
	"github.com/margay-net/margay/internal/testenv"
)

// patience bounds every wait. It is no expectation of speed.
const patience = 60 * time.Second

// shared is the lab that the tests of this package use, and the programs that they run.
var shared struct {
	once     sync.Once
	lab      *lab.Lab
	programs string
	err      error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.lab != nil {
		if err := shared.lab.Down(); err != nil {
			fmt.Fprintln(os.Stderr, "taking the lab down:", err)
			code = 1
		}
	}
	if shared.programs != "" {
		os.RemoveAll(shared.programs)
	}
	os.Exit(code)
}

// domain gives the shared lab, brought up by the first test that asks.
func domain(t *testing.T) *lab.Lab {
	t.Helper()
	testenv.RequireRoot(t)
	shared.once.Do(func() { shared.lab, shared.err = bringUp() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.lab
}

func bringUp() (*lab.Lab, error) {
	programs, err := os.MkdirTemp("", "margay-e2e-")
	if err != nil {
		return nil, err
	}
	shared.programs = programs
	build := exec.Command("go", "build", "-o", programs+"/", "../../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the programs: %w\n%s", err, out)
	}
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		return nil, err
	}
	return lab.Up(context.Background(), lab.Options{Topology: topology, Name: fmt.Sprintf("e2e-%d", os.Getpid()), Programs: programs})
}

// margay runs a verb as the lab's operator and gives what it printed.
func margay(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	command := exec.Command(filepath.Join(shared.programs, "margay"), args...)
	command.Env = append(os.Environ(), "MARGAY_CONFIG="+shared.lab.OperatorConfig())
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	err = command.Run()
	return out.String(), strings.TrimSpace(complaint.String()), err
}

// askCPS asks the C-PS as the lab's operator.
func askCPS[Q, A any](t *testing.T, question *Q, method func(api.OperatorServiceClient, context.Context, *Q, ...grpc.CallOption) (*A, error)) (answer *A) {
	t.Helper()
	err := operatorOf(t).AskCPS(context.WithoutCancel(t.Context()), func(ctx context.Context, c api.OperatorServiceClient) (err error) {
		answer, err = method(c, ctx, question)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// counters asks a forwarder as the lab's operator.
func counters(t *testing.T, forwarder string) (answer *api.GetCountersResponse) {
	t.Helper()
	err := operatorOf(t).AskForwarder(context.WithoutCancel(t.Context()), forwarder, func(ctx context.Context, c api.ForwarderServiceClient) (err error) {
		answer, err = c.GetCounters(ctx, &api.GetCountersRequest{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func operatorOf(t *testing.T) *client.Domain {
	t.Helper()
	d, err := client.Load(shared.lab.OperatorConfig(), patience)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// bindings gives the flow binding table's rows of a service.
func bindings(t *testing.T, service string) []*api.BindingRow {
	t.Helper()
	return askCPS(t, &api.ListBindingsRequest{CsId: service}, api.OperatorServiceClient.ListBindings).GetBindings()
}

// eventually polls until the condition gives no error.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if last = condition(); last == nil {
			return
		}
	}
	t.Fatalf("%s: not within %s: %v", what, patience, last)
}

// eligible waits until a service has that many ranked candidates at the ingress.
func eligible(t *testing.T, service string, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d candidates of %s", want, service), func() error {
		e := askCPS(t, &api.ExplainRequest{CsId: service, Ingress: "IF-1"}, api.OperatorServiceClient.Explain)
		ranked, why := 0, []string{}
		for _, c := range e.GetCandidates() {
			if c.GetRank() > 0 {
				ranked++
			} else {
				why = append(why, c.GetCsciId()+": "+c.GetStage()+" "+c.GetDetail())
			}
		}
		if ranked != want {
			return fmt.Errorf("have %d; removed: %s", ranked, strings.Join(why, "; "))
		}
		return nil
	})
}

// tally is the counters that the tests hold still or see move.
type tally struct {
	requests, held, released uint64            // at IF-1
	paths, asked             float64           // at the C-PS: path requests, service requests
	drops                    map[string]uint64 // "forwarder reason"
}

func count(t *testing.T) tally {
	t.Helper()
	c := tally{drops: map[string]uint64{}}
	for _, name := range []string{"IF-1", "EF-1", "EF-2"} {
		answer := counters(t, name)
		if name == "IF-1" {
			c.requests, c.held, c.released = answer.GetServiceRequests(), answer.GetHeld(), answer.GetReleased()
		}
		for _, d := range answer.GetDrops() {
			c.drops[name+" "+d.GetReason().String()] = d.GetPackets()
		}
	}
	var err error
	if c.paths, err = shared.lab.Metric(t.Context(), "cps-1", "margay_cps_path_requests_total"); err != nil {
		t.Fatal(err)
	}
	if c.asked, err = shared.lab.Metric(t.Context(), "cps-1", "margay_cps_service_requests_total"); err != nil {
		t.Fatal(err)
	}
	return c
}

// node gives a node of the lab.
func node(t *testing.T, name string) *lab.Node {
	t.Helper()
	n, err := shared.lab.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// record captures an interface until the test ends.
func record(t *testing.T, name, device string) *capture.Capture {
	t.Helper()
	var c *capture.Capture
	err := node(t, name).Do(func() (err error) {
		c, err = capture.Open(device)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("capture at %s: %v", name, err)
		}
	})
	return c
}

// dial opens a connection from inside a node; port 0 lets the kernel choose.
func dial(t *testing.T, from, network string, source netip.Addr, port uint16, target string) (net.Conn, error) {
	t.Helper()
	local := netip.AddrPortFrom(source, port)
	var connection net.Conn
	err := node(t, from).Do(func() (err error) {
		d := net.Dialer{Timeout: patience, LocalAddr: net.Addr(net.TCPAddrFromAddrPort(local))}
		if network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(local)
		}
		connection, err = d.Dial(network, target)
		return err
	})
	if err == nil {
		t.Cleanup(func() { connection.Close() })
		err = connection.SetDeadline(time.Now().Add(patience))
	}
	return connection, err
}

// get sends an HTTP request on an open connection and gives the body.
func get(t *testing.T, connection net.Conn, path string) (string, error) {
	t.Helper()
	if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: service\r\n\r\n", path); err != nil {
		return "", err
	}
	return readAnswer(connection)
}

func readAnswer(connection net.Conn) (string, error) {
	var all []byte
	buffer := make([]byte, 4096)
	for {
		n, err := connection.Read(buffer)
		all = append(all, buffer[:n]...)
		if head, body, whole := bytes.Cut(all, []byte("\r\n\r\n")); whole {
			var length int
			for _, line := range strings.Split(string(head), "\r\n") {
				if _, scan := fmt.Sscanf(line, "Content-Length: %d", &length); scan == nil && len(body) >= length {
					return string(body[:length]), nil
				}
			}
		}
		if err != nil {
			return string(all), fmt.Errorf("after %d octets: %w", len(all), err)
		}
	}
}
