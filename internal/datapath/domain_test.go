package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-net/margay/cats"
)

// srh is a segment routing header of two segments in front of next, with that many left.
func srh(next, left byte) []byte {
	header := []byte{next, 4, 4, left, 1, 0, 0, 0}
	return append(append(header, deliverSID.AsSlice()...), transitSID1.AsSlice()...)
}

// extended puts extension headers, the first of them of type first, into an IPv6 packet.
func extended(ip []byte, first byte, headers ...[]byte) []byte {
	out := append([]byte(nil), ip[:40]...)
	for _, h := range headers {
		out = append(out, h...)
	}
	out = append(out, ip[40:]...)
	binary.BigEndian.PutUint16(out[4:], uint16(len(out)-40))
	out[6] = first
	return out
}

// elsewhere is a packet that is nothing to a forwarder.
func elsewhere(t *testing.T, target string) []byte {
	g := udp6
	g.service = netip.AddrPortFrom(addr(target), 9)
	return packet{tuple: g.forward(), ttl: 9, payload: "abcdefgh"}.octets(t)
}

// TestSegmentRoutingHeaderFromOutside proves that no segment routing header comes into the SR domain, wherever it
// stands (RFC 8754 section 5.1).
func TestSegmentRoutingHeaderFromOutside(t *testing.T) {
	n := newDomain(t)
	must(t, n.Install(udp6.ingress("client-1", pathForward, hopClient)), n.Install(udp6.egress(pathReturn)))
	option := func(next byte) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} }
	for name, change := range map[string]func([]byte) []byte{
		"to go on":                  func(ip []byte) []byte { return extended(ip, 43, srh(17, 1)) },
		"at its last segment":       func(ip []byte) []byte { return extended(ip, 43, srh(17, 0)) },
		"behind hop-by-hop options": func(ip []byte) []byte { return extended(ip, 0, option(43), srh(17, 1)) },
		"behind destination options": func(ip []byte) []byte {
			return extended(ip, 60, option(60), option(43), srh(17, 1))
		},
		"behind another routing header": func(ip []byte) []byte {
			return extended(ip, 43, []byte{43, 0, 2, 1, 0, 0, 0, 0}, srh(17, 1))
		},
		"before another routing header": func(ip []byte) []byte {
			return extended(ip, 43, srh(43, 0), []byte{17, 0, 2, 0, 0, 0, 0, 0})
		},
		"behind an authentication header": func(ip []byte) []byte {
			return extended(ip, 51, []byte{43, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, srh(17, 1))
		},
		"behind a fragment header": func(ip []byte) []byte {
			return extended(ip, 44, []byte{43, 0, 0, 1, 0, 0, 0, 1}, srh(17, 1))
		},
		"in the last place that is looked at": func(ip []byte) []byte {
			return extended(ip, 60, option(60), option(60), option(60), option(60), option(43), srh(17, 1))
		},
		"around a packet": func(ip []byte) []byte {
			return outer{udp6.client.Addr(), []netip.Addr{addr("2001:db8:99::1"), deliverSID}, 1, 0, 9, 60}.encapsulate(ip)
		},
	} {
		for port, ip := range map[string][]byte{
			"client0": packet{tuple: udp6.forward(), ttl: 9}.octets(t), "svc0": packet{tuple: udp6.reverse(), ttl: 9}.octets(t),
		} {
			t.Run(name+" on "+port, func(t *testing.T) {
				n.expectDrop(t, port, ethernet(n.mac[port], clientMAC, change(ip)), cats.ReasonUnauthorized)
				n.expectDrop(t, port, ethernet(n.mac[port], clientMAC, change(elsewhere(t, "2001:db8:99::1"))),
					cats.ReasonUnauthorized)
				must(t, n.SetDomainBlock(nil))
				n.expectDrop(t, port, ethernet(n.mac[port], clientMAC, change(elsewhere(t, "2001:db8:99::1"))),
					cats.ReasonUnauthorized)
				must(t, n.SetDomainBlock(domain))
			})
		}
		t.Run(name+" through the network", func(t *testing.T) {
			frame := ethernet(n.mac["core0"], coreMAC, change(elsewhere(t, "2001:db8:99::1")))
			n.expect(t, "core0", frame, xdpPass, frame)
		})
	}
	t.Run("where headers hide what is behind them", func(t *testing.T) {
		many := sevenExtensionHeaders(elsewhere(t, "2001:db8:99::1"))
		cut := extended(elsewhere(t, "2001:db8:99::1"), 60, option(43))
		cut = cut[:44]
		cut[5] = 4
		jumbo := extended(elsewhere(t, "2001:db8:99::1"), 0, option(43), srh(17, 1))
		jumbo[4], jumbo[5] = 0, 0
		for name, ip := range map[string][]byte{"too many": many, "cut off": cut, "without a length": jumbo} {
			t.Run(name, func(t *testing.T) {
				for _, port := range []string{"client0", "svc0"} {
					n.expectDrop(t, port, ethernet(n.mac[port], clientMAC, ip), cats.ReasonBadPacket)
				}
			})
		}
	})
	t.Run("other extension headers are the kernel's", func(t *testing.T) {
		for name, ip := range map[string][]byte{
			"several":      withExtensionHeaders(elsewhere(t, "2001:db8:99::1")),
			"another type": extended(elsewhere(t, "2001:db8:99::1"), 43, []byte{17, 0, 2, 1, 0, 0, 0, 0}),
			"authenticated, to a service": extended(packet{tuple: udp6.forward(), ttl: 9}.octets(t), 51,
				[]byte{17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}),
			"a later fragment": extended(elsewhere(t, "2001:db8:99::1"), 44, []byte{43, 0, 0, 9, 0, 0, 0, 1}),
		} {
			t.Run(name, func(t *testing.T) {
				for _, port := range []string{"client0", "svc0"} {
					frame := ethernet(n.mac[port], clientMAC, ip)
					n.expect(t, port, frame, xdpPass, frame)
				}
			})
		}
	})
}

