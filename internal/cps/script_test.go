package cps

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// The domain of the draft's section 14: client at IF-1, instance A behind EF-1, instance B behind EF-2.
const (
	csciA = cats.CSCIID("198.51.100.11:443")
	csciB = cats.CSCIID("198.51.100.21:443")
)

var (
	sidA      = netip.MustParseAddr("2001:db8:0:e1::11")
	sidB      = netip.MustParseAddr("2001:db8:0:e2::21")
	returnSID = netip.MustParseAddr("2001:db8:0:1::100")
	transit   = netip.MustParseAddr("2001:db8:0:f1::1")
	target    = netip.MustParseAddrPort("192.0.2.100:443")
)

func records() catalogue.Records {
	deployment := func(site string, id cats.CSCIID, forwarder string, sid netip.Addr) catalogue.Deployment {
		return catalogue.Deployment{Site: site, CSCIID: id, CSID: "S1", Version: "1", State: catalogue.Validated,
			Locator: cats.Locator{Protocol: cats.TCP, Address: netip.MustParseAddrPort(string(id))},
			Egress:  []catalogue.EgressAttachment{{Forwarder: forwarder, SID: sid}}}
	}
	return catalogue.Records{
		Services: []catalogue.ServiceRecord{{CSID: "S1", Number: 1, Version: "1", State: catalogue.Published, BandPercent: 5,
			Addresses: []catalogue.Address{{Prefix: netip.MustParsePrefix("192.0.2.100/32"), Protocol: cats.TCP, Port: 443}},
			Tenants:   []string{"default"}, Idle: time.Hour}},
		Deployments: []catalogue.Deployment{deployment("edge-1", csciA, "EF-1", sidA), deployment("edge-2", csciB, "EF-2", sidB)},
		Attachments: []catalogue.Attachment{{Ingress: "IF-1", Name: "client-1", Tenant: "default"}},
	}
}

func domain(t testing.TB, r catalogue.Records) *Domain {
	t.Helper()
	c, err := catalogue.New(r)
	if err != nil {
		t.Fatal(err)
	}
	return &Domain{
		Catalogue: c, Forwarders: []string{"IF-1", "EF-1", "EF-2"},
		Sources: []Source{
			{Name: "csma-1", Site: "edge-1", Services: []cats.CSID{"S1"}},
			{Name: "csma-2", Site: "edge-2", Services: []cats.CSID{"S1"}},
		},
	}
}

// topology answers path requests: reachable ends have a path by one transit router, with a delay.
type topology struct {
	delays map[[2]string]uint32
	change func(*cats.PathReply)
	asked  []cats.PathRequest
}

func (p *topology) Compute(q cats.PathRequest) cats.PathReply {
	p.asked = append(p.asked, q)
	reply := cats.PathReply{Transaction: q.Transaction, Endpoint: q.Endpoint, Egress: q.Egress,
		CSTGeneration: q.CSTGeneration, NSTGeneration: q.NSTGeneration, TEDBGeneration: 7}
	delay, ok := p.delays[[2]string{q.Headend, q.Egress}]
	if !ok {
		reply.Status, reply.Reason, reply.Detail = cats.PathNone, cats.ReasonNoPath, "unreachable"
	} else {
		reply.Kind, reply.Segments = cats.PathSRv6, []netip.Addr{transit, q.Endpoint}
		reply.Nodes = []string{q.Headend, "R1", q.Egress}
		reply.Metrics = cats.PathMetrics{DelayUS: delay, BandwidthKbps: 1_000_000, Hops: 2}
	}
	if p.change != nil {
		p.change(&reply)
	}
	return reply
}

func (p *topology) rows(now cats.Instant) []cats.NSTRow {
	var rows []cats.NSTRow
	for ends, delay := range p.delays {
		rows = append(rows, cats.NSTRow{Headend: ends[0], Egress: ends[1], Reachable: true, Source: "cnma-1", Generation: 7,
			Metrics: cats.PathMetrics{DelayUS: delay, BandwidthKbps: 1_000_000, Hops: 2}, Measured: now, TTL: 30 * time.Second})
	}
	return rows
}

