package datapath

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/margay-net/margay/cats"
)

// sample is a frame that the program forwards, and the port that it comes in on.
type sample struct {
	name  string
	port  string
	frame []byte
}

// samples gives one frame of each kind that is forwarded, with everything installed for them.
func (n *node) samples(t testing.TB) []sample {
	t.Helper()
	var all []sample
	var deliveries []Delivery
	for i, f := range flows {
		sid := addr("2001:db8:0:e2::30")
		for range i {
			sid = sid.Next()
		}
		deliveries = append(deliveries, f.delivery(sid, hopInstance))
		must(t, n.Install(f.ingress("client-1", pathForward, hopClient)), n.Install(f.egress(pathReturn)))
		forward := packet{tuple: f.forward(), ttl: 9, payload: "abcdefg"}.octets(t)
		delivered := packet{tuple: f.delivered(), ttl: 9, payload: "abcdefg"}.octets(t)
		reverse := packet{tuple: f.reverse(), ttl: 9, payload: "abcdefg"}.octets(t)
		one := func(sid netip.Addr) outer { return outer{ingressSource, []netip.Addr{sid}, 0, 0, 9, 60} }
		three := func(sid netip.Addr) outer {
			return outer{ingressSource, []netip.Addr{transitSID1, transitSID2, sid}, 0, 0, 9, 60}
		}
		all = append(all,
			sample{f.name + " from the client", "client0", ethernet(n.mac["client0"], clientMAC, forward)},
			sample{f.name + " released", "rel0",
				ReleaseFrame(nil, n.index["client0"], ethernet(n.mac["client0"], clientMAC, forward))},
			sample{f.name + " to the egress", "core0", n.arriving(one(sid), delivered)},
			sample{f.name + " to the egress with SRH", "core0", n.arriving(three(sid), delivered)},
			sample{f.name + " from the instance", "svc0", ethernet(n.mac["svc0"], instanceMAC, reverse)},
			sample{f.name + " to the owner", "core0", n.arriving(one(returnSID), reverse)},
			sample{f.name + " to the owner with SRH", "core0", n.arriving(three(returnSID), reverse)},
		)
		if f.client.Addr().Is6() {
			all = append(all, sample{f.name + " with extension headers", "client0",
				ethernet(n.mac["client0"], clientMAC, withExtensionHeaders(forward))})
		} else {
			all = append(all, sample{f.name + " with options", "client0",
				ethernet(n.mac["client0"], clientMAC, withIPv4Options(forward))})
		}
	}
	must(t, n.SetDeliveries(deliveries))
	return all
}

// TestTruncated cuts every kind of frame at every octet: what is left is never forwarded, and where a destination can
// be read that is ours, never left to the kernel either.
func TestTruncated(t *testing.T) {
	n := newDomain(t)
	for _, s := range n.samples(t) {
		t.Run(s.name, func(t *testing.T) {
			if a, _ := n.run(t, s.port, s.frame); a != xdpRedirect {
				t.Fatalf("whole: the program says %s", actionName(a))
			}
			readable := 34 // Ethernet and IPv4
			if binary.BigEndian.Uint16(s.frame[12:]) == 0x86dd {
				readable = 54
			}
			if s.port == "rel0" {
				readable = ReleaseOverhead
			}
			n.in(t, func() error {
				for length := 14; length < len(s.frame); length++ {
					a, _, err := n.runHere(uint32(n.index[s.port]), s.frame[:length:length])
					if err != nil {
						return err
					}
					if a != xdpDrop && (a != xdpPass || length >= readable) {
						t.Errorf("cut to %d of %d octets: the program says %s", length, len(s.frame), actionName(a))
					}
				}
				return nil
			})
			n.expectNoMiss(t)
		})
	}
}

