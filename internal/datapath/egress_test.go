package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-net/margay/cats"
)

// arriving gives a packet as it comes to a local segment over the core.
func (n *node) arriving(o outer, ip []byte) []byte {
	return ethernet(n.mac["core0"], coreMAC, o.encapsulate(ip))
}

func TestEgressDeliver(t *testing.T) {
	n := newDomain(t)
	for _, f := range flows {
		must(t, n.SetDeliveries([]Delivery{f.delivery(deliverSID, hopInstance)}))
		must(t, n.Install(f.egress(pathReturn)))
		for name, segments := range map[string][]netip.Addr{
			"without SRH": {deliverSID}, "with SRH": {transitSID1, transitSID2, deliverSID},
		} {
			t.Run("CP-8.4-3 "+f.name+" "+name+" reaches the instance", func(t *testing.T) {
				p := packet{tuple: f.delivered(), ttl: 20, class: 0x2a, payload: fill(77)}
				in := p.octets(t)
				p.ttl--
				want := p.octets(t)
				checkSums(t, want)
				n.expect(t, "core0", n.arriving(outer{ingressSource, segments, 0, 0x2a, 9, 60}, in), xdpRedirect,
					ethernet(instanceMAC, n.mac["svc0"], want))
			})
		}
		t.Run("CP-8.4-3 "+f.name+" with another context reaches nobody", func(t *testing.T) {
			wrong := f
			wrong.locator = netip.AddrPortFrom(f.locator.Addr(), f.locator.Port()+1)
			n.wrongContext(t, wrong)
			wrong.locator = netip.AddrPortFrom(f.locator.Addr().Next(), f.locator.Port())
			n.wrongContext(t, wrong)
			wrong = f
			wrong.protocol = cats.TCP + cats.UDP - f.protocol
			n.wrongContext(t, wrong)
		})
		t.Run(f.name+" without binding reaches nobody", func(t *testing.T) {
			other := f
			other.client = netip.AddrPortFrom(f.client.Addr(), 1)
			n.expectDrop(t, "core0", n.arriving(outer{ingressSource, []netip.Addr{deliverSID}, 0, 0, 9, 60},
				packet{tuple: other.delivered(), ttl: 20, flags: "S"}.octets(t)), cats.ReasonNoBinding)
		})
		t.Run(f.name+" at its last hop", func(t *testing.T) {
			n.expectDrop(t, "core0", n.arriving(outer{ingressSource, []netip.Addr{deliverSID}, 0, 0, 9, 60},
				packet{tuple: f.delivered(), ttl: 1}.octets(t)), cats.ReasonTTLExceeded)
		})
		t.Run(f.name+" unresolved is left to the kernel without its outer header", func(t *testing.T) {
			must(t, n.SetDeliveries([]Delivery{f.delivery(deliverSID, 0)}))
			p := packet{tuple: f.delivered(), ttl: 20}
			in := p.octets(t)
			p.ttl--
			n.expect(t, "core0", n.arriving(outer{ingressSource, []netip.Addr{deliverSID}, 0, 0, 9, 60}, in), xdpPass,
				ethernet(n.mac["core0"], n.mac["core0"], p.octets(t)))
		})
	}
}

func (n *node) wrongContext(t *testing.T, f flow) {
	t.Helper()
	n.expectDrop(t, "core0", n.arriving(outer{ingressSource, []netip.Addr{deliverSID}, 0, 0, 9, 60},
		packet{tuple: f.delivered(), ttl: 20}.octets(t)), cats.ReasonBadContext)
}