// script drives a core: it plays the forwarders and C-SMAs, and keeps what the core last wanted.
type script struct {
	t        *testing.T
	core     *Core
	now      cats.Instant
	next     cats.Instant
	out      Effects
	pce      *topology
	view     uint64
	sessions map[string]uint64
	counter  uint64
	sequence map[string]uint64
}

var epoch = cats.Epoch{Term: 5}

func newScript(t *testing.T, config Config) *script {
	if config.Epoch == (cats.Epoch{}) {
		config.Epoch = epoch
	}
	config.RoutingDomain = "example.margay"
	return &script{t: t, core: New(config), now: cats.Instant(time.Hour), sessions: make(map[string]uint64), sequence: make(map[string]uint64),
		pce: &topology{delays: map[[2]string]uint32{
			{"IF-1", "EF-1"}: 9_000, {"EF-1", "IF-1"}: 9_000, {"IF-1", "EF-2"}: 1_000, {"EF-2", "IF-1"}: 1_000,
		}}}
}

// ready gives a core that decides: domain, paths, forwarders with their rules, and reports of both instances.
func ready(t *testing.T) *script {
	t.Helper()
	s := newScript(t, Config{})
	s.step(Events{Domain: domain(t, records())})
	s.paths()
	for _, name := range []string{"IF-1", "EF-1", "EF-2"} {
		s.connect(name)
	}
	s.report("csma-1", 10, 5)
	s.report("csma-2", 10, 5)
	if g := s.core.Gauges(); !g.Open {
		t.Fatalf("the core does not decide: %+v", g)
	}
	return s
}

func (s *script) step(in Events) *Effects {
	s.next = s.core.Step(s.now, &in, &s.out)
	if n := s.core.Counters().RefusedTransitions; n > 0 {
		s.t.Fatalf("%d transitions were refused: %+v", n, s.out.Audit)
	}
	return &s.out
}

// wait lets time pass, and the core act at each of its deadlines; it gives all steering of that time.
func (s *script) wait(d time.Duration) []Steering {
	s.t.Helper()
	end := s.now.Add(d)
	var all []Steering
	for range 1000 {
		if s.next > end {
			if s.now < end {
				s.now = end
				all = append(all, s.step(Events{}).Steering...)
			}
			return all
		}
		s.now = max(s.now, s.next)
		all = append(all, s.step(Events{}).Steering...)
	}
	s.t.Fatalf("the core wants to be called without end; next is %d, now %d", s.next, s.now)
	return nil
}

func (s *script) paths() {
	s.view++
	s.step(Events{Paths: &PathView{Generation: s.view, Rows: s.pce.rows(s.now), PCE: s.pce}})
}

func (s *script) batch(name string, b cats.ForwarderBatch) *Effects {
	return s.step(Events{Forwarders: []ForwarderEvent{{Name: name, Session: s.sessions[name], Batch: b}}})
}

// held gives the halves of bindings that a forwarder has, all of them ACTIVE.
func held(name string, bindings ...cats.Binding) []cats.HeldBinding {
	var all []cats.HeldBinding
	for _, b := range bindings {
		for _, which := range bothHalves {
			if holder(&b, which) == name {
				all = append(all, cats.HeldBinding{Half: which, State: cats.Active, Binding: b})
			}
		}
	}
	return all
}