func TestFragments(t *testing.T) {
	n := newDomain(t)
	n.samples(t)
	v4 := func(tuple cats.Tuple, fragment uint16) []byte {
		ip := packet{tuple: tuple, ttl: 9, flags: "S", payload: "abcdefg"}.octets(t)
		binary.BigEndian.PutUint16(ip[6:], fragment)
		return ip
	}
	v6 := func(tuple cats.Tuple, fragment uint16) []byte {
		ip := packet{tuple: tuple, ttl: 9, flags: "S", payload: "abcdefg"}.octets(t)
		out := append(append([]byte(nil), ip[:40]...), ip[6], 0, byte(fragment>>8), byte(fragment), 0, 0, 0, 1)
		out = append(out, ip[40:]...)
		out[5] += 8
		out[6] = 44
		return out
	}
	for _, f := range flows {
		make, first, later := v4, uint16(0x2000), uint16(0x2003)
		if f.client.Addr().Is6() {
			make, first, later = v6, 1, 8<<3|1
		}
		for _, fragment := range []uint16{first, later} {
			t.Run(f.name+" to a service", func(t *testing.T) {
				n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC, make(f.forward(), fragment)),
					cats.ReasonBadPacket)
				n.expectNoMiss(t)
			})
		}
		for _, port := range []string{"svc0", "any0"} {
			for _, fragment := range []uint16{first, later, later &^ first} {
				t.Run("CP-8.6-2 "+f.name+" from a locator by "+port, func(t *testing.T) {
					n.expectDrop(t, port, ethernet(n.mac[port], instanceMAC, make(f.reverse(), fragment)), cats.ReasonBadPacket)
				})
			}
		}
		t.Run(f.name+" of another port of the instance", func(t *testing.T) {
			g := f
			g.locator = netip.AddrPortFrom(f.locator.Addr(), 22)
			frame := ethernet(n.mac["svc0"], instanceMAC, make(g.reverse(), first))
			n.expect(t, "svc0", frame, xdpPass, frame)
		})
		t.Run(f.name+" of another protocol of the instance", func(t *testing.T) {
			for _, fragment := range []uint16{first, later} {
				for _, protocol := range []byte{1, 58, 6 + 32, 17 + 32} {
					ip := make(f.reverse(), fragment)
					if f.client.Addr().Is4() {
						ip[9] = protocol
					} else {
						ip[40] = protocol
					}
					frame := ethernet(n.mac["svc0"], instanceMAC, ip)
					n.expect(t, "svc0", frame, xdpPass, frame)
				}
			}
		})
		t.Run(f.name+" of a host beside the instance", func(t *testing.T) {
			g := f
			g.locator = netip.AddrPortFrom(f.locator.Addr().Next(), f.locator.Port())
			for _, fragment := range []uint16{first, later} {
				frame := ethernet(n.mac["svc0"], instanceMAC, make(g.reverse(), fragment))
				n.expect(t, "svc0", frame, xdpPass, frame)
			}
		})
		t.Run(f.name+" elsewhere", func(t *testing.T) {
			frame := ethernet(n.mac["client0"], clientMAC, make(f.delivered(), first))
			n.expect(t, "client0", frame, xdpPass, frame)
		})
	}
}

// TestUnknownProtocolFromLocator sends what may be of any protocol.
func TestUnknownProtocolFromLocator(t *testing.T) {
	n := newDomain(t)
	n.samples(t)
	for _, f := range []flow{tcp6, udp6} {
		beside := f
		beside.locator = netip.AddrPortFrom(f.locator.Addr().Next(), f.locator.Port())
		for name, change := range map[string]func([]byte) []byte{
			"options in another fragment": func(ip []byte) []byte { return extended(ip, 44, []byte{60, 0, 0, 9, 0, 0, 0, 1}) },
			"not at its last destination": func(ip []byte) []byte { return extended(ip, 43, []byte{ip[6], 0, 2, 1, 0, 0, 0, 0}) },
		} {
			t.Run("CP-8.6-2 "+f.name+" "+name, func(t *testing.T) {
				n.expectDrop(t, "svc0", ethernet(n.mac["svc0"], instanceMAC, change(packet{tuple: f.reverse(), ttl: 9}.octets(t))),
					cats.ReasonBadPacket)
				frame := ethernet(n.mac["svc0"], instanceMAC, change(packet{tuple: beside.reverse(), ttl: 9}.octets(t)))
				n.expect(t, "svc0", frame, xdpPass, frame)
			})
		}
	}
}

// TestFragmentsOfOtherProtocol proves that a host with locators of one protocol keeps what it sends by the other, and
// that an end of its locators is the end of that.
func TestFragmentsOfOtherProtocol(t *testing.T) {
	n := newDomain(t)
	later := func(f flow) []byte {
		ip := packet{tuple: f.reverse(), ttl: 9, payload: "abcdefg"}.octets(t)
		binary.BigEndian.PutUint16(ip[6:], 3)
		return ethernet(n.mac["svc0"], instanceMAC, ip)
	}
	must(t, n.SetDeliveries([]Delivery{tcp4.delivery(deliverSID, hopInstance)}))
	n.expectDrop(t, "svc0", later(tcp4), cats.ReasonBadPacket)
	n.expect(t, "svc0", later(udp4), xdpPass, later(udp4))
	must(t, n.SetDeliveries([]Delivery{udp4.delivery(deliverSID, hopInstance)}))
	n.expectDrop(t, "svc0", later(udp4), cats.ReasonBadPacket)
	n.expect(t, "svc0", later(tcp4), xdpPass, later(tcp4))
	must(t, n.SetDeliveries(nil))
	n.expect(t, "svc0", later(udp4), xdpPass, later(udp4))
}

