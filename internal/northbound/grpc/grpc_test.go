package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/trusttest"
	"github.com/margay-net/margay/internal/wire/sealed"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
	"github.com/margay-net/margay/internal/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// domain is a lab authority with one C-PS that listens.
type domain struct {
	t *testing.T
	trusttest.Authority
	address endpoint.Address
	cps     *recorder
	server  *Server
}

func newDomain(t *testing.T) *domain { return newDomainWith(t, 0) }

// newDomainWith has a C-PS of a tolerance of its own.
func newDomainWith(t *testing.T, tolerance time.Duration) *domain {
	t.Helper()
	d := &domain{t: t, Authority: trusttest.New(t), cps: &recorder{events: make(chan any, 1000)}}
	d.server = NewServer(ServerOptions{Handler: d.cps, Tolerance: tolerance})
	roster := trust.Roster{trust.CSMA: {"csma-1", "both"}, trust.CNMA: {"cnma-1", "both"}}
	server := trust.NewServer(d.Credentials(trust.CPS, "cps-1"), trust.NewGuard(roster, Methods(), d.cps, d.cps))
	d.server.Register(server)
	listener, err := trust.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.address = endpoint.Address(listener.Addr().String())
	trusttest.Serve(t, server, listener, d.server.Wait)
	return d
}

// recorder is a C-PS that applies everything and notes it.
type recorder struct {
	mutex   sync.Mutex // guards hello, gate and refusal
	hello   cats.Feedback
	gate    chan struct{} // updates are not taken before it is closed; nil: it is open
	events  chan any
	refusal []string
}

type opened struct{ session *Session }
type closed struct{ session *Session }
type refused struct {
	reason cats.Reason
	detail string
}

func (r *recorder) Opened(s *Session) {
	r.mutex.Lock()
	hello := r.hello
	r.mutex.Unlock()
	hello.Kind = cats.FeedbackHello
	s.Send(hello)
	r.events <- opened{s}
}

func (r *recorder) MetricUpdate(s *Session, u cats.MetricUpdate) {
	r.mutex.Lock()
	gate := r.gate
	r.mutex.Unlock()
	if gate != nil {
		<-gate
	}
	s.Send(cats.Feedback{Kind: cats.FeedbackApplied, Epoch: u.Epoch, Sequence: u.Sequence})
	r.events <- u
}

func (r *recorder) NetworkUpdate(s *Session, u cats.NetworkUpdate) {
	s.Send(cats.Feedback{Kind: cats.FeedbackApplied, Epoch: u.Epoch, Sequence: u.Sequence})
	r.events <- u
}

func (r *recorder) Refused(_ *Session, reason cats.Reason, detail string) {
	r.events <- refused{reason, detail}
}

func (r *recorder) Closed(s *Session) { r.events <- closed{s} }

// Record and Inc make it an auditor and counter.
func (r *recorder) Record(event, subject, object string, reason cats.Reason, detail string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.refusal = append(r.refusal, strings.Join([]string{event, subject, object, reason.String(), detail}, " "))
}

func (r *recorder) RecordFrom(_, event, subject, object string, reason cats.Reason, detail string) bool {
	r.Record(event, subject, object, reason, detail)
	return true
}

func (r *recorder) Inc(cats.Reason) {}

// source is a handler of a client that notes what it is told.
type source struct{ events chan any }

type up struct{}
type down struct{ err error }

func (s *source) Opened(string)                      { s.events <- up{} }
func (s *source) Feedback(_ string, f cats.Feedback) { s.events <- f }
func (s *source) Closed(_ string, err error)         { s.events <- down{err} }

func (d *domain) options(c *trust.Credentials) (ClientOptions, *source) {
	s := &source{make(chan any, 1000)}
	return ClientOptions{Credentials: c, Peer: config.Peer{Address: d.address, Name: "cps-1"}, Audit: d.cps, Handler: s}, s
}

// start runs a client until the test ends, or until stop.
func start[U any](t *testing.T, c *Client[U]) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

func metricUpdate(sequence uint64) cats.MetricUpdate {
	return cats.MetricUpdate{
		UpdateHeader: cats.UpdateHeader{Source: "csma-1", Site: "edge-1", Epoch: 7, Sequence: sequence, Timestamp: time.Now(), Kind: cats.UpdateFull, TTL: 150 * time.Second},
		Records: []cats.Record{{
			CSID: "S1", CSCIID: "198.51.100.11:443", Version: "1", Health: cats.Healthy, Reporting: cats.ReportingHealthy,
			Metrics:     cats.Metrics{GAS: 100, ComputingTimeMS: 5, Price: cats.Some[uint32](0), Extensions: map[string]float64{"x": 0.5, "y": -1}},
			ReportEpoch: 3, ReportSequence: 9, Age: 1500 * time.Millisecond,
		}},
	}
}