// TestToDomainFromOutside proves that nothing comes from outside the SR domain to a segment of any of its nodes (RFC
// 8754 section 5.1).
func TestToDomainFromOutside(t *testing.T) {
	n := newDomain(t)
	must(t, n.SetDeliveries([]Delivery{tcp4.delivery(deliverSID, hopInstance)}))
	inner := packet{tuple: tcp4.delivered(), ttl: 20}.octets(t)
	to := func(target string) map[string][]byte {
		plain := elsewhere(t, target)
		icmp := append([]byte(nil), plain...)
		icmp[6] = 58
		return map[string][]byte{
			"encapsulated": outer{udp6.client.Addr(), []netip.Addr{addr(target)}, 0, 0, 9, 60}.encapsulate(inner),
			"plain":        plain, "ICMP": icmp,
			"fragment": extended(plain, 44, []byte{4, 0, 0, 9, 0, 0, 0, 1}),
		}
	}
	const router, egress, unknown, beside = "2001:db8:0:f1::1", "2001:db8:0:e1::21", "2001:db8:0:1::4711", "2001:db8:0:d1::1"
	for _, target := range []string{router, egress, unknown, deliverSID.String(), returnSID.String()} {
		for name, ip := range to(target) {
			for _, port := range []string{"client0", "svc0"} {
				t.Run(fmt.Sprint(name, " to ", target, " on ", port), func(t *testing.T) {
					n.expectDrop(t, port, ethernet(n.mac[port], clientMAC, ip), cats.ReasonUnauthorized)
				})
			}
		}
	}
	for name, ip := range to(router) {
		t.Run(name+" through the network", func(t *testing.T) {
			frame := ethernet(n.mac["core0"], coreMAC, ip)
			n.expect(t, "core0", frame, xdpPass, frame)
		})
	}
	for name, ip := range to(beside) {
		t.Run(name+" beside the domain", func(t *testing.T) {
			frame := ethernet(n.mac["client0"], clientMAC, ip)
			n.expect(t, "client0", frame, xdpPass, frame)
		})
	}
	t.Run("no domain is known", func(t *testing.T) {
		must(t, n.SetDomainBlock(nil))
		for name, ip := range to(router) {
			frame := ethernet(n.mac["client0"], clientMAC, ip)
			t.Run(name, func(t *testing.T) { n.expect(t, "client0", frame, xdpPass, frame) })
		}
		for name, ip := range to(deliverSID.String()) {
			t.Run(name+" to a segment of this node", func(t *testing.T) {
				n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC, ip), cats.ReasonUnauthorized)
			})
		}
		n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC, to("2001:db8:0:e2::4711")["encapsulated"]),
			cats.ReasonUnauthorized)
	})
}
