package forwarder_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

func TestNewFlow(t *testing.T) {
	t.Run("CP-8.1-2 the packet is held and asked for once", func(t *testing.T) {
		g := newRig(t)
		h, r := g.open(tcp(51000))
		g.wantHeld(h)
		if r.Key != (cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: tcp(51000)}) || r.Ingress != "IF-1" ||
			r.Disposition != cats.Held || r.Remaining != 2*time.Second || r.CSID != "" || r.RequestGeneration.Present {
			t.Fatalf("request %+v", r)
		}
		if r.Transaction != (cats.Transaction{0xb0, 0x07, 15: 1}) {
			t.Fatalf("transaction %s is not identity and counter", r.Transaction)
		}
	})
	t.Run("CP-8.1-3 one pending record per key, whatever the burst", func(t *testing.T) {
		g := newRig(t)
		var in forwarder.Events
		for range 1000 {
			in.Misses = append(in.Misses, g.packet(udp(5353), 0))
		}
		g.step(&in)
		if len(g.requests) != 1 {
			t.Fatalf("%d requests, want 1", len(g.requests))
		}
		for h := uint64(1); h <= 4; h++ {
			g.wantHeld(h)
		}
		for h := uint64(5); h <= 1000; h++ {
			g.wantDropped(h, cats.ReasonOverload)
		}
	})
	t.Run("a retransmitted SYN is counted, one is held", func(t *testing.T) {
		g := newRig(t)
		first, _ := g.open(tcp(51000))
		again := g.arrive(tcp(51000), forwarder.SYN)
		g.wantHeld(first)
		g.wantDropped(again, cats.ReasonDuplicate)
		if s := g.out.Stats; s.Retransmits != 1 || s.HeldPackets != 1 || len(g.requests) != 1 {
			t.Fatalf("stats %+v, %d requests", s, len(g.requests))
		}
	})
	t.Run("TCP without SYN never selects", func(t *testing.T) {
		g := newRig(t)
		for _, f := range []forwarder.TCPFlags{forwarder.ACK, forwarder.SYN | forwarder.ACK, forwarder.RST, forwarder.SYN | forwarder.RST, forwarder.FIN, 0} {
			g.wantDropped(g.arrive(tcp(51000), f), cats.ReasonNoBinding)
		}
		if len(g.requests) != 0 {
			t.Fatalf("%d requests", len(g.requests))
		}
	})
	t.Run("CP-1.2-1 only a provisioned attachment is served", func(t *testing.T) {
		g := newRig(t)
		outside := g.packet(tcp(51000), forwarder.SYN)
		outside.Attachment = ""
		foreign := g.packet(cats.Tuple{Protocol: cats.TCP, Source: netip.MustParseAddrPort("198.51.100.1:9"), Target: serviceAddr}, forwarder.SYN)
		g.step(&forwarder.Events{Misses: []forwarder.Miss{outside, foreign}})
		g.wantDropped(outside.Handle, cats.ReasonUnauthorized)
		g.wantDropped(foreign.Handle, cats.ReasonUnauthorized)
		if len(g.requests) != 0 {
			t.Fatalf("%d requests", len(g.requests))
		}
	})
	t.Run("an address outside every service is refused here", func(t *testing.T) {
		g := newRig(t)
		other := tcp(51000)
		other.Target = netip.MustParseAddrPort("192.0.2.100:80")
		g.wantDropped(g.arrive(other, forwarder.SYN), cats.ReasonUnknownService)
	})
	t.Run("what cannot be a flow is a bad packet", func(t *testing.T) {
		g := newRig(t)
		mapped := tcp(51000)
		mapped.Source = netip.MustParseAddrPort("[::ffff:192.0.2.10]:51000")
		mixed := tcp(51000)
		mixed.Source = netip.MustParseAddrPort("[2001:db8:c::1]:51000")
		icmp := tcp(51000)
		icmp.Protocol = 1
		for _, tuple := range []cats.Tuple{mapped, mixed, icmp, {}} {
			g.wantDropped(g.arrive(tuple, forwarder.SYN), cats.ReasonBadPacket)
		}
	})
}