func TestIngressRestore(t *testing.T) {
	n := newDomain(t)
	for _, f := range flows {
		must(t, n.Install(f.ingress("client-1", pathForward, hopClient)))
		for name, segments := range map[string][]netip.Addr{"without SRH": {returnSID}, "with SRH": {transitSID2, returnSID}} {
			t.Run("CP-8.6-1 "+f.name+" "+name+" has its source restored", func(t *testing.T) {
				for _, size := range []int{0, 1, 1200} {
					p := packet{tuple: f.reverse(), ttl: 50, class: 0x48, flags: "AP", payload: fill(size)}
					in := p.octets(t)
					p.tuple, p.ttl = f.restored(), 49
					want := p.octets(t)
					checkSums(t, want)
					n.expect(t, "core0", n.arriving(outer{egressSource, segments, 0, 0x48, 9, 60}, in), xdpRedirect,
						ethernet(clientMAC, n.mac["client0"], want))
				}
			})
		}
		t.Run("CP-8.6-2 "+f.name+" without binding reaches no client and selects nothing", func(t *testing.T) {
			other := f
			other.client = netip.AddrPortFrom(f.client.Addr(), 1)
			for _, flags := range []string{"S", "SA", "A"} {
				n.expectDrop(t, "core0", n.arriving(outer{egressSource, []netip.Addr{returnSID}, 0, 0, 9, 60},
					packet{tuple: other.reverse(), ttl: 20, flags: flags}.octets(t)), cats.ReasonNoBinding)
			}
			n.expectNoMiss(t)
		})
		t.Run(f.name+" to a client behind a VLAN", func(t *testing.T) {
			must(t, n.Remove([]Key{{Kind: IngressReverse, Tuple: f.reverse()}}))
			must(t, n.Install(f.ingress("client-1", pathForward, hopVLAN)[1:]))
			in := packet{tuple: f.reverse(), ttl: 50}.octets(t)
			want := packet{tuple: f.restored(), ttl: 49}.octets(t)
			n.expect(t, "core0", n.arriving(outer{egressSource, []netip.Addr{returnSID}, 0, 0, 9, 60}, in), xdpRedirect,
				vlanFrame(clientMAC, n.mac["client0"], []uint16{7}, want))
		})
		t.Run(f.name+" that is no flow", func(t *testing.T) {
			in := packet{tuple: f.reverse(), ttl: 50}.octets(t)
			if f.client.Addr().Is4() {
				in[9] = 1
			} else {
				in[6] = 58
			}
			n.expectDrop(t, "core0", n.arriving(outer{egressSource, []netip.Addr{returnSID}, 0, 0, 9, 60}, in),
				cats.ReasonNoBinding)
		})
	}
}

func TestEgressReverse(t *testing.T) {
	n := newDomain(t)
	for _, f := range flows {
		must(t, n.SetDeliveries([]Delivery{f.delivery(deliverSID, hopInstance)}))
		reply := func(to netip.AddrPort, flags string) []byte {
			g := f
			g.client = to
			return ethernet(n.mac["svc0"], instanceMAC,
				packet{tuple: g.reverse(), ttl: 64, class: 4, flags: flags, payload: "reply"}.octets(t))
		}
		for _, segments := range [][]netip.Addr{{returnSID}, {transitSID2, returnSID}} {
			t.Run(fmt.Sprintf("CP-8.6-1 %s goes to the owner by %d segments", f.name, len(segments)), func(t *testing.T) {
				must(t, n.PutPath(pathReturn, Path{cats.PathSRv6, egressSource, segments, hopCore}))
				must(t, n.Install(f.egress(pathReturn)))
				want := packet{tuple: f.reverse(), ttl: 63, class: 4, flags: "SA", payload: "reply"}.octets(t)
				o := outer{egressSource, segments, len(segments) - 1, 4, swap32(flowLabel(f.reverse())), 64}
				if !f.client.Addr().Is4() {
					o.hops = 63
				}
				n.expect(t, "svc0", reply(f.client, "SA"), xdpRedirect,
					ethernet(coreMAC, n.mac["core0"], o.encapsulate(want)))
			})
		}
		t.Run("CP-8.6-2 "+f.name+" from a locator without binding reaches no client and selects nothing", func(t *testing.T) {
			for _, flags := range []string{"S", "SA", "R"} {
				n.expectDrop(t, "svc0", reply(netip.AddrPortFrom(f.client.Addr(), 9), flags), cats.ReasonNoBinding)
			}
			n.expectNoMiss(t)
		})
		t.Run(f.name+" from another port of the instance is the kernel's", func(t *testing.T) {
			g := f
			g.locator = netip.AddrPortFrom(f.locator.Addr(), 22)
			frame := ethernet(n.mac["svc0"], instanceMAC, packet{tuple: g.reverse(), ttl: 64}.octets(t))
			n.expect(t, "svc0", frame, xdpPass, frame)
		})
		t.Run(f.name+" with its path gone", func(t *testing.T) {
			must(t, n.DeletePath(pathReturn))
			n.expectDrop(t, "svc0", reply(f.client, "A"), cats.ReasonNoPath)
		})
	}
}

