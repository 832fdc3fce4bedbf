package grpc

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

type ignore struct{}

func (ignore) Record(string, string, string, cats.Reason, string) {}
func (ignore) Inc(cats.Reason)                                    {}

// connect serves what register registers as csma-1, and runs a client of sci-a on it.
func connect(t *testing.T, register func(grpc.ServiceRegistrar), wait func()) (*Client, *agent) {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Init(dir, "example.margay"); err != nil {
		t.Fatal(err)
	}
	credentials := func(role trust.Role, name string) *trust.Credentials {
		files, err := pki.Issue(dir, role, name, pki.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := trust.Load(config.TLS{Certificate: config.Path(files.Certificate), Key: config.Path(files.Key), Authority: config.Path(files.Authority), Domain: "example.margay"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	server := trust.NewServer(credentials(trust.CSMA, "csma-1"), trust.NewGuard(trust.Roster{trust.SCI: {"sci-a"}}, Methods(), ignore{}, ignore{}))
	register(server)
	listener, err := trust.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{make(chan any, 100)}
	client := NewClient(ClientOptions{
		Credentials: credentials(trust.SCI, "sci-a"), Peer: config.Peer{Address: endpoint.Address(listener.Addr().String()), Name: "csma-1"}, Handler: a,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() { client.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		server.Stop()
		running.Wait()
		wait()
	})
	return client, a
}

// agent notes what it is told.
type agent struct{ events chan any }

type (
	opened struct{}
	pulled struct{}
	closed struct{ why string }
)

func (a *agent) Opened()                      { a.events <- opened{} }
func (a *agent) Verdict(v cats.ReportVerdict) { a.events <- v }
func (a *agent) Pull()                        { a.events <- pulled{} }
func (a *agent) Closed(err error)             { a.events <- closed{err.Error()} }

func want[E any](t *testing.T, events <-chan any) E {
	t.Helper()
	select {
	case e := <-events:
		if typed, ok := e.(E); ok {
			return typed
		}
		t.Fatalf("%T %+v instead of %T", e, e, *new(E))
	case <-time.After(patience):
		t.Fatalf("no %T", *new(E))
	}
	panic("unreachable")
}

// collector accepts everything.
type collector struct{ events chan any }

func (c *collector) Opened(*Session) {}
func (c *collector) Report(s *Session, r cats.SCIReport) {
	c.events <- r
	s.Send(cats.ReportVerdict{Epoch: r.Epoch, Sequence: r.Sequence})
}
func (c *collector) Refused(_ *Session, reason cats.Reason, _ string) { c.events <- reason }
func (c *collector) Closed(*Session)                                  {}

func TestReports(t *testing.T) {
	c := &collector{make(chan any, 100)}
	s := NewServer(c)
	client, a := connect(t, s.Register, s.Wait)
	want[opened](t, a.events)
	report := cats.SCIReport{
		CSCIID: "198.51.100.11:443", Site: "edge-1", Epoch: 3, Sequence: 1, Timestamp: time.UnixMilli(1_700_000_000_000).UTC(), Interval: 5 * time.Second, Full: true,
		Services: []cats.ServiceReport{{CSID: "S1", Version: "1", Health: cats.Healthy, Healthy: 1, Metrics: cats.Metrics{GAS: 100, ComputingTimeMS: 5, Price: cats.Some[uint32](0)}}},
	}
	if !client.Send(report) {
		t.Fatal("not taken")
	}
	got := want[cats.SCIReport](t, c.events)
	if got.CSCIID != report.CSCIID || got.Sequence != 1 || !got.Full || got.Interval != 5*time.Second || !got.Timestamp.Equal(report.Timestamp) || got.Services[0].Metrics.Price != cats.Some[uint32](0) {
		t.Errorf("got %+v", got)
	}
	if v := want[cats.ReportVerdict](t, a.events); v.Disposal != cats.ReportAccepted || v.Epoch != 3 || v.Sequence != 1 {
		t.Errorf("verdict %+v", v)
	}
	report.CSCIID, report.Sequence = "not a CSCI-ID", 2
	client.Send(report)
	if reason := want[cats.Reason](t, c.events); reason != cats.ReasonMalformed {
		t.Errorf("reason %v", reason)
	}
	if v := want[cats.ReportVerdict](t, a.events); v.Disposal != cats.ReportRefused || v.Reason != cats.ReasonMalformed || v.Sequence != 2 || !strings.Contains(v.Detail, "csci_id") {
		t.Errorf("verdict %+v", v)
	}
	report.CSCIID, report.Sequence = "A", 3
	client.Send(report) // the session goes on
	want[cats.SCIReport](t, c.events)
}

// puller asks for a report, and then talks nonsense.
type puller struct {
	pb.UnimplementedCollectServiceServer
}

func (puller) Collect(call pb.CollectService_CollectServer) error {
	if err := call.Send(&pb.CollectResponse{Message: &pb.CollectResponse_Pull{Pull: &pb.Pull{}}}); err != nil {
		return err
	}
	if err := call.Send(&pb.CollectResponse{Message: &pb.CollectResponse_Verdict{Verdict: &pb.ReportVerdict{Disposal: 77}}}); err != nil {
		return err
	}
	<-call.Context().Done()
	return nil
}

func TestPull(t *testing.T) {
	_, a := connect(t, func(r grpc.ServiceRegistrar) { pb.RegisterCollectServiceServer(r, puller{}) }, func() {})
	want[opened](t, a.events)
	want[pulled](t, a.events)
	if c := want[closed](t, a.events); !strings.Contains(c.why, "disposal") {
		t.Errorf("closed for %s", c.why)
	}
}