func TestClientAndServer(t *testing.T) {
	t.Run("metrics up, feedback down, both ways of ending", func(t *testing.T) {
		d := newDomain(t)
		d.cps.hello = cats.Feedback{Epoch: 6, Sequence: 40}
		options, source := d.options(d.Credentials(trust.CSMA, "csma-1"))
		c, err := NewMetricClient(options)
		if err != nil {
			t.Fatal(err)
		}
		if c.Send(metricUpdate(1)) {
			t.Error("an update was taken without a session")
		}
		start(t, c)
		testenv.Want[up](t, source.events)
		if f := testenv.Want[cats.Feedback](t, source.events); f.Kind != cats.FeedbackHello || f.Epoch != 6 || f.Sequence != 40 {
			t.Errorf("greeting %+v", f)
		}
		session := testenv.Want[opened](t, d.cps.events).session
		if p := session.Peer(); p.Role != trust.CSMA || p.Name != "csma-1" {
			t.Errorf("peer %v", p)
		}
		sent := metricUpdate(1)
		sent.Timestamp = time.Time{} // it is the client's to set
		if !c.Send(sent) {
			t.Fatal("not taken")
		}
		got := testenv.Want[cats.MetricUpdate](t, d.cps.events)
		// SM-8.3-1: the timestamp is always there.
		if off := time.Since(got.Timestamp); off < -time.Second || off > testenv.Patience {
			t.Errorf("timestamp off by %v", off)
		}
		sent.Timestamp = got.Timestamp
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", sent) {
			t.Errorf("got  %+v\nsent %+v", got, sent)
		}
		if f := testenv.Want[cats.Feedback](t, source.events); f.Kind != cats.FeedbackApplied || f.Epoch != 7 || f.Sequence != 1 {
			t.Errorf("feedback %+v", f)
		}
		session.Close(errors.New("enough for now"))
		testenv.Want[closed](t, d.cps.events)
		if e := testenv.Want[down](t, source.events); e.err == nil || !strings.Contains(e.err.Error(), "enough for now") {
			t.Errorf("the client is told %v", e.err)
		}
		testenv.Want[up](t, source.events) // it tries again by itself
		testenv.Want[cats.Feedback](t, source.events)
		if again := testenv.Want[opened](t, d.cps.events).session; again.ID() <= session.ID() {
			t.Errorf("session %d after %d", again.ID(), session.ID())
		}
	})
	t.Run("the largest update that is legal", func(t *testing.T) {
		d := newDomain(t)
		options, source := d.options(d.Credentials(trust.CSMA, "csma-1"))
		c, err := NewMetricClient(options)
		if err != nil {
			t.Fatal(err)
		}
		start(t, c)
		testenv.Want[up](t, source.events)
		testenv.Want[cats.Feedback](t, source.events)
		testenv.Want[opened](t, d.cps.events)
		sent := wiretest.MetricUpdate("csma-1")
		if !c.Send(sent) {
			t.Fatal("not taken")
		}
		got := testenv.Want[cats.MetricUpdate](t, d.cps.events)
		if last := len(sent.Records) - 1; len(got.Records) != len(sent.Records) || fmt.Sprintf("%+v", got.Records[last]) != fmt.Sprintf("%+v", sent.Records[last]) {
			t.Errorf("%d records, the last is not what was sent", len(got.Records))
		}
		if f := testenv.Want[cats.Feedback](t, source.events); f.Kind != cats.FeedbackApplied {
			t.Errorf("feedback %+v", f)
		}
	})
	t.Run("network up", func(t *testing.T) {
		d := newDomain(t)
		options, source := d.options(d.Credentials(trust.CNMA, "cnma-1"))
		c, err := NewNetworkClient(options)
		if err != nil {
			t.Fatal(err)
		}
		start(t, c)
		testenv.Want[up](t, source.events)
		testenv.Want[opened](t, d.cps.events)
		sent := cats.NetworkUpdate{
			UpdateHeader: cats.UpdateHeader{Source: "cnma-1", Epoch: 7, Sequence: 1, Kind: cats.UpdateFull, TTL: 30 * time.Second},
			Nodes:        []cats.Node{{Name: "IF-1"}, {Name: "R1"}}, Links: []cats.Link{{From: "IF-1", To: "R1", DelayUS: 500}},
		}
		if !c.Send(sent) {
			t.Fatal("not taken")
		}
		if got := testenv.Want[cats.NetworkUpdate](t, d.cps.events); len(got.Nodes) != 2 || got.Links[0].DelayUS != 500 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("a later session of the same source takes the place of the first", func(t *testing.T) {
		d := newDomain(t)
		credentials := d.Credentials(trust.CSMA, "csma-1")
		one, source := d.options(credentials)
		c, err := NewMetricClient(one)
		if err != nil {
			t.Fatal(err)
		}
		stop := start(t, c)
		testenv.Want[up](t, source.events)
		testenv.Want[cats.Feedback](t, source.events)
		first := testenv.Want[opened](t, d.cps.events).session
		call := d.call(credentials)
		if gone := testenv.Want[closed](t, d.cps.events).session; gone != first { // before the next is opened
			t.Error("another session than the first was closed")
		}
		testenv.Want[opened](t, d.cps.events)
		testenv.Want[down](t, source.events)
		stop()
		if _, err := call.Recv(); err != nil { // its greeting
			t.Error(err)
		}
	})
	t.Run("one name in two roles is two sources", func(t *testing.T) {
		d := newDomain(t)
		metric, metricSource := d.options(d.Credentials(trust.CSMA, "both"))
		network, networkSource := d.options(d.Credentials(trust.CNMA, "both"))
		m, err := NewMetricClient(metric)
		if err != nil {
			t.Fatal(err)
		}
		n, err := NewNetworkClient(network)
		if err != nil {
			t.Fatal(err)
		}
		start(t, m)
		testenv.Want[opened](t, d.cps.events)
		start(t, n)
		testenv.Want[opened](t, d.cps.events)
		testenv.Want[up](t, metricSource.events)
		testenv.Want[up](t, networkSource.events)
		u := metricUpdate(5)
		u.Source = "both"
		m.Send(u)
		testenv.Want[cats.MetricUpdate](t, d.cps.events)
		n.Send(cats.NetworkUpdate{UpdateHeader: cats.UpdateHeader{Source: "both", Epoch: 7, Sequence: 5, Kind: cats.UpdateFull, TTL: time.Minute}})
		testenv.Want[cats.NetworkUpdate](t, d.cps.events)
	})
	t.Run("a slow C-PS ends the session, not the source", func(t *testing.T) {
		d := newDomain(t)
		options, source := d.options(d.Credentials(trust.CSMA, "csma-1"))
		c, err := NewMetricClient(options)
		if err != nil {
			t.Fatal(err)
		}
		start(t, c)
		testenv.Want[up](t, source.events)
		testenv.Want[opened](t, d.cps.events)
		d.cps.mutex.Lock()
		d.cps.gate = make(chan struct{})
		d.cps.mutex.Unlock()
		defer close(d.cps.gate)
		big := metricUpdate(1)
		for i := range 5000 {
			r := big.Records[0]
			r.CSCIID = cats.CSCIID(fmt.Sprint("I", i))
			big.Records = append(big.Records, r)
		}
		for sequence := uint64(1); ; sequence++ {
			big.Sequence = sequence
			if !c.Send(big) {
				break
			}
			if sequence > 10000 {
				t.Fatal("ten thousand updates of 5,000 rows fit into a bounded queue")
			}
		}
	})
}

// call opens a session by hand, for what the Client never does.
func (d *domain) call(c *trust.Credentials) pb.MetricService_ReportMetricsClient {
	d.t.Helper()
	conn, err := c.Dial(d.address, c.Peer(trust.CPS, "cps-1"), d.cps)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	d.t.Cleanup(cancel)
	call, err := pb.NewMetricServiceClient(conn).ReportMetrics(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	return call
}

func TestRefusals(t *testing.T) {
	type attempt struct {
		update cats.MetricUpdate
		spoil  func(*pb.MetricUpdate)
		key    *trust.Credentials // that seals; nil: its own
	}
	for _, test := range []struct {
		name   string
		change func(*attempt, *domain)
		want   cats.Reason
		ends   bool // the session too
	}{
		{"SM-8.3-1 no seal", func(a *attempt, _ *domain) { a.spoil = func(m *pb.MetricUpdate) { m.Auth = nil } }, cats.ReasonBadSignature, true},
		{"SM-8.3-1 another's key", func(a *attempt, d *domain) { a.key = d.Credentials(trust.CSMA, "both") }, cats.ReasonBadSignature, true},
		{"SM-8.3-1 no timestamp", func(a *attempt, _ *domain) { a.spoil = func(m *pb.MetricUpdate) { m.Header.TimestampMs = 0 } }, cats.ReasonMalformed, true},
		{"SM-8.3-1 no nonce", func(a *attempt, _ *domain) { a.spoil = func(m *pb.MetricUpdate) { m.Header.Seq = 0 } }, cats.ReasonMalformed, true},
		{"SM-8.3-1 a timestamp that was not sealed", func(a *attempt, _ *domain) { a.spoil = func(m *pb.MetricUpdate) { m.Header.TimestampMs++ } }, cats.ReasonBadSignature, true},
		{"a slot more than was sealed", func(a *attempt, _ *domain) { a.spoil = func(m *pb.MetricUpdate) { m.Records[0].Metrics.Gas++ } }, cats.ReasonBadSignature, true},
		{"a row less than was sealed", func(a *attempt, _ *domain) { a.spoil = func(m *pb.MetricUpdate) { m.Records = nil } }, cats.ReasonBadSignature, true},
		{"another's name", func(a *attempt, _ *domain) { a.update.Source = "both" }, cats.ReasonUnauthorized, true},
		{"out of range", func(a *attempt, _ *domain) { a.update.Records[0].Metrics.Reputation = cats.Some[uint8](11) }, cats.ReasonRange, true},
		{"malformed", func(a *attempt, _ *domain) { a.spoil = func(m *pb.MetricUpdate) { m.Records[0].CsId = "S 1" } }, cats.ReasonMalformed, true},
		{"SM-8.3-1 31 s old", func(a *attempt, _ *domain) { a.update.Timestamp = time.Now().Add(-31 * time.Second) }, cats.ReasonReplay, false},
		{"SM-8.3-1 61 s ahead", func(a *attempt, _ *domain) { a.update.Timestamp = time.Now().Add(61 * time.Second) }, cats.ReasonReplay, false},
		{"SM-8.3-1 SM-8.3-2 a sequence seen before", func(a *attempt, _ *domain) { a.update.Sequence = 10 }, cats.ReasonReplay, false},
		{"SM-8.3-2 a sequence below", func(a *attempt, _ *domain) { a.update.Sequence = 9 }, cats.ReasonSequence, false},
		{"SM-8.3-2 an epoch below", func(a *attempt, _ *domain) { a.update.Epoch, a.update.Sequence = 6, 99 }, cats.ReasonSequence, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDomain(t)
			d.server.Restore(trust.CSMA, "csma-1", 7, 10)
			own := d.Credentials(trust.CSMA, "csma-1")
			call := d.call(own)
			testenv.Want[opened](t, d.cps.events)
			if _, err := call.Recv(); err != nil {
				t.Fatal(err)
			}
			a := attempt{update: metricUpdate(11), key: own, spoil: func(*pb.MetricUpdate) {}}
			test.change(&a, d)
			send(t, call, a.update, a.key, a.spoil)
			if r := testenv.Want[refused](t, d.cps.events); r.reason != test.want {
				t.Errorf("refused for %v (%s), want %v", r.reason, r.detail, test.want)
			}
			m, err := call.Recv()
			if test.ends {
				if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.want.String()) {
					t.Errorf("the session goes on with %v, %v", m, err)
				}
				return
			}
			if got := m.GetFeedback().GetRefused(); err != nil || got.GetReason() != v1alpha1.EncodeReason(test.want) || got.GetSeq() != a.update.Sequence {
				t.Fatalf("feedback %v, %v", m, err)
			}
			send(t, call, metricUpdate(11), own, func(*pb.MetricUpdate) {})
			if u := testenv.Want[cats.MetricUpdate](t, d.cps.events); u.Sequence != 11 {
				t.Errorf("then %+v", u)
			}
		})
	}
	t.Run("what was replayed in a new session", func(t *testing.T) {
		d := newDomain(t)
		own := d.Credentials(trust.CSMA, "csma-1")
		u := metricUpdate(1)
		for i := range 2 {
			call := d.call(own)
			if i > 0 {
				testenv.Want[closed](t, d.cps.events)
			}
			testenv.Want[opened](t, d.cps.events)
			send(t, call, u, own, func(*pb.MetricUpdate) {})
			if i == 0 {
				testenv.Want[cats.MetricUpdate](t, d.cps.events)
			} else if r := testenv.Want[refused](t, d.cps.events); r.reason != cats.ReasonReplay {
				t.Errorf("refused for %v", r.reason)
			}
		}
	})
	t.Run("SM-8.3-1 a tolerance of its own", func(t *testing.T) {
		d := newDomainWith(t, time.Hour)
		own := d.Credentials(trust.CSMA, "csma-1")
		call := d.call(own)
		testenv.Want[opened](t, d.cps.events)
		u := metricUpdate(1)
		u.Timestamp = time.Now().Add(-50 * time.Minute)
		send(t, call, u, own, func(*pb.MetricUpdate) {})
		testenv.Want[cats.MetricUpdate](t, d.cps.events)
		u.Sequence, u.Timestamp = 2, time.Now().Add(-61*time.Minute)
		send(t, call, u, own, func(*pb.MetricUpdate) {})
		if r := testenv.Want[refused](t, d.cps.events); r.reason != cats.ReasonReplay {
			t.Errorf("refused for %v", r.reason)
		}
	})
}