func TestBrokenToService(t *testing.T) {
	n := newDomain(t)
	n.samples(t)
	v4, v6 := packet{tuple: tcp4.forward(), ttl: 9}.octets(t), packet{tuple: tcp6.forward(), ttl: 9}.octets(t)
	u4, u6 := packet{tuple: udp4.forward(), ttl: 9}.octets(t), packet{tuple: udp6.forward(), ttl: 9}.octets(t)
	for name, c := range map[string]struct {
		ip     []byte
		change func([]byte) []byte
	}{
		"IPv4 header of 16 octets":        {v4, func(p []byte) []byte { p[0] = 0x44; return p }},
		"IPv4 header beyond the packet":   {v4, func(p []byte) []byte { p[0] = 0x4f; return p }},
		"IPv4 length below its header":    {v4, func(p []byte) []byte { p[3] = 19; return p }},
		"IPv4 length beyond the frame":    {v4, func(p []byte) []byte { p[3]++; return p }},
		"IPv6 length beyond the frame":    {v6, func(p []byte) []byte { p[5]++; return p }},
		"TCP offset 4":                    {v4, func(p []byte) []byte { p[32] = 0x40; return p }},
		"TCP offset beyond the packet":    {v6, func(p []byte) []byte { p[52] = 0x60; return p }},
		"UDP length 7":                    {u4, func(p []byte) []byte { p[25] = 7; return p }},
		"UDP length beyond the packet":    {u6, func(p []byte) []byte { p[45]++; return p }},
		"UDP over IPv6 without checksum":  {u6, func(p []byte) []byte { p[46], p[47] = 0, 0; return p }},
		"extension header beyond":         {v6, func(p []byte) []byte { p[6] = 60; p[41] = 200; return p }},
		"routing header with a next hop":  {withExtensionHeaders(v6), func(p []byte) []byte { p[51] = 1; return p }},
		"seven extension headers in line": {v6, sevenExtensionHeaders},
	} {
		t.Run(name, func(t *testing.T) {
			bad := c.change(append([]byte(nil), c.ip...))
			n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC, bad), cats.ReasonBadPacket)
			n.expectNoMiss(t)
		})
	}
}

// TestBrokenFromLocator sends what the kernel would forward, since it looks at no transport header.
func TestBrokenFromLocator(t *testing.T) {
	n := newDomain(t)
	n.samples(t)
	for _, f := range flows {
		t.Run("CP-8.6-2 "+f.name, func(t *testing.T) {
			whole := packet{tuple: f.reverse(), ttl: 9}.octets(t)
			header := 20
			if f.client.Addr().Is6() {
				header = 40
			}
			for length := header; length < len(whole); length++ {
				ip := append([]byte(nil), whole[:length]...)
				if header == 20 {
					ip[3] = byte(length)
				} else {
					ip[5] = byte(length - header)
				}
				n.expectDrop(t, "svc0", ethernet(n.mac["svc0"], instanceMAC, ip), cats.ReasonBadPacket)
			}
		})
	}
}

func sevenExtensionHeaders(ip []byte) []byte {
	var headers []byte
	for range 7 {
		headers = append(headers, 60, 0, 1, 4, 0, 0, 0, 0)
	}
	headers[6*8] = ip[6]
	out := append(append(append([]byte(nil), ip[:40]...), headers...), ip[40:]...)
	out[5] += byte(len(headers))
	out[6] = 60
	return out
}

// TestRandomChanges changes sound frames at random places; see FuzzProgram for what must hold.
func TestRandomChanges(t *testing.T) {
	n := newDomain(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	samples := n.samples(t)
	n.in(t, func() error {
		for range 50_000 {
			s := samples[random.IntN(len(samples))]
			frame := append([]byte(nil), s.frame...)
			for range 1 + random.IntN(4) {
				frame[random.IntN(len(frame))] = byte(random.Uint32())
			}
			if err := n.checkAny(uint32(n.index[s.port]), frame); err != nil {
				t.Errorf("seed %d, %s: %v", seed, s.name, err)
				return nil
			}
		}
		return nil
	})
}
