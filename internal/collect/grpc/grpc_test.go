package grpc

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect serves what register registers as csma-1, and runs a client of sci-a on it.
func connect(t *testing.T, register func(grpc.ServiceRegistrar), wait func()) (*Client, *agent) {
	t.Helper()
	domain := trusttest.New(t)
	guard := trust.NewGuard(trust.Roster{trust.SCI: {"sci-a"}}, Methods(), trusttest.Ignore{}, trusttest.Ignore{})
	server := trust.NewServer(domain.Credentials(trust.CSMA, "csma-1"), guard)
	register(server)
	listener, err := trust.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{make(chan any, 100)}
	client := NewClient(ClientOptions{
		Credentials: domain.Credentials(trust.SCI, "sci-a"), Peer: config.Peer{Address: endpoint.Address(listener.Addr().String()), Name: "csma-1"}, Handler: a,
	})
	ctx, cancel := context.WithCancel(context.Background())
	trusttest.Serve(t, server, listener, wait)
	var running sync.WaitGroup
	running.Go(func() { client.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
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
	s := NewServer(c, func(string) Limit { return Limit{Rate: 1000, Burst: 1000} })
	client, a := connect(t, s.Register, s.Wait)
	testenv.Want[opened](t, a.events)
	report := cats.SCIReport{
		CSCIID: "198.51.100.11:443", Site: "edge-1", Epoch: 3, Sequence: 1, Timestamp: time.UnixMilli(1_700_000_000_000).UTC(), Interval: 5 * time.Second, Full: true,
		Services: []cats.ServiceReport{{CSID: "S1", Version: "1", Health: cats.Healthy, Healthy: 1, Metrics: cats.Metrics{GAS: 100, ComputingTimeMS: 5, Price: cats.Some[uint32](0)}}},
	}
	if !client.Send(report) {
		t.Fatal("not taken")
	}
	got := testenv.Want[cats.SCIReport](t, c.events)
	if got.CSCIID != report.CSCIID || got.Sequence != 1 || !got.Full || got.Interval != 5*time.Second || !got.Timestamp.Equal(report.Timestamp) || got.Services[0].Metrics.Price != cats.Some[uint32](0) {
		t.Errorf("got %+v", got)
	}
	if v := testenv.Want[cats.ReportVerdict](t, a.events); v.Disposal != cats.ReportAccepted || v.Epoch != 3 || v.Sequence != 1 {
		t.Errorf("verdict %+v", v)
	}
	report.CSCIID, report.Sequence = "not a CSCI-ID", 2
	client.Send(report)
	if reason := testenv.Want[cats.Reason](t, c.events); reason != cats.ReasonMalformed {
		t.Errorf("reason %v", reason)
	}
	if v := testenv.Want[cats.ReportVerdict](t, a.events); v.Disposal != cats.ReportRefused || v.Reason != cats.ReasonMalformed || v.Sequence != 2 || !strings.Contains(v.Detail, "csci_id") {
		t.Errorf("verdict %+v", v)
	}
	report.CSCIID, report.Sequence = "A", 3
	client.Send(report) // the session goes on
	testenv.Want[cats.SCIReport](t, c.events)
}

func TestLimit(t *testing.T) {
	t.Run("SM-12-2 a report too many is refused unread, and the session goes on", func(t *testing.T) {
		c := &collector{make(chan any, 100)}
		var limit atomic.Pointer[Limit]
		limit.Store(&Limit{Rate: 0.001, Burst: 2})
		var asked atomic.Value
		s := NewServer(c, func(agent string) Limit { asked.Store(agent); return *limit.Load() })
		client, a := connect(t, s.Register, s.Wait)
		testenv.Want[opened](t, a.events)
		send := func(sequence uint64) {
			t.Helper()
			if !client.Send(cats.SCIReport{CSCIID: "A", Site: "edge-1", Epoch: 3, Sequence: sequence, Timestamp: time.Unix(1, 0), Interval: time.Second}) {
				t.Fatal("not taken")
			}
		}
		for sequence := uint64(1); sequence <= 2; sequence++ {
			send(sequence)
			testenv.Want[cats.SCIReport](t, c.events)
			testenv.Want[cats.ReportVerdict](t, a.events)
		}
		client.Send(cats.SCIReport{CSCIID: "not a CSCI-ID", Epoch: 3, Sequence: 3})
		if reason := testenv.Want[cats.Reason](t, c.events); reason != cats.ReasonOverload {
			t.Errorf("reason %v: it was read", reason)
		}
		if v := testenv.Want[cats.ReportVerdict](t, a.events); v.Disposal != cats.ReportRefused || v.Reason != cats.ReasonOverload || v.Sequence != 3 || v.Epoch != 3 {
			t.Errorf("verdict %+v", v)
		}
		if asked.Load() != "sci-a" {
			t.Errorf("the limit of %v was asked for", asked.Load())
		}
		limit.Store(&Limit{Rate: 1e6, Burst: 100}) // holds from the next report on
		send(4)                                    // may still be one too many: its time is counted at the new rate
		<-c.events
		testenv.Want[cats.ReportVerdict](t, a.events)
		send(5)
		testenv.Want[cats.SCIReport](t, c.events)
	})
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
	testenv.Want[opened](t, a.events)
	testenv.Want[pulled](t, a.events)
	if c := testenv.Want[closed](t, a.events); !strings.Contains(c.why, "disposal") {
		t.Errorf("closed for %s", c.why)
	}
}