func TestRelease(t *testing.T) {
	t.Run("CP-8.4-1 nothing is released before both directions are in force", func(t *testing.T) {
		g := newRig(t)
		h, r := g.open(tcp(51000))
		b := binding(r)
		g.steer(&cats.SteeringBatch{Installs: []cats.Install{{Half: cats.IngressHalf, Binding: b}}})
		g.wantHeld(h)
		if len(g.statuses) != 0 {
			t.Fatalf("answered before the data plane confirmed: %+v", g.statuses)
		}
		if o := g.unanswered; len(o) != 1 || o[0].Kind != forwarder.OperationInstall || o[0].Half != cats.IngressHalf {
			t.Fatalf("operations %+v", o)
		}
		if j := g.journal; len(j) != 1 || j[0].Kind != forwarder.JournalPut || j[0].Record.Binding.Transaction != r.Transaction {
			t.Fatalf("journal %+v", j)
		}
		g.settle(cats.ReasonNone)
		g.wantReleased(h, r.Transaction)
		g.wantStatus(r.Transaction, cats.BindingInstalled, cats.ReasonNone)
	})
	t.Run("CP-8.1-3 packets that join are released in their order", func(t *testing.T) {
		g := newRig(t)
		h, r := g.open(udp(5353))
		second, third := g.arrive(udp(5353), 0), g.arrive(udp(5353), 0)
		g.steer(&cats.SteeringBatch{Installs: []cats.Install{{Half: cats.IngressHalf, Binding: binding(r)}}})
		g.settle(cats.ReasonNone)
		if rs := g.out.Releases; len(rs) != 3 || rs[0].Handle != h || rs[1].Handle != second || rs[2].Handle != third {
			t.Fatalf("releases %+v", rs)
		}
	})
	t.Run("CP-8.1-1 CP-8.5-1 a packet that missed just before its binding goes on without a request", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(udp(5353))
		g.wantReleased(g.arrive(udp(5353), 0), b.Transaction)
		if len(g.requests) != 0 {
			t.Fatalf("%d requests", len(g.requests))
		}
	})
	t.Run("CP-11-1 a failed commit drops the packet and leaves nothing", func(t *testing.T) {
		g := newRig(t)
		h, r := g.open(tcp(51000))
		g.steer(&cats.SteeringBatch{Installs: []cats.Install{{Half: cats.IngressHalf, Binding: binding(r)}}})
		g.settle(cats.ReasonTableFull)
		g.wantDropped(h, cats.ReasonCommitFailed)
		g.wantStatus(r.Transaction, cats.BindingRefused, cats.ReasonTableFull)
		if s := g.core.Snapshot(); len(s.Records) != 0 || g.out.Stats.Pending != 0 {
			t.Fatalf("left over: %+v, %+v", s.Records, g.out.Stats)
		}
		if last := g.journal[len(g.journal)-1]; last.Kind != forwarder.JournalRemove {
			t.Fatalf("the journal ends with %+v", last)
		}
	})
}

