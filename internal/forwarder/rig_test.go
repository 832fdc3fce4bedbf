package forwarder_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

// The names and addresses of CP section 14.
var (
	clientAddr  = netip.MustParseAddr("192.0.2.10")
	serviceAddr = netip.MustParseAddrPort("192.0.2.100:443")
	dnsAddr     = netip.MustParseAddrPort("192.0.2.100:53")
	locator     = netip.MustParseAddrPort("198.51.100.21:443")
	attachSID   = netip.MustParseAddr("2001:db8:0:e2::21")
	returnSID   = netip.MustParseAddr("2001:db8:0:1::100")
	transitSID  = netip.MustParseAddr("2001:db8:0:f1::1")
	epoch1      = cats.Epoch{Term: 1, Counter: 1}
)

const csciB cats.CSCIID = "198.51.100.21:443"

// rig drives one core the way a shell does: it keeps the clock, answers operations, and remembers what came out.
type rig struct {
	t      testing.TB
	core   *forwarder.Core
	now    cats.Instant
	next   cats.Instant
	out    forwarder.Effects
	handle uint64

	unanswered []forwarder.Operation
	released   map[uint64]cats.Transaction
	dropped    map[uint64]cats.Reason
	requests   []cats.ServiceRequest
	statuses   []cats.BindingStatus
	journal    []forwarder.JournalEntry
}

func config(name string) forwarder.Config {
	return forwarder.Config{
		Name: name, BootID: "boot-1", Identity: [8]byte{0xb0, 0x07}, LayoutVersion: 1, ReturnSID: returnSID,
		Capabilities: cats.Capabilities{Encapsulations: cats.EncapNone | cats.EncapSRv6, MaxSegments: 10},
		Attachments: []forwarder.Attachment{
			{Name: "client-1", Tenant: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:c::/48")}},
			{Name: "client-2", Tenant: "other", Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}},
		},
	}
}

func provision(generation uint64, epoch cats.Epoch) *cats.Provision {
	return &cats.Provision{
		Generation: generation, Epoch: epoch,
		Services: []cats.ServiceRule{
			{Number: 1, CSID: "S1", Prefix: netip.MustParsePrefix("192.0.2.100/32"), Protocol: cats.TCP, Port: 443},
			{Number: 2, CSID: "S2", Prefix: netip.MustParsePrefix("192.0.2.100/32"), Protocol: cats.UDP, Port: 53},
			{Number: 3, CSID: "S3", Prefix: netip.MustParsePrefix("192.0.2.101/32"), Protocol: cats.TCP, Port: 443},
		},
		Deliveries: []cats.Delivery{
			{CSCIID: csciB, Locator: cats.Locator{Protocol: cats.TCP, Address: locator}, SID: attachSID},
			{CSCIID: "dns", Locator: cats.Locator{Protocol: cats.UDP, Address: locator}, SID: attachSID},
		},
	}
}

// newRig gives a core with a session, the provision in force, and no effects left over.
func newRig(t testing.TB, change ...func(*forwarder.Config)) *rig {
	t.Helper()
	cfg := config("IF-1")
	for _, f := range change {
		f(&cfg)
	}
	g := start(t, cfg, forwarder.Restored{})
	g.session(forwarder.SessionUp)
	g.steer(&cats.SteeringBatch{Provision: provision(1, epoch1)})
	g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 1, Deliveries: []cats.CSCIID{csciB}}})
	g.forget()
	return g
}

func start(t testing.TB, cfg forwarder.Config, restored forwarder.Restored) *rig {
	g := &rig{t: t, now: cats.Instant(1_000_000 * time.Second), released: map[uint64]cats.Transaction{}, dropped: map[uint64]cats.Reason{}}
	g.core = forwarder.New(g.now, cfg, restored)
	return g
}

// forget clears what came out so far.
func (g *rig) forget() { g.requests, g.statuses, g.journal = nil, nil, nil }

