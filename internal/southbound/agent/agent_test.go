package agent

import (
	"context"
	"fmt"

	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/trusttest"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
	"github.com/margay-net/margay/internal/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// domain is a lab authority with one C-PS.
type domain struct {
	t *testing.T
	trusttest.Authority
	address endpoint.Address
	cps     *recorder
	server  *Server
	stop    func()
}

func newDomain(t *testing.T) *domain {
	t.Helper()
	d := &domain{t: t, Authority: trusttest.New(t), cps: &recorder{events: make(chan any, 10_000)}}
	d.serve("127.0.0.1:0")
	return d
}

// serve starts the C-PS; stop ends it.
func (d *domain) serve(address endpoint.Address) {
	d.t.Helper()
	guard := trust.NewGuard(trust.Roster{trust.Forwarder: {"IF-1", "EF-1"}}, Methods(), trusttest.Ignore{}, trusttest.Ignore{})
	server := trust.NewServer(d.Credentials(trust.CPS, "cps-1"), guard)
	d.server = NewServer(d.cps)
	d.server.Register(server)
	listener, err := trust.Listen(address)
	if err != nil {
		d.t.Fatal(err)
	}
	d.address = endpoint.Address(listener.Addr().String())
	d.stop = trusttest.Serve(d.t, server, listener, d.server.Wait)
}

// recorder notes what happens at one end.
type recorder struct{ events chan any }

type (
	batch struct {
		session *Session
		cats.ForwarderBatch
	}
	refused struct {
		reason cats.Reason
		detail string
	}
	closed struct{ session *Session }
	opened struct{}
	lost   struct{ err error }
)

func (r *recorder) Batch(s *Session, b cats.ForwarderBatch) { r.events <- batch{s, b} }
func (r *recorder) Refused(_ *Session, reason cats.Reason, detail string) {
	r.events <- refused{reason, detail}
}
func (r *recorder) Closed(s *Session) { r.events <- closed{s} }

// agentEnd notes what happens at the forwarder's end.
type agentEnd struct{ events chan any }

func (r *agentEnd) Opened(string)                            { r.events <- opened{} }
func (r *agentEnd) Steering(_ string, b *cats.SteeringBatch) { r.events <- b }
func (r *agentEnd) Closed(_ string, err error)               { r.events <- lost{err} }

// agent runs a forwarder's client until the test ends.
func (d *domain) agent(name string) (*Client, *agentEnd) {
	d.t.Helper()
	end := &agentEnd{events: make(chan any, 10_000)}
	client := NewClient(ClientOptions{Credentials: d.Credentials(trust.Forwarder, name), Peer: config.Peer{Address: d.address, Name: "cps-1"}, Handler: end})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { client.Run(ctx) })
	d.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return client, end
}

var (
	transaction = cats.Transaction{1, 2, 3}
	epoch       = cats.Epoch{Term: 4}
)

func tuple() cats.Tuple {
	return cats.Tuple{Protocol: cats.TCP, Source: netip.MustParseAddrPort("192.0.2.10:51000"), Target: netip.MustParseAddrPort("192.0.2.100:443")}
}

func binding(n int) cats.Binding {
	b := cats.Binding{
		Transaction: transaction, Epoch: epoch, Version: 1, Match: cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: tuple()},
		CSID: "S1", ServiceNumber: 1, CSCIID: "198.51.100.21:443", Locator: cats.Locator{Protocol: cats.TCP, Address: netip.MustParseAddrPort("198.51.100.21:443")},
		Attachment: netip.MustParseAddr("2001:db8:0:e2::21"), Ingress: "IF-1", Egress: "EF-1", Idle: time.Hour, Slots: 1, CSTGeneration: 2, NSTGeneration: 3,
		PolicyVersion: "latency/5%/spread@1", Decided: cats.Instant(time.Hour),
		Path: cats.Path{Segments: []netip.Addr{netip.MustParseAddr("2001:db8:0:e2::21")}, Nodes: []string{"IF-1", "EF-1"}, Generation: 7, DelayUS: 1000},
	}
	b.Transaction[15] = byte(n)
	b.Transaction[14] = byte(n >> 8)
	b.Reverse = cats.Reverse{
		Service: cats.Tuple{Protocol: cats.TCP, Source: b.Locator.Address, Target: tuple().Source}, Client: tuple().Reverse(), Restore: tuple().Target,
		Path: cats.Path{Segments: []netip.Addr{netip.MustParseAddr("2001:db8:0:1::100")}, Nodes: []string{"EF-1", "IF-1"}, Generation: 7, DelayUS: 1000},
	}
	return b
}

