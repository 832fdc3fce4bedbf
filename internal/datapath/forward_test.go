package datapath

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

// transaction is the one that the tests' bindings belong to.
var transaction = cats.Transaction{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 1}

// Path and next-hop ids of the tests.
const (
	pathForward, pathReturn, pathNative                = 1, 2, 3
	hopCore, hopClient, hopInstance, hopVLAN, hopSmall = 1, 2, 3, 4, 5
)

// domain is where the SIDs of the example come from.
var domain = prefixes("2001:db8:0:1::/64", "2001:db8:0:e0::/59")

// newDomain gives a node that is ingress and egress of every flow, with everything installed.
func newDomain(t testing.TB) *node {
	t.Helper()
	n := newNode(t)
	hop := func(port string, target MAC, vlan, mtu uint16) NextHop {
		return NextHop{Interface: n.index[port], Source: n.mac[port], Target: target, VLAN: vlan, MTU: mtu}
	}
	n.in(t, func() error {
		return n.SetAttachments([]Attachment{
			{Name: "client-1", Interface: "client0", Prefixes: prefixes("192.0.2.0/24", "2001:db8:c::/64")},
			{Name: "client-2", Interface: "client0", VLAN: 7, Prefixes: prefixes("192.0.2.0/24", "2001:db8:c::/64")},
			{Name: "client-3", Interface: "any0", Prefixes: prefixes("192.0.2.0/24", "2001:db8:c::/64")},
		})
	})
	must(t,
		n.PutNextHop(hopCore, hop("core0", coreMAC, 0, 1500)),
		n.PutNextHop(hopClient, hop("client0", clientMAC, 0, 1500)),
		n.PutNextHop(hopInstance, hop("svc0", instanceMAC, 0, 1500)),
		n.PutNextHop(hopVLAN, hop("client0", clientMAC, 7, 1500)),
		n.PutNextHop(hopSmall, hop("core0", coreMAC, 0, 100)),
		n.PutPath(pathForward, Path{cats.PathSRv6, ingressSource, []netip.Addr{deliverSID}, hopCore}),
		n.PutPath(pathReturn, Path{cats.PathSRv6, egressSource, []netip.Addr{returnSID}, hopCore}),
		n.PutPath(pathNative, Path{Kind: cats.PathNative, NextHop: hopCore}),
		n.SetReturnSID(returnSID),
		n.SetLocalBlock(netip.MustParsePrefix("2001:db8:0:e2::/64")),
		n.SetDomainBlock(domain),
		n.SetServices([]cats.ServiceRule{
			{Number: 1, CSID: "S1", Prefix: prefixes("192.0.2.100/32")[0], Protocol: cats.TCP, Port: 443},
			{Number: 2, CSID: "S2", Prefix: prefixes("192.0.2.100/32")[0], Protocol: cats.UDP, Port: 53},
			{Number: 3, CSID: "S3", Prefix: prefixes("2001:db8:5::100/128")[0], Protocol: cats.TCP, Port: 443},
			{Number: 4, CSID: "S4", Prefix: prefixes("2001:db8:5::100/128")[0], Protocol: cats.UDP, Port: 53},
		}),
	)
	return n
}