// TestNativePath proves both directions without encapsulation, and ingress and egress in one node.
func TestNativePath(t *testing.T) {
	n := newDomain(t)
	for _, f := range flows {
		forwarded := packet{tuple: f.delivered(), ttl: 40, payload: "abc"}
		delivered := packet{tuple: f.delivered(), ttl: 39, payload: "abc"}
		reply := packet{tuple: f.reverse(), ttl: 40, payload: "def"}
		restored := packet{tuple: f.restored(), ttl: 39, payload: "def"}

		t.Run("CP-8.6-1 "+f.name+" plain from the network is restored", func(t *testing.T) {
			must(t, n.Install(f.ingress("client-1", pathNative, hopClient)))
			n.expect(t, "core0", ethernet(n.mac["core0"], coreMAC, reply.octets(t)), xdpRedirect,
				ethernet(clientMAC, n.mac["client0"], restored.octets(t)))
		})
		t.Run("CP-8.6-1 "+f.name+" from an instance beside the client is restored", func(t *testing.T) {
			n.expect(t, "svc0", ethernet(n.mac["svc0"], instanceMAC, reply.octets(t)), xdpRedirect,
				ethernet(clientMAC, n.mac["client0"], restored.octets(t)))
			must(t, n.Remove([]Key{f.ingressKey("client-1"), {Kind: IngressReverse, Tuple: f.reverse()}}))
		})
		t.Run("CP-8.4-3 "+f.name+" plain from the network is delivered", func(t *testing.T) {
			frame := ethernet(n.mac["core0"], coreMAC, forwarded.octets(t))
			must(t, n.SetDeliveries([]Delivery{f.delivery(deliverSID, hopInstance)}))
			n.expect(t, "core0", frame, xdpPass, frame)
			must(t, n.Install(f.egress(pathNative)))
			n.expect(t, "core0", frame, xdpRedirect, ethernet(instanceMAC, n.mac["svc0"], delivered.octets(t)))
		})
	}
}