func hello(name string, bindings ...cats.Binding) *cats.ForwarderHello {
	h := &cats.ForwarderHello{Name: name, BootID: "boot", LayoutVersion: cats.LayoutVersion, Bindings: held(name, bindings...),
		Capabilities: cats.Capabilities{Encapsulations: cats.EncapSRv6, MaxSegments: 10}}
	if name == "IF-1" {
		h.ReturnSID = returnSID
		h.Attachments = []cats.ClientAttachment{{Name: "client-1", Tenant: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
	}
	return h
}

// hello opens a new session and gives what the core sends in answer.
func (s *script) hello(h *cats.ForwarderHello) *Effects {
	s.sessions[h.Name]++
	return s.batch(h.Name, cats.ForwarderBatch{Hello: h})
}

func (s *script) connect(name string, bindings ...cats.Binding) {
	s.t.Helper()
	s.hello(hello(name, bindings...))
	b := s.sent(name)
	if b.Provision == nil {
		s.t.Fatalf("%s got no provision", name)
	}
	s.acknowledge(b.Provision, name)
}

func (s *script) acknowledge(p *cats.Provision, name string) *Effects {
	answer := cats.Provisioned{Forwarder: name, Shard: p.Shard, Generation: p.Generation}
	for _, d := range p.Deliveries {
		answer.Deliveries = append(answer.Deliveries, d.CSCIID)
	}
	return s.batch(name, cats.ForwarderBatch{Provisioned: []cats.Provisioned{answer}})
}

func (s *script) disconnect(name string) *Effects {
	return s.step(Events{Forwarders: []ForwarderEvent{{Name: name, Session: s.sessions[name], Closed: true}}})
}

// sent gives what the last step sends to a forwarder; empty if nothing.
func (s *script) sent(name string) cats.SteeringBatch {
	s.t.Helper()
	var found cats.SteeringBatch
	for i, e := range s.out.Steering {
		if e.Forwarder == name {
			if e.Session != s.sessions[name] {
				s.t.Errorf("message to session %d of %s, which has %d", e.Session, name, s.sessions[name])
			}
			found = s.out.Steering[i].Batch
		}
	}
	return found
}

var instanceOf = map[string]cats.CSCIID{"csma-1": csciA, "csma-2": csciB}
var siteOf = map[string]string{"csma-1": "edge-1", "csma-2": "edge-2"}

func (s *script) record(source string, gas, computingMS uint32) cats.Record {
	return cats.Record{CSID: "S1", CSCIID: instanceOf[source], Version: "1", Health: cats.Healthy, Reporting: cats.ReportingHealthy,
		Metrics: cats.Metrics{GAS: gas, ComputingTimeMS: computingMS}}
}

func (s *script) update(source string, records ...cats.Record) *cats.MetricUpdate {
	s.sequence[source]++
	return &cats.MetricUpdate{UpdateHeader: cats.UpdateHeader{Source: source, Site: siteOf[source], Epoch: 1, Sequence: s.sequence[source],
		Kind: cats.UpdateFull, TTL: 150 * time.Second}, Records: records}
}

func (s *script) report(source string, gas, computingMS uint32) *Effects {
	return s.send(source, s.update(source, s.record(source, gas, computingMS)))
}

func (s *script) send(source string, u *cats.MetricUpdate) *Effects {
	events := []SourceEvent{{Name: source, Session: 1, Update: u}}
	if s.sequence[source] == 1 {
		events = append([]SourceEvent{{Name: source, Session: 1, Opened: true}}, events...)
	}
	return s.step(Events{Sources: events})
}

func key(port uint16) cats.FlowKey {
	return cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: cats.Tuple{Protocol: cats.TCP,
		Source: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.10"), port), Target: target}}
}

func (s *script) newRequest(port uint16) cats.ServiceRequest {
	s.counter++
	q := cats.ServiceRequest{Key: key(port), Ingress: "IF-1", Remaining: 2 * time.Second}
	copy(q.Transaction[:8], "boot----")
	binary.BigEndian.PutUint64(q.Transaction[8:], s.counter)
	return q
}

func (s *script) request(q cats.ServiceRequest) *Effects {
	return s.batch("IF-1", cats.ForwarderBatch{Requests: []cats.ServiceRequest{q}})
}

// status is a report on the half of a binding that a forwarder has; on the egress half, if it has both or none.
func (s *script) status(name string, b *cats.Binding, result cats.BindingResult, reason cats.Reason) *Effects {
	which := cats.EgressHalf
	if b.Ingress == name && b.Egress != name {
		which = cats.IngressHalf
	}
	return s.statusOf(name, which, b, result, reason)
}

func (s *script) statusOf(name string, which cats.Half, b *cats.Binding, result cats.BindingResult, reason cats.Reason) *Effects {
	return s.batch(name, cats.ForwarderBatch{Statuses: []cats.BindingStatus{{
		Transaction: b.Transaction, Forwarder: name, Half: which, Version: b.Version, Result: result, Reason: reason, PathUp: true,
	}}})
}

// installed gives the one binding that the last step orders into a forwarder.
func (s *script) installed(name string, half cats.Half) *cats.Binding {
	s.t.Helper()
	b := s.sent(name)
	if len(b.Installs) != 1 || b.Installs[0].Half != half {
		s.t.Fatalf("%s was sent %+v, want one install of the %s half", name, b, half)
	}
	return &b.Installs[0].Binding
}

// refusal gives the one refusal that the last step sends for a request.
func (s *script) refusal(q cats.ServiceRequest) cats.Refuse {
	s.t.Helper()
	for _, r := range s.sent("IF-1").Refusals {
		if r.Transaction == q.Transaction {
			return r
		}
	}
	s.t.Fatalf("%s is not refused; sent %+v", q.Transaction, s.sent("IF-1"))
	return cats.Refuse{}
}

// activate takes a flow to ACTIVE and gives its binding.
func (s *script) activate(port uint16) *cats.Binding {
	s.t.Helper()
	q := s.newRequest(port)
	s.request(q)
	var b *cats.Binding
	for _, name := range []string{"EF-1", "EF-2"} {
		if len(s.sent(name).Installs) > 0 {
			b = s.installed(name, cats.EgressHalf)
		}
	}
	if b == nil {
		s.t.Fatalf("no egress half was ordered: %+v", s.out)
	}
	s.status(b.Egress, b, cats.BindingInstalled, cats.ReasonNone)
	s.installed("IF-1", cats.IngressHalf)
	s.status("IF-1", b, cats.BindingInstalled, cats.ReasonNone)
	s.want(b.Transaction, cats.Active)
	return b
}

func (s *script) state(t cats.Transaction) cats.FlowState {
	if r := s.core.flows[t]; r != nil {
		return r.state
	}
	return cats.Absent
}

func (s *script) want(t cats.Transaction, state cats.FlowState) {
	s.t.Helper()
	if got := s.state(t); got != state {
		s.t.Fatalf("flow %s is %s, want %s", t, got, state)
	}
}

func (s *script) wantDebited(id cats.CSCIID, slots uint64) {
	s.t.Helper()
	if got := s.core.ledger.Debited(catalogue.Instance{CSID: "S1", CSCIID: id}); got != slots {
		s.t.Fatalf("%d slots of %s are debited, want %d", got, id, slots)
	}
}

// wantEmpty checks that nothing is left of any flow.
func (s *script) wantEmpty() {
	s.t.Helper()
	c := s.core
	if len(c.flows)+len(c.byKey)+len(c.byTuple)+c.ledger.Flows()+c.pending.Total() != 0 {
		s.t.Fatalf("left: %d flows, %d keys, %d tuples, %d debits, %d pending", len(c.flows), len(c.byKey), len(c.byTuple), c.ledger.Flows(), c.pending.Total())
	}
	if c.states != [cats.ReconnectRequired + 1]int{} {
		s.t.Fatalf("states %v", c.states)
	}
	for name, f := range c.forwarders {
		if len(f.flows) > 0 {
			s.t.Fatalf("%s has %d flows left", name, len(f.flows))
		}
	}
}

func describe(all []Steering) string {
	text := ""
	for _, e := range all {
		text += fmt.Sprintf("%s: %+v\n", e.Forwarder, e.Batch)
	}
	return text
}