func prefixes(all ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ingress gives the two entries of f at its ingress.
func (f flow) ingress(attachment string, path, hop uint32) []Entry {
	return []Entry{
		{Key: f.ingressKey(attachment), Transaction: transaction, Service: 1, Version: 1, Rewrite: f.locator, Path: path},
		{Key: Key{Kind: IngressReverse, Tuple: f.reverse()}, Transaction: transaction, Service: 1, Version: 1,
			Rewrite: f.service, NextHop: hop},
	}
}

func (f flow) ingressKey(attachment string) Key {
	return Key{Kind: IngressForward, Attachment: AttachmentID(attachment), Tuple: f.forward()}
}

// egress gives the two entries of f at its egress.
func (f flow) egress(path uint32) []Entry {
	return []Entry{
		{Key: Key{Kind: EgressForward, Tuple: f.delivered()}, Transaction: transaction, Service: 1, Version: 1},
		{Key: Key{Kind: EgressReverse, Tuple: f.reverse()}, Transaction: transaction, Service: 1, Version: 1, Path: path},
	}
}

func (f flow) delivery(sid netip.Addr, hop uint32) Delivery {
	return Delivery{SID: sid, Locator: cats.Locator{Protocol: f.protocol, Address: f.locator}, NextHop: hop}
}

// expect runs a frame and compares action and octets; a nil want is a drop.
func (n *node) expect(t testing.TB, port string, frame []byte, action uint32, want []byte) {
	t.Helper()
	got, out := n.run(t, port, frame)
	if got != action {
		t.Errorf("the program says %s, want %s", actionName(got), actionName(action))
		return
	}
	if action != xdpDrop {
		diff(t, "frame", out, want)
	}
}

// expectDrop runs a frame that must be dropped, counted once under reason and under nothing else.
func (n *node) expectDrop(t testing.TB, port string, frame []byte, reason cats.Reason) {
	t.Helper()
	before := n.counters(t)
	n.expect(t, port, frame, xdpDrop, nil)
	after := n.counters(t)
	for r, count := range after.Drops {
		want := before.Drops[r]
		if r == reason {
			want++
		}
		if count != want {
			t.Errorf("drops by %s went from %d to %d, want %d", r, before.Drops[r], count, want)
		}
	}
	if after.Held != before.Held {
		t.Errorf("the packet was held, want it dropped as %s", reason)
	}
}

func (n *node) counters(t testing.TB) Counters {
	t.Helper()
	c, err := n.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestIngressForward(t *testing.T) {
	n := newDomain(t)

	t.Run("three segments, octet for octet", func(t *testing.T) {
		f := tcp4
		must(t, n.PutPath(10, Path{cats.PathSRv6, ingressSource, []netip.Addr{transitSID1, transitSID2, deliverSID}, hopCore}))
		must(t, n.Install(f.ingress("client-1", 10, hopClient)[:1]))
		defer n.Remove([]Key{f.ingressKey("client-1")})
		in := packet{tuple: f.forward(), ttl: 64, class: 0xba, flags: "S"}.octets(t)
		rewritten := packet{tuple: f.delivered(), ttl: 63, class: 0xba, flags: "S"}.octets(t)
		headers := unhex(t, `
			6ba819d9 0060 2b 40
			20010db8 00000001 00000000 00000001
			20010db8 000000f1 00000000 00000001
			04 06 04 02 02 00 0000
			20010db8 000000e2 00000000 00000021
			20010db8 000000f2 00000000 00000001
			20010db8 000000f1 00000000 00000001`)
		n.expect(t, "client0", ethernet(n.mac["client0"], clientMAC, in), xdpRedirect,
			append(ethernet(coreMAC, n.mac["core0"], headers), rewritten...))
		checkSums(t, rewritten)
	})
	t.Run("two segments, octet for octet", func(t *testing.T) {
		f := udp6
		must(t, n.PutPath(11, Path{cats.PathSRv6, ingressSource, []netip.Addr{transitSID1, deliverSID}, hopCore}))
		must(t, n.Install(f.ingress("client-1", 11, hopClient)[:1]))
		defer n.Remove([]Key{f.ingressKey("client-1")})
		in := packet{tuple: f.forward(), ttl: 33, payload: "query"}.octets(t)
		rewritten := packet{tuple: f.delivered(), ttl: 32, payload: "query"}.octets(t)
		headers := unhex(t, `
			600b2103 005d 2b 20
			20010db8 00000001 00000000 00000001
			20010db8 000000f1 00000000 00000001
			29 04 04 01 01 00 0000
			20010db8 000000e2 00000000 00000021
			20010db8 000000f1 00000000 00000001`)
		n.expect(t, "client0", ethernet(n.mac["client0"], clientMAC, in), xdpRedirect,
			append(ethernet(coreMAC, n.mac["core0"], headers), rewritten...))
		checkSums(t, rewritten)
	})
	t.Run("one segment goes without routing header", func(t *testing.T) {
		f := tcp4
		must(t, n.Install(f.ingress("client-1", pathForward, hopClient)[:1]))
		defer n.Remove([]Key{f.ingressKey("client-1")})
		in := packet{tuple: f.forward(), ttl: 2, payload: "x"}.octets(t)
		rewritten := packet{tuple: f.delivered(), ttl: 1, payload: "x"}.octets(t)
		headers := unhex(t, `
			600819d9 0029 04 40
			20010db8 00000001 00000000 00000001
			20010db8 000000e2 00000000 00000021`)
		n.expect(t, "client0", ethernet(n.mac["client0"], clientMAC, in), xdpRedirect,
			append(ethernet(coreMAC, n.mac["core0"], headers), rewritten...))
	})

	paths := map[string][]netip.Addr{"native": nil, "1 segment": {deliverSID}, "2 segments": {transitSID1, deliverSID}}
	var deep []netip.Addr
	for i := range MaxSegments - 1 {
		deep = append(deep, addr(fmt.Sprintf("2001:db8:0:f%d::1", i+1)))
	}
	paths["10 segments"] = append(deep, deliverSID)
	for _, f := range flows {
		for name, segments := range paths {
			t.Run(""+f.name+" "+name, func(t *testing.T) { forwardMatches(t, n, f, segments) })
		}
	}
}

// forwardMatches sends packets of several sizes along a path and compares each with the one that gopacket makes.
func forwardMatches(t *testing.T, n *node, f flow, segments []netip.Addr) {
	path := Path{cats.PathSRv6, ingressSource, segments, hopCore}
	if segments == nil {
		path = Path{Kind: cats.PathNative, NextHop: hopCore}
	}
	must(t, n.PutPath(20, path))
	must(t, n.Install(f.ingress("client-1", 20, hopClient)))
	t.Cleanup(func() { n.Remove([]Key{f.ingressKey("client-1"), {Kind: IngressReverse, Tuple: f.reverse()}}) })
	for _, size := range []int{0, 1, 31, 512, 1000} {
		p := packet{tuple: f.forward(), ttl: 61, class: 0x2a, flags: "AP", payload: fill(size)}
		in := p.octets(t)
		p.tuple, p.ttl = f.delivered(), 60
		want := p.octets(t)
		checkSums(t, want)
		if segments != nil {
			o := outer{ingressSource, segments, len(segments) - 1, 0x2a, swap32(flowLabel(f.forward())), 64}
			if !f.client.Addr().Is4() {
				o.hops = 60
			}
			want = o.encapsulate(want)
		}
		n.expect(t, "client0", ethernet(n.mac["client0"], clientMAC, in), xdpRedirect,
			ethernet(coreMAC, n.mac["core0"], want))
	}
}

func fill(n int) string {
	octets := make([]byte, n)
	for i := range octets {
		octets[i] = byte(i*7 + 3)
	}
	return string(octets)
}

// TestEstablished proves that a hit needs nobody: the packet goes on, and nothing comes to user space.
func TestEstablished(t *testing.T) {
	n := newDomain(t)
	for _, f := range flows {
		t.Run("CP-8.5-1 "+f.name+" of an active binding asks nobody", func(t *testing.T) {
			must(t, n.Install(f.ingress("client-1", pathForward, hopClient)))
			before := n.counters(t)
			for range 5 {
				in := packet{tuple: f.forward(), ttl: 64, payload: "data"}.octets(t)
				if a, _ := n.run(t, "client0", ethernet(n.mac["client0"], clientMAC, in)); a != xdpRedirect {
					t.Fatalf("the program says %s", actionName(a))
				}
			}
			after := n.counters(t)
			if after.Held != before.Held {
				t.Error("packets of an active binding were held")
			}
			if got := after.Forwarded[IngressForward].Packets - before.Forwarded[IngressForward].Packets; got != 5 {
				t.Errorf("counted %d packets, want 5", got)
			}
			n.expectNoMiss(t)
		})
	}
}

func TestForwardRefusals(t *testing.T) {
	n := newDomain(t)
	for _, f := range flows {
		must(t, n.PutPath(21, Path{cats.PathSRv6, ingressSource, []netip.Addr{deliverSID}, hopSmall}))
		for _, ttl := range []uint8{0, 1} {
			t.Run(fmt.Sprintf("%s TTL %d", f.name, ttl), func(t *testing.T) {
				must(t, n.Install(f.ingress("client-1", pathForward, hopClient)[:1]))
				in := packet{tuple: f.forward(), ttl: ttl}.octets(t)
				n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC, in), cats.ReasonTTLExceeded)
			})
		}
		t.Run(f.name+" beyond the MTU with its outer header", func(t *testing.T) {
			must(t, n.Install(f.ingress("client-1", 21, hopClient)[:1]))
			header := len(packet{tuple: f.forward(), ttl: 9}.octets(t))
			fits := packet{tuple: f.forward(), ttl: 9, payload: fill(100 - 40 - header)}.octets(t)
			if header <= 60 {
				if a, _ := n.run(t, "client0", ethernet(n.mac["client0"], clientMAC, fits)); a != xdpRedirect {
					t.Errorf("100 octets: the program says %s", actionName(a))
				}
			}
			over := packet{tuple: f.forward(), ttl: 9, payload: fill(101 - 40 - header)}.octets(t)
			n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC, over), cats.ReasonTooBig)
		})
		t.Run(f.name+" without its path", func(t *testing.T) {
			must(t, n.PutPath(22, Path{cats.PathSRv6, ingressSource, []netip.Addr{deliverSID}, hopCore}))
			must(t, n.Install(f.ingress("client-1", 22, hopClient)[:1]))
			must(t, n.DeletePath(22))
			seen := n.usage(t)[f.ingressKey("client-1")]
			in := packet{tuple: f.forward(), ttl: 9}.octets(t)
			n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC, in), cats.ReasonNoPath)
			if now := n.usage(t)[f.ingressKey("client-1")]; now != seen {
				t.Errorf("a dropped packet was counted as use: %+v, before %+v", now, seen)
			}
		})
	}
}