func send(t *testing.T, call pb.MetricService_ReportMetricsClient, u cats.MetricUpdate, by *trust.Credentials, spoil func(*pb.MetricUpdate)) {
	t.Helper()
	key, err := by.SigningKey()
	if err != nil {
		t.Fatal(err)
	}
	auth, err := sealed.SignEd25519(key, u.Source, sealed.CanonicalMetricUpdate(&u))
	if err != nil {
		t.Fatal(err)
	}
	m := v1alpha1.EncodeMetricUpdate(&u, auth)
	spoil(m)
	if err := call.Send(&pb.ReportMetricsRequest{Message: &pb.ReportMetricsRequest_Update{Update: m}}); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func TestTransportSecurity(t *testing.T) {
	t.Run("SM-6.1-4 plain text gets nowhere", func(t *testing.T) {
		d := newDomain(t)
		conn, err := net.Dial("tcp", string(d.address))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(testenv.Patience)); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn) // a TLS alert at most
		if err != nil && errors.Is(err, context.DeadlineExceeded) || len(answer) > 7 {
			t.Errorf("it answered %q, %v", answer, err)
		}
	})
	t.Run("SM-6.1-4 without a certificate, below TLS 1.3, or of another authority", func(t *testing.T) {
		d := newDomain(t)
		other := newDomain(t)
		stranger := other.Credentials(trust.CSMA, "csma-1")
		for name, config := range map[string]*tls.Config{
			"no certificate": {InsecureSkipVerify: true},
			"TLS 1.2":        {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12},
		} {
			conn, err := tls.Dial("tcp", string(d.address), config)
			if err == nil { // TLS 1.3 tells the client of its refusal with the first read
				if err = conn.SetReadDeadline(time.Now().Add(testenv.Patience)); err != nil {
					t.Fatal(err)
				}
				_, err = conn.Read(make([]byte, 1))
				conn.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "tls:") {
				t.Errorf("%s: %v", name, err)
			}
		}
		options, source := d.options(stranger)
		c, err := NewMetricClient(options)
		if err != nil {
			t.Fatal(err)
		}
		start(t, c)
		if e := testenv.Want[down](t, source.events); e.err == nil {
			t.Error("no reason")
		}
	})
	t.Run("SM-6.1-4 the source talks to the C-PS that it means, and to no other", func(t *testing.T) {
		d := newDomain(t)
		options, source := d.options(d.Credentials(trust.CSMA, "csma-1"))
		options.Peer.Name = "cps-2"
		c, err := NewMetricClient(options)
		if err != nil {
			t.Fatal(err)
		}
		start(t, c)
		if e := testenv.Want[down](t, source.events); !strings.Contains(e.err.Error(), "cps-2") {
			t.Errorf("%v", e.err)
		}
	})
	t.Run("each role has its own call, and a name has to be on the roster", func(t *testing.T) {
		d := newDomain(t)
		options, source := d.options(d.Credentials(trust.CSMA, "csma-1"))
		wrongCall, err := NewNetworkClient(options)
		if err != nil {
			t.Fatal(err)
		}
		start(t, wrongCall)
		if e := testenv.Want[down](t, source.events); status.Code(e.err) != codes.PermissionDenied {
			t.Errorf("a C-SMA as C-NMA: %v", e.err)
		}
		options, source = d.options(d.Credentials(trust.CSMA, "csma-9"))
		unknown, err := NewMetricClient(options)
		if err != nil {
			t.Fatal(err)
		}
		start(t, unknown)
		testenv.Want[down](t, source.events)
		d.cps.mutex.Lock()
		defer d.cps.mutex.Unlock()
		if log := strings.Join(d.cps.refusal, "\n"); !strings.Contains(log, "csma/csma-1") || !strings.Contains(log, "csma/csma-9") {
			t.Errorf("audited: %s", log)
		}
	})
	t.Run("a key that cannot seal is found when the client is made", func(t *testing.T) {
		d := newDomain(t)
		options, _ := d.options(d.Credentials(trust.CPS, "cps-1"))
		if _, err := NewMetricClient(options); err == nil || !strings.Contains(err.Error(), "Ed25519") {
			t.Errorf("%v", err)
		}
	})
}