func TestDeadline(t *testing.T) {
	t.Run("CP-10-2 a pending flow ends at its deadline", func(t *testing.T) {
		g := newRig(t)
		h, _ := g.open(tcp(51000))
		g.pass(2*time.Second - 1)
		g.wantHeld(h)
		g.pass(1)
		g.wantDropped(h, cats.ReasonHeldExpired)
		if s := g.out.Stats; s.Pending != 0 || s.HeldPackets != 0 || s.HeldOctets != 0 || s.Timeouts != 1 {
			t.Fatalf("stats %+v", s)
		}
	})
	t.Run("a binding of a closed transaction is refused", func(t *testing.T) {
		g := newRig(t)
		h, r := g.open(tcp(51000))
		g.pass(2 * time.Second)
		g.wantDropped(h, cats.ReasonHeldExpired)
		g.steer(&cats.SteeringBatch{Installs: []cats.Install{{Half: cats.IngressHalf, Binding: binding(r)}}})
		g.wantStatus(r.Transaction, cats.BindingRefused, cats.ReasonTimeout)
		if len(g.unanswered) != 0 {
			t.Fatalf("the data plane was touched: %+v", g.unanswered)
		}
	})
	t.Run("a binding that the data plane confirms too late is taken out", func(t *testing.T) {
		g := newRig(t)
		h, r := g.open(tcp(51000))
		g.steer(&cats.SteeringBatch{Installs: []cats.Install{{Half: cats.IngressHalf, Binding: binding(r)}}})
		g.pass(2 * time.Second)
		g.wantDropped(h, cats.ReasonHeldExpired)
		g.settle(cats.ReasonNone)
		g.wantStatus(r.Transaction, cats.BindingRefused, cats.ReasonTimeout)
		if len(g.unanswered) != 1 || g.unanswered[0].Kind != forwarder.OperationRemove {
			t.Fatalf("operations %+v", g.unanswered)
		}
		g.settle(cats.ReasonNone)
		if v := g.core.Bindings(); len(v) != 0 {
			t.Fatalf("left over: %+v", v)
		}
	})
	t.Run("without a session pending flows time out", func(t *testing.T) {
		g := newRig(t)
		g.session(forwarder.SessionDown)
		h := g.arrive(tcp(51000), forwarder.SYN)
		g.pass(2 * time.Second)
		g.wantDropped(h, cats.ReasonHeldExpired)
		if len(g.requests) != 0 {
			t.Fatalf("requests without a session: %+v", g.requests)
		}
	})
	t.Run("a new session gets the requests that still wait, under their transactions", func(t *testing.T) {
		g := newRig(t)
		_, r := g.open(tcp(51000))
		g.session(forwarder.SessionDown)
		g.pass(500 * time.Millisecond)
		h := g.arrive(tcp(51001), forwarder.SYN)
		g.forget()
		g.session(forwarder.SessionUp)
		if g.out.Send.Hello == nil || len(g.requests) != 2 || g.requests[0].Transaction != r.Transaction ||
			g.requests[0].Remaining != 1500*time.Millisecond || g.requests[1].Key.Tuple != tcp(51001) {
			t.Fatalf("hello %v, requests %+v", g.out.Send.Hello != nil, g.requests)
		}
		g.wantHeld(h)
	})
}

func TestRefusal(t *testing.T) {
	t.Run("CP-11-1 a refused flow is dropped by the reason and its key is held down for a second", func(t *testing.T) {
		g := newRig(t)
		h, r := g.open(tcp(51000))
		g.steer(&cats.SteeringBatch{Refusals: []cats.Refuse{{Transaction: r.Transaction, Epoch: epoch1, Reason: cats.ReasonNoCandidate, Stage: "slots"}}})
		g.wantDropped(h, cats.ReasonNoCandidate)
		if d := g.out.HoldDowns; len(d) != 1 || d[0].Key != r.Key || d[0].For != time.Second || d[0].Reason != cats.ReasonNoCandidate {
			t.Fatalf("hold-downs %+v", d)
		}
		g.pass(time.Second - 1)
		g.wantDropped(g.arrive(tcp(51000), forwarder.SYN), cats.ReasonNoCandidate)
		g.pass(1)
		again, next := g.open(tcp(51000))
		g.wantHeld(again)
		if next.Transaction == r.Transaction {
			t.Fatal("a transaction was used twice")
		}
	})
	t.Run("a refusal of a closed transaction does nothing", func(t *testing.T) {
		g := newRig(t)
		_, r := g.open(tcp(51000))
		refuse := &cats.SteeringBatch{Refusals: []cats.Refuse{{Transaction: r.Transaction, Epoch: epoch1, Reason: cats.ReasonNoPath}}}
		g.steer(refuse)
		g.steer(refuse)
		if len(g.out.Drops) != 0 || len(g.out.HoldDowns) != 0 || g.out.Stats.Refusals != 1 {
			t.Fatalf("%+v", g.out)
		}
	})
}