func (n *node) usage(t testing.TB) map[Key]Usage {
	t.Helper()
	all := make(map[Key]Usage)
	must(t, n.Usage(func(u Usage) { all[u.Key] = u }))
	return all
}

func TestForwardDetails(t *testing.T) {
	n := newDomain(t)
	f := udp4
	must(t, n.Install(f.ingress("client-1", pathForward, hopClient)[:1]))
	label := swap32(flowLabel(f.forward()))
	encapsulated := func(ip []byte) []byte {
		return outer{ingressSource, []netip.Addr{deliverSID}, 0, ip[1], label, 64}.encapsulate(ip)
	}

	t.Run("a UDP packet without checksum stays without", func(t *testing.T) {
		in := packet{tuple: f.forward(), ttl: 64, payload: "abc"}.octets(t)
		in[26], in[27] = 0, 0
		want := packet{tuple: f.delivered(), ttl: 63, payload: "abc"}.octets(t)
		want[26], want[27] = 0, 0
		n.expect(t, "client0", ethernet(n.mac["client0"], clientMAC, in), xdpRedirect,
			ethernet(coreMAC, n.mac["core0"], encapsulated(want)))
	})
	t.Run("a UDP checksum that comes out as zero is sent as ffff", func(t *testing.T) {
		want := packet{tuple: f.delivered(), ttl: 63, payload: "\x00\x00"}.octets(t)
		// Choose the payload so that the sum of all else is ffff.
		word := uint16(want[26])<<8 | uint16(want[27])
		p := string([]byte{byte(word >> 8), byte(word)})
		in := packet{tuple: f.forward(), ttl: 64, payload: p}.octets(t)
		want = packet{tuple: f.delivered(), ttl: 63, payload: p}.octets(t)
		want[26], want[27] = 0xff, 0xff
		checkSums(t, want)
		n.expect(t, "client0", ethernet(n.mac["client0"], clientMAC, in), xdpRedirect,
			ethernet(coreMAC, n.mac["core0"], encapsulated(want)))
	})
	t.Run("Ethernet padding does not get inside", func(t *testing.T) {
		in := packet{tuple: f.forward(), ttl: 64}.octets(t)
		want := packet{tuple: f.delivered(), ttl: 63}.octets(t)
		padded := append(ethernet(n.mac["client0"], clientMAC, in), make([]byte, 18)...)
		n.expect(t, "client0", padded, xdpRedirect, ethernet(coreMAC, n.mac["core0"], encapsulated(want)))
	})
	t.Run("IPv4 options stay", func(t *testing.T) {
		in := withIPv4Options(packet{tuple: f.forward(), ttl: 64, payload: "abc"}.octets(t))
		want := withIPv4Options(packet{tuple: f.delivered(), ttl: 63, payload: "abc"}.octets(t))
		checkSums(t, want)
		n.expect(t, "client0", ethernet(n.mac["client0"], clientMAC, in), xdpRedirect,
			ethernet(coreMAC, n.mac["core0"], encapsulated(want)))
	})
	t.Run("IPv6 extension headers stay", func(t *testing.T) {
		g := tcp6
		must(t, n.Install(g.ingress("client-1", pathForward, hopClient)[:1]))
		in := withExtensionHeaders(packet{tuple: g.forward(), ttl: 64, payload: "abc"}.octets(t))
		want := withExtensionHeaders(packet{tuple: g.delivered(), ttl: 63, payload: "abc"}.octets(t))
		o := outer{ingressSource, []netip.Addr{deliverSID}, 0, 0, swap32(flowLabel(g.forward())), 63}
		n.expect(t, "client0", ethernet(n.mac["client0"], clientMAC, in), xdpRedirect,
			ethernet(coreMAC, n.mac["core0"], o.encapsulate(want)))
	})
	t.Run("a packet with a VLAN tag is of that VLAN's attachment", func(t *testing.T) {
		in := packet{tuple: f.forward(), ttl: 64}.octets(t)
		want := packet{tuple: f.delivered(), ttl: 63}.octets(t)
		tagged := vlanFrame(n.mac["client0"], clientMAC, []uint16{7}, in)
		if a, _ := n.run(t, "client0", tagged); a == xdpRedirect {
			t.Error("the binding of the untagged attachment was used")
		}
		must(t, n.Install(f.ingress("client-2", pathForward, hopClient)[:1]))
		n.expect(t, "client0", tagged, xdpRedirect, ethernet(coreMAC, n.mac["core0"], encapsulated(want)))
	})
	t.Run("an unresolved next hop leaves the encapsulated packet to the kernel", func(t *testing.T) {
		must(t, n.PutPath(30, Path{cats.PathSRv6, ingressSource, []netip.Addr{deliverSID}, 0}))
		g := udp6
		must(t, n.Install(g.ingress("client-1", 30, hopClient)[:1]))
		in := packet{tuple: g.forward(), ttl: 64}.octets(t)
		o := outer{ingressSource, []netip.Addr{deliverSID}, 0, 0, swap32(flowLabel(g.forward())), 63}
		want := o.encapsulate(packet{tuple: g.delivered(), ttl: 63}.octets(t))
		before := n.counters(t).Unresolved.Packets
		n.expect(t, "client0", ethernet(n.mac["client0"], clientMAC, in), xdpPass,
			ethernet(n.mac["client0"], n.mac["client0"], want))
		if got := n.counters(t).Unresolved.Packets - before; got != 1 {
			t.Errorf("counted %d unresolved packets, want 1", got)
		}
	})
	t.Run("a frame for another station is left alone", func(t *testing.T) {
		in := ethernet(someMAC, clientMAC, packet{tuple: f.forward(), ttl: 64}.octets(t))
		n.expect(t, "client0", in, xdpPass, in)
	})
}