func (g *rig) step(in *forwarder.Events) {
	g.t.Helper()
	g.next = g.core.Step(g.now, in, &g.out)
	g.unanswered = append(g.unanswered, g.out.Operations...)
	for _, r := range g.out.Releases {
		g.end(r.Handle)
		g.released[r.Handle] = r.Transaction
	}
	for _, d := range g.out.Drops {
		g.end(d.Handle)
		if d.Reason == cats.ReasonNone {
			g.t.Fatalf("packet %d dropped without a reason", d.Handle)
		}
		g.dropped[d.Handle] = d.Reason
	}
	g.requests = append(g.requests, g.out.Send.Requests...)
	g.statuses = append(g.statuses, g.out.Send.Statuses...)
	g.journal = append(g.journal, g.out.Journal...)
}

func (g *rig) end(handle uint64) {
	g.t.Helper()
	_, released := g.released[handle]
	_, dropped := g.dropped[handle]
	if released || dropped {
		g.t.Fatalf("packet %d ends twice", handle)
	}
}

// pass lets time go by, stepping whenever the core asks for it.
func (g *rig) pass(d time.Duration) {
	g.t.Helper()
	end := g.now.Add(d)
	for i := 0; g.next <= end; i++ {
		if i > 100_000 {
			g.t.Fatal("the core keeps asking to be called")
		}
		g.now = max(g.now, g.next)
		g.step(&forwarder.Events{})
	}
	g.now = end
	g.step(&forwarder.Events{})
}

func (g *rig) session(s forwarder.Session) { g.t.Helper(); g.step(&forwarder.Events{Session: s}) }

func (g *rig) steer(b *cats.SteeringBatch) {
	g.t.Helper()
	g.step(&forwarder.Events{Steering: []*cats.SteeringBatch{b}})
}

// settle answers every operation that waits: with success, or with a reason.
func (g *rig) settle(reason cats.Reason) {
	g.t.Helper()
	in := &forwarder.Events{}
	for _, o := range g.unanswered {
		in.Results = append(in.Results, forwarder.Result{Operation: o.ID, Reason: reason, Detail: reason.String()})
	}
	g.unanswered = nil
	g.step(in)
}

// tcp gives the tuple of a client's TCP flow to the service of section 14.
func tcp(port uint16) cats.Tuple {
	return cats.Tuple{Protocol: cats.TCP, Source: netip.AddrPortFrom(clientAddr, port), Target: serviceAddr}
}

func udp(port uint16) cats.Tuple {
	return cats.Tuple{Protocol: cats.UDP, Source: netip.AddrPortFrom(clientAddr, port), Target: dnsAddr}
}

// packet gives a miss with a handle of its own.
func (g *rig) packet(tuple cats.Tuple, flags forwarder.TCPFlags) forwarder.Miss {
	g.handle++
	return forwarder.Miss{Handle: g.handle, Attachment: "client-1", Tuple: tuple, Flags: flags, Length: 74}
}

// arrive takes a packet in and gives its handle.
func (g *rig) arrive(tuple cats.Tuple, flags forwarder.TCPFlags) uint64 {
	g.t.Helper()
	m := g.packet(tuple, flags)
	g.step(&forwarder.Events{Misses: []forwarder.Miss{m}})
	return m.Handle
}

// open begins a flow and gives its request.
func (g *rig) open(tuple cats.Tuple) (handle uint64, request cats.ServiceRequest) {
	g.t.Helper()
	before := len(g.requests)
	flags := forwarder.TCPFlags(0)
	if tuple.Protocol == cats.TCP {
		flags = forwarder.SYN
	}
	handle = g.arrive(tuple, flags)
	if len(g.requests) != before+1 {
		g.t.Fatalf("%d requests for a new flow, want one", len(g.requests)-before)
	}
	return handle, g.requests[before]
}

// establish begins a flow and installs its binding.
func (g *rig) establish(tuple cats.Tuple) cats.Binding {
	g.t.Helper()
	_, r := g.open(tuple)
	b := binding(r)
	g.steer(&cats.SteeringBatch{Installs: []cats.Install{{Half: cats.IngressHalf, Binding: b}}})
	g.settle(cats.ReasonNone)
	g.wantStatus(b.Transaction, cats.BindingInstalled, cats.ReasonNone)
	g.forget()
	return b
}