func TestLimits(t *testing.T) {
	source := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }
	flow := func(g *rig, attachment string, from netip.Addr, port int) uint64 {
		m := g.packet(cats.Tuple{Protocol: cats.UDP, Source: netip.AddrPortFrom(from, uint16(port)), Target: dnsAddr}, 0)
		m.Attachment = attachment
		g.step(&forwarder.Events{Misses: []forwarder.Miss{m}})
		return m.Handle
	}
	limit := func(f func(*forwarder.Limits)) func(*forwarder.Config) {
		return func(c *forwarder.Config) { f(&c.Limits) }
	}
	t.Run("CP-10-2 per client, and other clients go on", func(t *testing.T) {
		g := newRig(t)
		for p := 1; p <= 100; p++ {
			g.wantHeld(flow(g, "client-1", source(1), p))
		}
		g.wantDropped(flow(g, "client-1", source(1), 101), cats.ReasonOverload)
		g.wantHeld(flow(g, "client-1", source(2), 101))
		g.pass(2 * time.Second)
		g.wantHeld(flow(g, "client-1", source(1), 101))
	})
	t.Run("CP-10-2 an IPv6 client is a /64", func(t *testing.T) {
		g := newRig(t, limit(func(l *forwarder.Limits) { l.PendingPerClient = 1 }))
		p := provision(2, epoch1)
		p.Services = append(p.Services, cats.ServiceRule{Number: 4, CSID: "S4", Prefix: netip.MustParsePrefix("2001:db8:5::1/128"), Protocol: cats.UDP, Port: 53})
		g.steer(&cats.SteeringBatch{Provision: p})
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 2}})
		six := func(source string) uint64 {
			return g.arrive(cats.Tuple{Protocol: cats.UDP, Source: netip.MustParseAddrPort(source), Target: netip.MustParseAddrPort("[2001:db8:5::1]:53")}, 0)
		}
		g.wantHeld(six("[2001:db8:c:1::1]:9"))
		g.wantDropped(six("[2001:db8:c:1::2]:9"), cats.ReasonOverload)
		g.wantHeld(six("[2001:db8:c:2::1]:9"))
	})
	t.Run("CP-10-2 per tenant", func(t *testing.T) {
		g := newRig(t, limit(func(l *forwarder.Limits) { l.PendingPerTenant = 3 }))
		for n := 1; n <= 3; n++ {
			g.wantHeld(flow(g, "client-1", source(n), 9))
		}
		g.wantDropped(flow(g, "client-1", source(4), 9), cats.ReasonOverload)
		g.wantHeld(flow(g, "client-2", netip.MustParseAddr("203.0.113.1"), 9))
	})
	t.Run("CP-10-2 in all", func(t *testing.T) {
		g := newRig(t, limit(func(l *forwarder.Limits) { l.Pending = 2 }))
		g.wantHeld(flow(g, "client-1", source(1), 9))
		g.wantHeld(flow(g, "client-2", netip.MustParseAddr("203.0.113.1"), 9))
		g.wantDropped(flow(g, "client-1", source(2), 9), cats.ReasonOverload)
	})
	t.Run("CP-10-2 packets and octets of one flow", func(t *testing.T) {
		g := newRig(t)
		big := g.packet(udp(9), 0)
		big.Length = 16 << 10
		g.step(&forwarder.Events{Misses: []forwarder.Miss{big}})
		g.wantHeld(big.Handle)
		g.wantDropped(g.arrive(udp(9), 0), cats.ReasonOverload)
		bigger := g.packet(udp(10), 0)
		bigger.Length = 16<<10 + 1
		g.step(&forwarder.Events{Misses: []forwarder.Miss{bigger}})
		g.wantDropped(bigger.Handle, cats.ReasonOverload)
	})
	t.Run("a key that is refused for overload is held down: the data plane answers its packets", func(t *testing.T) {
		g := newRig(t, limit(func(l *forwarder.Limits) { l.PendingPerClient = 1 }))
		flow(g, "client-1", source(1), 1)
		g.wantDropped(flow(g, "client-1", source(1), 2), cats.ReasonOverload)
		want := forwarder.HoldDown{Key: cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: cats.Tuple{Protocol: cats.UDP,
			Source: netip.AddrPortFrom(source(1), 2), Target: dnsAddr}}, For: time.Second, Reason: cats.ReasonOverload}
		if d := g.out.HoldDowns; len(d) != 1 || d[0] != want {
			t.Fatalf("hold-downs %+v, want %+v", d, want)
		}
		g.wantDropped(flow(g, "client-1", source(1), 2), cats.ReasonOverload)
		if len(g.out.HoldDowns) != 0 {
			t.Fatalf("held down again: %+v", g.out.HoldDowns)
		}
	})
	t.Run("hold-downs are bounded, and those without room counted", func(t *testing.T) {
		g := newRig(t, limit(func(l *forwarder.Limits) { l.Pending = 2 }))
		for n := 1; n <= 5; n++ {
			other := tcp(uint16(n))
			other.Target = netip.MustParseAddrPort("192.0.2.100:80")
			g.arrive(other, forwarder.SYN)
		}
		if s := g.out.Stats; s.HeldDown != 2 || s.HoldDownsLost != 3 {
			t.Fatalf("%d keys held down, %d had no room", s.HeldDown, s.HoldDownsLost)
		}
	})
}