func hello(name string, bindings ...cats.Binding) cats.ForwarderBatch {
	var held []cats.HeldBinding
	for _, b := range bindings {
		held = append(held, cats.HeldBinding{Half: cats.EgressHalf, State: cats.Draining, Reason: cats.ReasonIdle, Binding: b})
	}
	return cats.ForwarderBatch{Hello: &cats.ForwarderHello{
		Name: name, BootID: "boot", LayoutVersion: cats.LayoutVersion, Capabilities: cats.Capabilities{Encapsulations: cats.EncapSRv6, MaxSegments: 10},
		ReturnSID: netip.MustParseAddr("2001:db8:0:1::100"), Attachments: []cats.ClientAttachment{{Name: "client-1", Tenant: "default"}},
		Highest: []cats.ShardEpoch{{Epoch: cats.Epoch{Term: 3}}}, Bindings: held,
	}}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// carriers finds a field of a request in which octets of the client's packet could travel: one of octets, text or of any
// type beside the names and addresses that the request has.
func carriers(t *testing.T, message protoreflect.MessageDescriptor) {
	t.Helper()
	names := []protoreflect.Name{"transaction", "cs_id", "ingress", "attachment", "tenant", "address"}
	for i := range message.Fields().Len() {
		switch field := message.Fields().Get(i); {
		case field.IsMap(), field.IsList():
			t.Errorf("%s can carry a packet", field.FullName())
		case field.Message() != nil:
			carriers(t, field.Message())
		case (field.Kind() == protoreflect.BytesKind || field.Kind() == protoreflect.StringKind) && !slices.Contains(names, field.Name()):
			t.Errorf("%s can carry a packet", field.FullName())
		}
	}
}

func TestSession(t *testing.T) {
	d := newDomain(t)
	client, end := d.agent("IF-1")
	testenv.Want[opened](t, end.events)

	t.Run("CP-8.1-4 requests reach the C-PS over the authenticated channel, as they were sent, and have no room for payload", func(t *testing.T) {
		carriers(t, (&pb.ServiceRequest{}).ProtoReflect().Descriptor())
		client.Send(hello("IF-1", binding(1)))
		first := testenv.Want[batch](t, d.cps.events)
		if first.session.Peer().Name != "IF-1" || first.session.Peer().Role != trust.Forwarder {
			t.Errorf("peer %s", first.session.Peer())
		}
		equal(t, first.ForwarderBatch, hello("IF-1", binding(1)))
		sent := cats.ForwarderBatch{
			Requests: []cats.ServiceRequest{{Transaction: transaction, CSID: "S1", Key: binding(0).Match, Ingress: "IF-1", Remaining: 2 * time.Second,
				RequestGeneration: cats.Some[uint16](3)}},
		}
		client.Send(sent)
		equal(t, testenv.Want[batch](t, d.cps.events).ForwarderBatch, sent)
		statuses := cats.ForwarderBatch{Statuses: []cats.BindingStatus{{Transaction: transaction, Forwarder: "IF-1", Half: cats.EgressHalf, Version: 1, PathUp: true,
			Forward: cats.Usage{Packets: 1, Octets: 60}}}}
		client.Send(statuses)
		got := testenv.Want[batch](t, d.cps.events)
		equal(t, got.ForwarderBatch, statuses)

		orders := cats.SteeringBatch{
			Provision: &cats.Provision{Generation: 1, Epoch: epoch, Deliveries: []cats.Delivery{{CSCIID: "a", Locator: binding(0).Locator, SID: binding(0).Attachment}}},
			Removes:   []cats.Remove{{Transaction: transaction, Epoch: epoch, Half: cats.EgressHalf, Reason: cats.ReasonIdle}},
			Drains:    []cats.Drain{{Transaction: transaction, Epoch: epoch, Reason: cats.ReasonFinished}},
			Installs:  []cats.Install{{Half: cats.EgressHalf, Binding: binding(2)}},
			Refusals:  []cats.Refuse{{Transaction: transaction, Epoch: epoch, Reason: cats.ReasonNoCandidate, Stage: "slots", Detail: "none left"}},
		}
		got.session.Send(orders)
		equal(t, testenv.Want[*cats.SteeringBatch](t, end.events), &orders)
	})
	t.Run("the largest batch that still is one message", func(t *testing.T) {
		client.Send(cats.ForwarderBatch{Statuses: []cats.BindingStatus{{Transaction: transaction, Forwarder: "IF-1", Version: 1}}})
		session := testenv.Want[batch](t, d.cps.events).session
		orders := wiretest.Steering(binding(3))
		if n := len(v1alpha1.EncodeSteering(&orders)); n != 1 {
			t.Fatalf("%d messages", n)
		}
		session.Send(orders)
		got := testenv.Want[*cats.SteeringBatch](t, end.events)
		if len(got.Provision.Deliveries) != v1alpha1.MaxRows || len(got.Installs) != v1alpha1.MaxBatch || len(got.Refusals) != v1alpha1.MaxBatch {
			t.Errorf("%d deliveries, %d installs, %d refusals", len(got.Provision.Deliveries), len(got.Installs), len(got.Refusals))
		}
		equal(t, got.Installs[v1alpha1.MaxBatch-1], orders.Installs[v1alpha1.MaxBatch-1])
	})
	t.Run("a hello and a batch that are too large for one message arrive whole and in order", func(t *testing.T) {
		other, otherEnd := d.agent("EF-1")
		testenv.Want[opened](t, otherEnd.events)
		all := make([]cats.Binding, 3000)
		for i := range all {
			all[i] = binding(i + 1)
		}
		other.Send(hello("EF-1", all...))
		first := testenv.Want[batch](t, d.cps.events)
		equal(t, first.ForwarderBatch, hello("EF-1", all...))
		var orders cats.SteeringBatch
		for i := range all {
			orders.Removes = append(orders.Removes, cats.Remove{Transaction: all[i].Transaction, Epoch: epoch, Reason: cats.ReasonIdle})
			orders.Installs = append(orders.Installs, cats.Install{Binding: all[i]})
		}
		first.session.Send(orders)
		var removes, installs int
		for removes+installs < 6000 {
			b := testenv.Want[*cats.SteeringBatch](t, otherEnd.events)
			if len(b.Removes) > 0 && installs > 0 {
				t.Fatal("a removal came after an install")
			}
			removes, installs = removes+len(b.Removes), installs+len(b.Installs)
		}
		if removes != 3000 || installs != 3000 {
			t.Errorf("%d removes, %d installs", removes, installs)
		}
	})
}

func TestTheLaterSessionOfAForwarderCounts(t *testing.T) {
	d := newDomain(t)
	first, firstEnd := d.agent("IF-1")
	testenv.Want[opened](t, firstEnd.events)
	first.Send(hello("IF-1"))
	old := testenv.Want[batch](t, d.cps.events).session
	call, cancel := d.raw("IF-1")
	defer cancel()
	sendHello(t, call, "IF-1")
	if c := testenv.Want[closed](t, d.cps.events); c.session != old {
		t.Error("another session was closed")
	}
	next := testenv.Want[batch](t, d.cps.events).session
	if next.ID() <= old.ID() {
		t.Errorf("session %d after %d", next.ID(), old.ID())
	}
	if l := testenv.Want[lost](t, firstEnd.events); !strings.Contains(l.err.Error(), "later session") {
		t.Errorf("the first was told %v", l.err)
	}
	if old.Send(cats.SteeringBatch{}) {
		t.Error("the old session still takes messages")
	}
}

// raw opens a stream without a Client.
func (d *domain) raw(name string) (pb.SteeringService_SteerClient, context.CancelFunc) {
	d.t.Helper()
	c := d.Credentials(trust.Forwarder, name)
	conn, err := c.Dial(d.address, c.Peer(trust.CPS, "cps-1"), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.t.Cleanup(func() { cancel(); conn.Close() })
	call, err := pb.NewSteeringServiceClient(conn).Steer(ctx, grpc.WaitForReady(true))
	if err != nil {
		d.t.Fatal(err)
	}
	return call, cancel
}

func sendHello(t *testing.T, call pb.SteeringService_SteerClient, name string) {
	t.Helper()
	b := hello(name)
	for _, m := range v1alpha1.EncodeForwarder(&b) {
		if err := call.Send(m); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMessagesThatBreakTheContract(t *testing.T) {
	for name, c := range map[string]struct {
		messages []*pb.SteerRequest
		reason   cats.Reason
	}{
		"a message before the hello": {[]*pb.SteerRequest{{Statuses: []*pb.BindingStatus{{Transaction: transaction[:], Forwarder: "IF-1", Half: pb.Half_HALF_EGRESS, Version: 1, Result: pb.BindingResult_BINDING_RESULT_INSTALLED}}}}, cats.ReasonMalformed},
		"an empty message":           {[]*pb.SteerRequest{{}}, cats.ReasonMalformed},
		"a hello without a boot id":  {[]*pb.SteerRequest{{Hello: &pb.ForwarderHello{Name: "IF-1"}}}, cats.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDomain(t)
			call, cancel := d.raw("IF-1")
			defer cancel()
			for _, m := range c.messages {
				if err := call.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			r := testenv.Want[refused](t, d.cps.events)
			if r.reason != c.reason || r.detail == "" {
				t.Errorf("%+v", r)
			}
			testenv.Want[closed](t, d.cps.events)
			if _, err := call.Recv(); err == nil || !strings.Contains(err.Error(), r.detail) {
				t.Errorf("the forwarder was told %v, want %q", err, r.detail)
			}
		})
	}
	t.Run("a second hello", func(t *testing.T) {
		d := newDomain(t)
		call, cancel := d.raw("IF-1")
		defer cancel()
		sendHello(t, call, "IF-1")
		testenv.Want[batch](t, d.cps.events)
		sendHello(t, call, "IF-1")
		if r := testenv.Want[refused](t, d.cps.events); r.reason != cats.ReasonDuplicate {
			t.Errorf("%+v", r)
		}
		testenv.Want[closed](t, d.cps.events)
	})
}

func TestAnotherRoleOrNameHasNoSession(t *testing.T) {
	d := newDomain(t)
	for _, who := range []struct {
		role trust.Role
		name string
	}{{trust.Forwarder, "EF-9"}, {trust.CSMA, "IF-1"}} {
		t.Run(fmt.Sprintf("CP-12-2 %s %s", who.role, who.name), func(t *testing.T) {
			end := &agentEnd{events: make(chan any, 10)}
			client := NewClient(ClientOptions{Credentials: d.Credentials(who.role, who.name), Peer: config.Peer{Address: d.address, Name: "cps-1"}, Handler: end})
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() { client.Run(ctx) })
			if l := testenv.Want[lost](t, end.events); l.err == nil {
				t.Error("closed without a reason")
			}
			cancel()
			running.Wait()
			if d.server.Open() != 0 || client.Send(hello(who.name)) {
				t.Error("there is a session")
			}
		})
	}
}

func TestReconnection(t *testing.T) {
	d := newDomain(t)
	client, end := d.agent("IF-1")
	testenv.Want[opened](t, end.events)
	client.Send(hello("IF-1"))
	testenv.Want[batch](t, d.cps.events)
	d.stop()
	testenv.Want[lost](t, end.events)
	if client.Send(hello("IF-1")) {
		t.Error("a message was taken without a session")
	}
	testenv.Want[closed](t, d.cps.events)
	d.serve(d.address)
	for { // until the C-PS is back
		select {
		case e := <-end.events:
			if _, ok := e.(opened); !ok {
				continue
			}
		case <-time.After(testenv.Patience):
			t.Fatal("no new session")
		}
		break
	}
	client.Send(hello("IF-1"))
	testenv.Want[batch](t, d.cps.events)
}

func TestAForwarderThatReadsNothingIsGivenUp(t *testing.T) {
	d := newDomain(t)
	call, cancel := d.raw("IF-1")
	defer cancel()
	sendHello(t, call, "IF-1")
	s := testenv.Want[batch](t, d.cps.events).session
	big := cats.SteeringBatch{Installs: make([]cats.Install, 1000)}
	for i := range big.Installs {
		big.Installs[i].Binding = binding(i + 1)
	}
	for range 100_000 {
		if !s.Send(big) {
			testenv.Want[closed](t, d.cps.events)
			return
		}
	}
	t.Fatal("the queue takes everything")
}