// binding answers a request as the C-PS would.
func binding(r cats.ServiceRequest) cats.Binding {
	tuple := r.Key.Tuple
	b := cats.Binding{
		Transaction: r.Transaction, Epoch: epoch1, Version: 1, Match: r.Key, CSID: "S1", ServiceNumber: 1, CSCIID: csciB,
		Locator: cats.Locator{Protocol: tuple.Protocol, Address: locator}, Attachment: attachSID, Ingress: "IF-1", Egress: "EF-2",
		Path: cats.Path{Kind: cats.PathSRv6, Segments: []netip.Addr{transitSID, attachSID}, Generation: 7},
		Reverse: cats.Reverse{
			Service: cats.Tuple{Protocol: tuple.Protocol, Source: locator, Target: tuple.Source},
			Client:  tuple.Reverse(), Restore: tuple.Target,
			Path: cats.Path{Kind: cats.PathSRv6, Segments: []netip.Addr{returnSID}, Generation: 7},
		},
		Slots: 1, CSTGeneration: 3, NSTGeneration: 4, PolicyVersion: "1",
	}
	if tuple.Protocol == cats.UDP {
		b.CSID, b.ServiceNumber, b.CSCIID = "S2", 2, "dns"
	}
	return b
}

// egressBinding gives a binding whose egress half belongs at the forwarder of the rig.
func (g *rig) egressBinding(n byte, port uint16) cats.Binding {
	b := binding(cats.ServiceRequest{
		Transaction: cats.Transaction{9, 15: n},
		Key:         cats.FlowKey{Attachment: "far-1", Tenant: "default", Tuple: tcp(port)},
	})
	b.Ingress, b.Egress = "IF-9", "IF-1"
	return b
}

func (g *rig) status(t cats.Transaction) (last cats.BindingStatus, ok bool) {
	for _, s := range g.statuses {
		if s.Transaction == t {
			last, ok = s, true
		}
	}
	return last, ok
}

func (g *rig) wantStatus(t cats.Transaction, result cats.BindingResult, reason cats.Reason) {
	g.t.Helper()
	s, ok := g.status(t)
	if !ok || s.Result != result || s.Reason != reason || s.Forwarder != "IF-1" {
		g.t.Fatalf("status %s, want result %d reason %s", show(s, ok), result, reason)
	}
}

func show(s cats.BindingStatus, ok bool) string {
	if !ok {
		return "absent"
	}
	return fmt.Sprintf("result %d reason %s by %s: %s", s.Result, s.Reason, s.Forwarder, s.Detail)
}

func (g *rig) wantDropped(handle uint64, reason cats.Reason) {
	g.t.Helper()
	if got, ok := g.dropped[handle]; !ok || got != reason {
		g.t.Fatalf("packet %d: dropped %v for %s, want %s", handle, ok, got, reason)
	}
}

func (g *rig) wantReleased(handle uint64, t cats.Transaction) {
	g.t.Helper()
	if got, ok := g.released[handle]; !ok || got != t {
		g.t.Fatalf("packet %d: released %v by %s, want %s (dropped for %s)", handle, ok, got, t, g.dropped[handle])
	}
}

func (g *rig) wantHeld(handle uint64) {
	g.t.Helper()
	_, released := g.released[handle]
	if reason, dropped := g.dropped[handle]; released || dropped {
		g.t.Fatalf("packet %d: released %v, dropped %v for %s; want it held", handle, released, dropped, reason)
	}
}

// scan tells the core that the data plane was read, with what it counted.
func (g *rig) scan(usage ...forwarder.Usage) {
	g.t.Helper()
	g.step(&forwarder.Events{Usage: usage, Scanned: g.now})
}

// scanFor lets time go by with a scan every second.
func (g *rig) scanFor(d time.Duration) {
	g.t.Helper()
	for ; d > 0; d -= time.Second {
		g.pass(min(d, time.Second))
		g.scan()
	}
}