func TestAnnounce(t *testing.T) {
	announce := func(g *rig, a forwarder.Announcement) forwarder.AnnounceAnswer {
		g.t.Helper()
		a.Token = 77
		g.step(&forwarder.Events{Announcements: []forwarder.Announcement{a}})
		if len(g.out.Answers) != 1 || g.out.Answers[0].Token != 77 {
			t.Fatalf("answers %+v", g.out.Answers)
		}
		return g.out.Answers[0]
	}
	constraints := cats.Constraints{Hard: cats.Bounds{MaxDelayUS: cats.Some(uint32(20000))}}
	t.Run("CP-6-7 the metadata goes with the flow, once, beside its tuple, tenant and ingress", func(t *testing.T) {
		g := newRig(t)
		a := announce(g, forwarder.Announcement{Tuple: tcp(51000), Identity: forwarder.Identity{Name: "S1"}, Constraints: constraints, Generation: 1})
		if a.Reason != cats.ReasonNone || a.CSID != "S1" || a.For != 10*time.Second {
			t.Fatalf("answer %+v", a)
		}
		_, r := g.open(tcp(51000))
		if r.CSID != "S1" || r.Constraints != constraints || r.RequestGeneration != cats.Some(uint16(1)) ||
			r.Key != (cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: tcp(51000)}) || r.Ingress != "IF-1" {
			t.Fatalf("request %+v", r)
		}
		announce(g, forwarder.Announcement{Tuple: tcp(51001), Identity: forwarder.Identity{Name: "S1"}, Constraints: constraints, Generation: 1})
		g.establish(tcp(51001))
		if s := g.out.Stats; s.Announcements != 0 || s.AnnounceUsed != 1 {
			t.Fatalf("an admitted flow used its metadata: %+v", s)
		}
	})
	t.Run("what a client sends again after a failure does not pass without its constraints", func(t *testing.T) {
		g := newRig(t)
		announce(g, forwarder.Announcement{Tuple: tcp(51000), Identity: forwarder.Identity{Name: "S1"}, Constraints: constraints, Generation: 1})
		_, r := g.open(tcp(51000))
		g.steer(&cats.SteeringBatch{Refusals: []cats.Refuse{{Transaction: r.Transaction, Epoch: epoch1, Reason: cats.ReasonNoCandidate}}})
		for range 3 {
			g.pass(4 * time.Second)
			if _, r = g.open(tcp(51000)); r.CSID != "S1" || r.Constraints != constraints || r.RequestGeneration != cats.Some(uint16(1)) {
				t.Fatalf("asked again without its metadata: %+v", r)
			}
		}
	})
	t.Run("it is kept for 10 s", func(t *testing.T) {
		g := newRig(t)
		announce(g, forwarder.Announcement{Tuple: tcp(51000), Identity: forwarder.Identity{Name: "S1"}})
		g.pass(10 * time.Second)
		if _, r := g.open(tcp(51000)); r.CSID != "" {
			t.Fatalf("request %+v", r)
		}
		if s := g.out.Stats; s.AnnounceLost != 1 || s.Announcements != 0 {
			t.Fatalf("stats %+v", s)
		}
	})
	t.Run("CP-6-6 two services are never combined", func(t *testing.T) {
		g := newRig(t)
		for _, i := range []forwarder.Identity{{Name: "S2"}, {Number: 3}, {Address: netip.MustParseAddr("192.0.2.101")}} {
			if a := announce(g, forwarder.Announcement{Tuple: tcp(51000), Identity: i}); a.Reason != cats.ReasonIdentityConflict {
				t.Fatalf("%+v: answer %+v", i, a)
			}
		}
		// The same, when the address becomes a service only after the announcement.
		p := provision(2, epoch1)
		p.Services = p.Services[1:]
		g.steer(&cats.SteeringBatch{Provision: p})
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 2}})
		if a := announce(g, forwarder.Announcement{Tuple: tcp(51000), Identity: forwarder.Identity{Name: "S2"}}); a.Reason != cats.ReasonNone {
			t.Fatalf("answer %+v", a)
		}
		g.steer(&cats.SteeringBatch{Provision: provision(3, epoch1)})
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 3}})
		g.wantDropped(g.arrive(tcp(51000), forwarder.SYN), cats.ReasonIdentityConflict)
		if len(g.requests) != 0 {
			t.Fatalf("requests %+v", g.requests)
		}
	})
	t.Run("number and address resolve; unknown ones are refused", func(t *testing.T) {
		g := newRig(t)
		for _, c := range []struct {
			identity forwarder.Identity
			want     cats.Reason
		}{
			{forwarder.Identity{Number: 1}, cats.ReasonNone},
			{forwarder.Identity{Number: 99}, cats.ReasonUnknownService},
			{forwarder.Identity{Address: serviceAddr.Addr()}, cats.ReasonNone},
			{forwarder.Identity{Address: netip.MustParseAddr("192.0.2.99")}, cats.ReasonUnknownService},
		} {
			if a := announce(g, forwarder.Announcement{Tuple: tcp(51000), Identity: c.identity}); a.Reason != c.want {
				t.Fatalf("%+v: answer %+v", c.identity, a)
			}
		}
	})
	t.Run("the source must belong to an attachment", func(t *testing.T) {
		g := newRig(t)
		foreign := tcp(51000)
		foreign.Source = netip.MustParseAddrPort("198.51.100.1:9")
		if a := announce(g, forwarder.Announcement{Tuple: foreign}); a.Reason != cats.ReasonUnauthorized {
			t.Fatalf("answer %+v", a)
		}
		if a := announce(g, forwarder.Announcement{Tuple: tcp(51000), Attachment: "client-2"}); a.Reason != cats.ReasonUnauthorized {
			t.Fatalf("answer %+v", a)
		}
	})
	t.Run("a flow outside every service address is handed up until it ends", func(t *testing.T) {
		g := newRig(t)
		plain := tcp(51000)
		plain.Target = netip.MustParseAddrPort("203.0.113.80:80")
		announce(g, forwarder.Announcement{Tuple: plain, Identity: forwarder.Identity{Name: "S1"}})
		if a := g.out.Announced; len(a) != 1 || a[0].For != 12*time.Second || a[0].Key.Attachment != "client-1" {
			t.Fatalf("announced %+v", a)
		}
		h, r := g.open(plain)
		if len(g.out.Announced) != 0 || r.CSID != "S1" {
			t.Fatalf("announced %+v, request %+v", g.out.Announced, r)
		}
		g.pass(2 * time.Second)
		g.wantDropped(h, cats.ReasonHeldExpired)
	})
	t.Run("repeats of one key take no room, and the last one counts from its own time", func(t *testing.T) {
		g := newRig(t)
		plain := tcp(51000)
		plain.Target = netip.MustParseAddrPort("203.0.113.80:80")
		var in forwarder.Events
		for i := range 1000 {
			in.Announcements = append(in.Announcements, forwarder.Announcement{By: "client/a", Tuple: plain,
				Identity: forwarder.Identity{Name: "S1"}, Generation: uint16(i)})
		}
		for range 5 {
			g.step(&in)
			if s := g.out.Stats; len(g.out.Announced) != 1 || s.Announcements != 1 || len(g.out.Answers) != 1000 {
				t.Fatalf("%d changes of the data plane, %d announcements, %d answers", len(g.out.Announced), s.Announcements, len(g.out.Answers))
			}
			g.pass(9 * time.Second)
		}
		if _, r := g.open(plain); r.RequestGeneration != cats.Some(uint16(999)) {
			t.Fatalf("request %+v", r)
		}
		g.pass(20 * time.Second)
		if s := g.out.Stats; s.AnnounceLost != 1 || s.AnnounceUsed != 0 || g.next != cats.Never {
			t.Fatalf("stats %+v; something of the repeats is still due: %d", s, g.next)
		}
	})
	t.Run("announcements are limited for each caller and in all", func(t *testing.T) {
		g := newRig(t, func(c *forwarder.Config) { c.Limits.Announcements, c.Limits.AnnouncedByOne = 5, 3 })
		port := uint16(0)
		say := func(by string, want cats.Reason) {
			t.Helper()
			port++
			if a := announce(g, forwarder.Announcement{By: by, Tuple: tcp(port)}); a.Reason != want {
				t.Fatalf("answer %+v, want %s", a, want)
			}
		}
		for range 3 {
			say("client/a", cats.ReasonNone)
		}
		say("client/a", cats.ReasonOverload)
		if a := announce(g, forwarder.Announcement{By: "client/a", Tuple: tcp(1)}); a.Reason != cats.ReasonNone {
			t.Fatalf("a repeat is refused: %+v", a)
		}
		say("client/b", cats.ReasonNone)
		say("client/b", cats.ReasonNone)
		say("client/b", cats.ReasonOverload) // in all
		g.open(tcp(2))
		say("client/a", cats.ReasonNone)
		g.pass(10 * time.Second)
		say("client/a", cats.ReasonNone)
		if n := g.out.Stats.Announcements; n != 1 {
			t.Fatalf("%d wait", n)
		}
	})
	t.Run("too late for a flow that is being decided", func(t *testing.T) {
		g := newRig(t)
		g.open(tcp(51000))
		if a := announce(g, forwarder.Announcement{Tuple: tcp(51000)}); a.Reason != cats.ReasonStaleState {
			t.Fatalf("answer %+v", a)
		}
	})
}