func TestSegments(t *testing.T) {
	n := newDomain(t)
	f := tcp4
	must(t, n.SetDeliveries([]Delivery{f.delivery(deliverSID, hopInstance)}))
	must(t, n.Install(f.egress(pathReturn)))
	ip := packet{tuple: f.delivered(), ttl: 20}.octets(t)
	to := func(sid string) outer { return outer{ingressSource, []netip.Addr{addr(sid)}, 0, 0, 9, 60} }

	t.Run("an unknown segment of the local block", func(t *testing.T) {
		for port, reason := range map[string]cats.Reason{
			"core0": cats.ReasonUnknownSID, "client0": cats.ReasonUnauthorized, "svc0": cats.ReasonUnauthorized,
		} {
			n.expectDrop(t, port, ethernet(n.mac[port], coreMAC, to("2001:db8:0:e2::22").encapsulate(ip)), reason)
		}
		routed := outer{ingressSource, []netip.Addr{transitSID1, addr("2001:db8:0:e2::22")}, 0, 0, 9, 60}
		n.expectDrop(t, "core0", n.arriving(routed, ip), cats.ReasonUnknownSID)
	})
	t.Run("an address of the local block that is no segment is the kernel's", func(t *testing.T) {
		g := udp6
		g.service = ap("[2001:db8:0:e2::1]:7443")
		frame := ethernet(n.mac["core0"], coreMAC, packet{tuple: g.forward(), ttl: 9}.octets(t))
		n.expect(t, "core0", frame, xdpPass, frame)
	})
	t.Run("a segment of another node is the kernel's", func(t *testing.T) {
		frame := n.arriving(to("2001:db8:0:e3::22"), ip)
		n.expect(t, "core0", frame, xdpPass, frame)
	})
	t.Run("without a local block only known segments are looked at", func(t *testing.T) {
		must(t, n.SetLocalBlock(netip.Prefix{}))
		frame := n.arriving(to("2001:db8:0:e2::22"), ip)
		n.expect(t, "core0", frame, xdpPass, frame)
	})
	t.Run("clients and instances do not speak to segments", func(t *testing.T) {
		for _, port := range []string{"client0", "svc0"} {
			n.expectDrop(t, port, ethernet(n.mac[port], someMAC, to(deliverSID.String()).encapsulate(ip)),
				cats.ReasonUnauthorized)
		}
	})

	good := outer{ingressSource, []netip.Addr{transitSID1, transitSID2, deliverSID}, 0, 0, 9, 60}.encapsulate(ip)
	if a, _ := n.run(t, "core0", ethernet(n.mac["core0"], coreMAC, good)); a != xdpRedirect {
		t.Fatalf("the sound packet that the others derive from: %s", actionName(a))
	}
	for name, change := range map[string]func([]byte){
		"segments left":                       func(p []byte) { p[43] = 1 },
		"last entry beyond the header":        func(p []byte) { p[44] = 3 },
		"last entry 255":                      func(p []byte) { p[44] = 255 },
		"routing type":                        func(p []byte) { p[42] = 2 },
		"header longer than the packet":       func(p []byte) { p[41] = 255 },
		"header shorter than its list":        func(p []byte) { p[41] = 4 },
		"next header TCP behind the SRH":      func(p []byte) { p[40] = 6 },
		"next header TCP":                     func(p []byte) { p[6] = 6 },
		"next header hop-by-hop":              func(p []byte) { p[6] = 0 },
		"IPv6 said, IPv4 inside":              func(p []byte) { p[40] = 41 },
		"inner version":                       func(p []byte) { p[96] = 0x65 },
		"inner header length":                 func(p []byte) { p[96] = 0x44 },
		"inner longer than the outer":         func(p []byte) { p[5]-- },
		"outer longer than the frame":         func(p []byte) { p[5]++ },
		"inner longer than the frame":         func(p []byte) { p[99]++ },
		"inner fragment":                      func(p []byte) { p[102] |= 0x20 },
		"inner TCP offset":                    func(p []byte) { p[128] = 0x40 },
		"inner TCP offset beyond":             func(p []byte) { p[128] = 0x60 },
		"congestion marked, not ECN-capable":  func(p []byte) { p[1] = 0x30 },
		"IPv6 inside that says it is shorter": func(p []byte) { p[40] = 41; p[96] = 0x60 },
	} {
		t.Run("bad: "+name, func(t *testing.T) {
			bad := append([]byte(nil), good...)
			change(bad)
			n.expectDrop(t, "core0", ethernet(n.mac["core0"], coreMAC, bad), cats.ReasonBadPacket)
		})
	}
}

// TestECN proves RFC 6040 section 4.2: the outer congestion mark comes into the packet, and nothing else does.
func TestECN(t *testing.T) {
	n := newDomain(t)
	for _, f := range []flow{tcp4, udp6} {
		must(t, n.SetDeliveries([]Delivery{f.delivery(deliverSID, hopInstance)}))
		must(t, n.Install(f.egress(pathReturn)))
		// rows: inner Not-ECT, ECT(1), ECT(0), CE; columns: outer the same; -1: dropped
		table := [4][4]int{{0, 0, 0, -1}, {1, 1, 1, 3}, {2, 1, 2, 3}, {3, 3, 3, 3}}
		for inner, row := range table {
			for outerECN, want := range row {
				t.Run(fmt.Sprintf("%s inner %d outer %d", f.name, inner, outerECN), func(t *testing.T) {
					p := packet{tuple: f.delivered(), ttl: 20, class: 0xb8 | uint8(inner)}
					frame := n.arriving(outer{ingressSource, []netip.Addr{deliverSID}, 0, 0x20 | uint8(outerECN), 9, 60},
						p.octets(t))
					if want < 0 {
						n.expectDrop(t, "core0", frame, cats.ReasonBadPacket)
						return
					}
					p.ttl, p.class = 19, 0xb8|uint8(want)
					n.expect(t, "core0", frame, xdpRedirect, ethernet(instanceMAC, n.mac["svc0"], p.octets(t)))
				})
			}
		}
	}
}