// withIPv4Options puts four no-operation options behind the IPv4 header.
func withIPv4Options(ip []byte) []byte {
	out := append(append(append([]byte(nil), ip[:20]...), 1, 1, 1, 1), ip[20:]...)
	out[0] = 0x46
	out[3] += 4
	out[10], out[11] = 0, 0
	sum := ^onesSum(out[:24])
	out[10], out[11] = byte(sum>>8), byte(sum)
	return out
}

// withExtensionHeaders puts hop-by-hop options, a used-up routing header and destination options before the transport
// header.
func withExtensionHeaders(ip []byte) []byte {
	transport := ip[6]
	headers := []byte{
		43, 0, 1, 4, 0, 0, 0, 0, // hop by hop, PadN
		60, 2, 2, 0, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // of Mobile IPv6
		transport, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // destination options, PadN
	}
	out := append(append(append([]byte(nil), ip[:40]...), headers...), ip[40:]...)
	out[6] = 0
	out[5] += byte(len(headers))
	return out
}

func TestUsage(t *testing.T) {
	n := newDomain(t)
	f := tcp4
	must(t, n.Install(f.ingress("client-1", pathForward, hopClient)))
	installed := Monotonic()
	key := f.ingressKey("client-1")
	send := func(flags string) int {
		in := packet{tuple: f.forward(), ttl: 64, flags: flags, payload: "abc"}.octets(t)
		if a, _ := n.run(t, "client0", ethernet(n.mac["client0"], clientMAC, in)); a != xdpRedirect {
			t.Fatalf("the program says %s", actionName(a))
		}
		return len(in)
	}
	u := n.usage(t)[key]
	if u.Packets != 0 || u.Transaction != transaction || u.LastSeen > installed || u.LastSeen < installed-int64(time.Minute) {
		t.Errorf("usage of a new entry: %+v", u)
	}
	size := send("A")
	first := n.usage(t)[key]
	if first.Packets != 1 || first.Octets != uint64(size) || first.FIN || first.RST || first.LastSeen < u.LastSeen {
		t.Errorf("usage after one packet: %+v", first)
	}
	send("FA")
	if u := n.usage(t)[key]; u.Packets != 2 || !u.FIN || u.RST {
		t.Errorf("usage after FIN: %+v", u)
	}
	send("R")
	if u := n.usage(t)[key]; u.Packets != 3 || !u.FIN || !u.RST {
		t.Errorf("usage after RST: %+v", u)
	}
	if u := n.usage(t)[Key{Kind: IngressReverse, Tuple: f.reverse()}]; u.Packets != 0 || u.FIN {
		t.Errorf("the other direction was counted: %+v", u)
	}
	must(t, n.SetDraining(key, transaction, true))
	drained := n.usage(t)[key]
	time.Sleep(20 * time.Millisecond) // longer than a tick of the coarse clock
	send("A")
	if u := n.usage(t)[key]; !u.Draining || u.Packets != 4 || u.LastSeen != drained.LastSeen {
		t.Errorf("a draining entry: %+v, before %+v", u, drained)
	}
}