// TestImpossibleSources is what no C-PS would accept as a client: it must not even be asked.
func TestImpossibleSources(t *testing.T) {
	for _, source := range []string{"192.0.2.10:0", "0.0.0.0:51000", "224.0.0.1:51000"} {
		t.Run(source, func(t *testing.T) {
			g := newRig(t, func(c *forwarder.Config) {
				c.Attachments[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
			})
			tuple := tcp(51000)
			tuple.Source = netip.MustParseAddrPort(source)
			h := g.arrive(tuple, forwarder.SYN)
			g.wantDropped(h, cats.ReasonBadPacket)
			if len(g.requests) != 0 {
				t.Fatalf("the C-PS was asked: %+v", g.requests)
			}
		})
	}
}

// TestSYNAfterTheEnd is a client that uses its port again before the agent has looked at the end of the last flow.
func TestSYNAfterTheEnd(t *testing.T) {
	g := newRig(t)
	old := g.establish(tcp(51000))
	g.pass(10 * time.Second)
	m := g.packet(tcp(51000), forwarder.SYN)
	m.Over = true
	g.step(&forwarder.Events{Misses: []forwarder.Miss{m}})
	g.wantHeld(m.Handle)
	if r := g.requests[len(g.requests)-1]; r.Transaction == old.Transaction || r.Key.Tuple != tcp(51000) {
		t.Fatalf("request %+v", r)
	}
	t.Run("a SYN that was handed up before its binding was in force is released into it", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(51001))
		m := g.packet(tcp(51001), forwarder.SYN)
		m.Over = true
		g.step(&forwarder.Events{Misses: []forwarder.Miss{m}})
		g.wantReleased(m.Handle, b.Transaction)
	})
}
