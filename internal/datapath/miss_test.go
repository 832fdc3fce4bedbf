package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

// take reads what is held without waiting.
func (n *node) take(t testing.TB) []Miss {
	t.Helper()
	misses, err := n.ReadMisses(make([]Miss, 0, 64), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return misses
}

func (n *node) expectNoMiss(t testing.TB) {
	t.Helper()
	if m := n.take(t); len(m) != 0 {
		t.Errorf("%d packets were held, the first %s", len(m), m[0].Key.Tuple)
	}
}

// expectMiss runs a frame that must be held.
func (n *node) expectMiss(t testing.TB, port string, frame []byte) Miss {
	t.Helper()
	before := n.counters(t)
	n.expect(t, port, frame, xdpDrop, nil)
	after := n.counters(t)
	for r, count := range after.Drops {
		if count != before.Drops[r] {
			t.Errorf("a held packet was counted as dropped by %s", r)
		}
	}
	misses := n.take(t)
	if len(misses) != 1 {
		t.Fatalf("%d packets held, want 1", len(misses))
	}
	return misses[0]
}

func TestMiss(t *testing.T) {
	n := newDomain(t)
	number := map[string]uint32{tcp4.name: 1, udp4.name: 2, tcp6.name: 3, udp6.name: 4}

	for _, f := range flows {
		for _, size := range []int{0, 80, 1400} {
			t.Run("CP-8.1-1 the first packet of "+f.name+" is held with its context", func(t *testing.T) {
				frame := ethernet(n.mac["client0"], clientMAC,
					packet{tuple: f.forward(), ttl: 64, flags: "S", payload: fill(size)}.octets(t))
				earliest := Monotonic() - int64(time.Second)
				m := n.expectMiss(t, "client0", frame)
				if m.Key != f.ingressKey("client-1") {
					t.Errorf("key %+v, want %+v", m.Key, f.ingressKey("client-1"))
				}
				if m.Service != number[f.name] || m.Interface != n.index["client0"] || m.VLAN != 0 || m.Over {
					t.Errorf("held as %+v", m)
				}
				if f.protocol == cats.TCP && m.TCPFlags != 0x02 || f.protocol == cats.UDP && m.TCPFlags != 0 {
					t.Errorf("TCP flags %02x", m.TCPFlags)
				}
				if m.Received < earliest || m.Received > Monotonic() {
					t.Errorf("received at %d, now %d", m.Received, Monotonic())
				}
				diff(t, "frame", m.Frame, frame)
			})
		}
	}
	t.Run("CP-8.1-1 a binding is looked for before any selection", func(t *testing.T) {
		f := tcp4
		must(t, n.Install(f.ingress("client-1", pathForward, hopClient)))
		defer n.Remove([]Key{f.ingressKey("client-1"), {Kind: IngressReverse, Tuple: f.reverse()}})
		frame := ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 64, flags: "S"}.octets(t))
		if a, _ := n.run(t, "client0", frame); a != xdpRedirect {
			t.Errorf("the program says %s", actionName(a))
		}
		n.expectNoMiss(t)
	})
	t.Run("the VLAN is told", func(t *testing.T) {
		frame := vlanFrame(n.mac["client0"], clientMAC, []uint16{7}, packet{tuple: udp4.forward(), ttl: 64}.octets(t))
		m := n.expectMiss(t, "client0", frame)
		if m.VLAN != 7 || m.Key.Attachment != AttachmentID("client-2") {
			t.Errorf("held as %+v", m)
		}
		diff(t, "frame", m.Frame, frame)
	})
	t.Run("a source outside every attachment is unauthorized", func(t *testing.T) {
		stranger := udp4
		stranger.client = ap("203.0.113.9:1000")
		n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC,
			packet{tuple: stranger.forward(), ttl: 64}.octets(t)), cats.ReasonUnauthorized)
		n.expectDrop(t, "client0", vlanFrame(n.mac["client0"], clientMAC, []uint16{8},
			packet{tuple: udp4.forward(), ttl: 64}.octets(t)), cats.ReasonUnauthorized)
		n.expectDrop(t, "client0", vlanFrame(n.mac["client0"], clientMAC, []uint16{3, 7},
			packet{tuple: udp4.forward(), ttl: 64}.octets(t)), cats.ReasonUnauthorized)
	})
	for _, f := range []flow{tcp4, tcp6} {
		for _, flags := range []string{"A", "SA", "FA", "R", "RA", "PA", "SF", "SR"} {
			t.Run(f.name+" "+flags+" without binding begins nothing", func(t *testing.T) {
				n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC,
					packet{tuple: f.forward(), ttl: 64, flags: flags}.octets(t)), cats.ReasonNoBinding)
			})
		}
	}
	t.Run("a held-down key is dropped under its reason until its time", func(t *testing.T) {
		f := udp6
		frame := ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 64}.octets(t))
		must(t, n.HoldDown(f.ingressKey("client-1"), cats.ReasonNoCandidate, time.Hour))
		n.expectDrop(t, "client0", frame, cats.ReasonNoCandidate)
		must(t, n.HoldDown(f.ingressKey("client-1"), cats.ReasonNoCandidate, -time.Second))
		n.expectMiss(t, "client0", frame)
	})
	t.Run("a new SYN of a draining binding is held", func(t *testing.T) {
		f := tcp6
		must(t, n.Install(f.ingress("client-1", pathForward, hopClient)))
		must(t, n.SetDraining(f.ingressKey("client-1"), transaction, true))
		old := ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 64, flags: "A"}.octets(t))
		if a, _ := n.run(t, "client0", old); a != xdpRedirect {
			t.Errorf("a packet of the old connection: %s", actionName(a))
		}
		m := n.expectMiss(t, "client0", ethernet(n.mac["client0"], clientMAC,
			packet{tuple: f.forward(), ttl: 64, flags: "S"}.octets(t)))
		if !m.Over {
			t.Error("the miss does not tell of the draining binding")
		}
	})
	for _, flags := range []string{"FA", "R"} {
		t.Run("a new SYN after the client's "+flags+" is held", func(t *testing.T) {
			f := tcp4
			must(t, n.Install(f.ingress("client-1", pathForward, hopClient)))
			defer func() { must(t, n.Remove([]Key{f.ingressKey("client-1")})) }()
			send := func(flags string) []byte {
				return ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 64, flags: flags}.octets(t))
			}
			for _, old := range []string{"S", "A", flags, "A"} {
				if a, _ := n.run(t, "client0", send(old)); a != xdpRedirect {
					t.Errorf("%s of the old connection: %s", old, actionName(a))
				}
			}
			if m := n.expectMiss(t, "client0", send("S")); !m.Over {
				t.Error("the miss does not tell of the binding that is over")
			}
		})
	}
}

// TestUntouched proves that what is no service goes to the kernel as it came.
func TestUntouched(t *testing.T) {
	n := newDomain(t)
	other := tcp4
	other.service = ap("192.0.2.100:80")
	elsewhere := tcp6
	elsewhere.service = ap("[2001:db8:5::101]:443")
	v4 := packet{tuple: udp4.forward(), ttl: 64}.octets(t)
	icmp := append([]byte(nil), v4...)
	icmp[9] = 1
	mapped := packet{tuple: udp6.forward(), ttl: 64}.octets(t)
	for i, a := range map[int]string{8: "::ffff:192.0.2.10", 24: "::ffff:192.0.2.100"} {
		copy(mapped[i:], addr(a).AsSlice())
	}
	for name, ip := range map[string][]byte{
		"another port of a service address": packet{tuple: other.forward(), ttl: 64, flags: "S"}.octets(t),
		"another address":                   packet{tuple: elsewhere.forward(), ttl: 64, flags: "S"}.octets(t),
		"return direction":                  packet{tuple: udp4.restored(), ttl: 64}.octets(t),
		"ICMP":                              icmp,
		"IPv6 with mapped addresses":        mapped,
	} {
		for _, port := range []string{"client0", "core0", "svc0", "any0"} {
			frame := ethernet(n.mac[port], someMAC, ip)
			t.Run(name+" on "+port, func(t *testing.T) { n.expect(t, port, frame, xdpPass, frame) })
		}
	}
	arp := append(ethernet(n.mac["client0"], clientMAC, v4)[:12], 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0)
	t.Run("ARP", func(t *testing.T) { n.expect(t, "client0", arp, xdpPass, arp) })
	service := ethernet(n.mac["core0"], someMAC, v4)
	t.Run("a service address on a core port", func(t *testing.T) { n.expect(t, "core0", service, xdpPass, service) })
	t.Run("an interface that is no port", func(t *testing.T) {
		n.in(t, func() error {
			a, out, err := n.runHere(0, service)
			if a != xdpPass || !bytes.Equal(out, service) {
				t.Errorf("%s", actionName(a))
			}
			return err
		})
	})
	if c := n.counters(t); c.Passed.Packets != 22 {
		t.Errorf("counted %d passed packets, want 22", c.Passed.Packets)
	}
}

func TestAnnounced(t *testing.T) {
	n := newDomain(t)
	f := udp4
	f.service = ap("203.0.113.50:7000")
	frame := ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 64}.octets(t))
	n.expect(t, "client0", frame, xdpPass, frame)
	must(t, n.Announce(f.ingressKey("client-1"), time.Hour))
	if m := n.expectMiss(t, "client0", frame); m.Service != 0 || m.Key != f.ingressKey("client-1") {
		t.Errorf("held as %+v", m)
	}
	must(t, n.Withdraw(f.ingressKey("client-1")), n.Withdraw(f.ingressKey("client-1")))
	n.expect(t, "client0", frame, xdpPass, frame)
	must(t, n.Announce(f.ingressKey("client-1"), -time.Second))
	n.expect(t, "client0", frame, xdpPass, frame)
}

func TestHeldFull(t *testing.T) {
	n := newDomain(t)
	frame := ethernet(n.mac["client0"], clientMAC, packet{tuple: udp4.forward(), ttl: 64, payload: fill(1000)}.octets(t))
	full := false
	for range 1 << 20 / MaxFrame { // more than the ring takes
		n.run(t, "client0", frame)
		if full = n.counters(t).Drops[cats.ReasonHeldFull] > 0; full {
			break
		}
	}
	if !full {
		t.Fatal("a full ring buffer dropped nothing")
	}
	n.expectDrop(t, "client0", frame, cats.ReasonHeldFull)
	held := 0
	for m := n.take(t); len(m) > 0; m = n.take(t) {
		held += len(m)
	}
	if c := n.counters(t); uint64(held) != c.Held.Packets {
		t.Errorf("read %d held packets, counted %d", held, c.Held.Packets)
	}
	n.expectMiss(t, "client0", frame)
}

func TestTooLongToHold(t *testing.T) {
	n := newDomain(t)
	most := packet{tuple: udp4.forward(), ttl: 64, payload: fill(MaxFrame - 14 - 28)}
	if m := n.expectMiss(t, "client0", ethernet(n.mac["client0"], clientMAC, most.octets(t))); len(m.Frame) != MaxFrame {
		t.Errorf("held %d octets, want %d", len(m.Frame), MaxFrame)
	}
	most.payload += "x"
	n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC, most.octets(t)), cats.ReasonTooBig)
}

// TestRelease proves that a held packet goes through the same program, once, as if it had just arrived.
func TestRelease(t *testing.T) {
	n := newDomain(t)
	for _, f := range flows {
		t.Run(f.name, func(t *testing.T) {
			frame := ethernet(n.mac["client0"], clientMAC,
				packet{tuple: f.forward(), ttl: 64, flags: "S", payload: "abc"}.octets(t))
			m := n.expectMiss(t, "client0", frame)
			released := ReleaseFrame(nil, m.Interface, m.Frame)
			if len(released) != len(frame)+ReleaseOverhead {
				t.Errorf("%d octets in front, want %d", len(released)-len(frame), ReleaseOverhead)
			}
			n.expectDrop(t, "rel0", released, cats.ReasonNoBinding) // and never held a second time
			must(t, n.Install(f.ingress("client-1", pathForward, hopClient)))
			_, want := n.run(t, "client0", frame)
			n.expect(t, "rel0", released, xdpRedirect, want)
			n.expectDrop(t, "rel0", ReleaseFrame(nil, n.index["core0"], frame), cats.ReasonUnauthorized)
			n.expectDrop(t, "rel0", ReleaseFrame(nil, 4711, frame), cats.ReasonUnauthorized)
		})
	}
	t.Run("to the kernel, by the MAC of the release port", func(t *testing.T) {
		f := udp4
		must(t, n.PutPath(pathForward, Path{Kind: cats.PathNative}))
		frame := ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 64}.octets(t))
		want := packet{tuple: f.delivered(), ttl: 63}.octets(t)
		n.expect(t, "rel0", ReleaseFrame(nil, n.index["client0"], frame), xdpPass,
			ethernet(n.mac["rel0"], n.mac["rel0"], want))
	})
	t.Run("other frames of the private veth are the kernel's", func(t *testing.T) {
		frame := ethernet(n.mac["rel0"], someMAC, packet{tuple: udp4.forward(), ttl: 64}.octets(t))
		n.expect(t, "rel0", frame, xdpPass, frame)
	})
	t.Run("a release header on any other port is nothing", func(t *testing.T) {
		frame := ReleaseFrame(nil, n.index["client0"], ethernet(n.mac["client0"], clientMAC,
			packet{tuple: udp4.forward(), ttl: 64}.octets(t)))
		mac := n.mac["client0"]
		copy(frame, mac[:])
		n.expect(t, "client0", frame, xdpPass, frame)
	})
}

func TestReadMisses(t *testing.T) {
	n := newDomain(t)
	send := func(port uint16) {
		f := udp4
		f.client = ap("192.0.2.10:1")
		ip := packet{tuple: f.forward(), ttl: 64}.octets(t)
		binary.BigEndian.PutUint16(ip[20:], port)
		n.run(t, "client0", ethernet(n.mac["client0"], clientMAC, ip))
	}
	for i := range 10 {
		send(uint16(100 + i))
	}
	var ports []uint16
	for len(ports) < 10 {
		m, err := n.ReadMisses(make([]Miss, 0, 4), time.Now().Add(time.Minute))
		if err != nil || len(m) == 0 || len(m) > 4 {
			t.Fatalf("read %d packets, error %v", len(m), err)
		}
		for _, one := range m {
			ports = append(ports, one.Key.Tuple.Source.Port())
		}
	}
	for i, p := range ports {
		if p != uint16(100+i) {
			t.Fatalf("packets came as %v, want them in order", ports)
		}
	}
	if m, err := n.ReadMisses(nil, time.Now().Add(20*time.Millisecond)); len(m) != 0 || err != nil {
		t.Errorf("at the deadline: %d packets, error %v", len(m), err)
	}
	ended := make(chan error)
	go func() {
		_, err := n.ReadMisses(nil, time.Time{})
		ended <- err
	}()
	must(t, n.Close())
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

// TestHoldDownFull proves that keys in hold-down cost a bounded amount of memory and never an error: the oldest go.
func TestHoldDownFull(t *testing.T) {
	n := newDomain(t)
	capacity := int(n.maps.HoldDown.MaxEntries())
	key := func(i int) Key {
		f := udp4
		f.client = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i >> 16)}), uint16(i))
		return f.ingressKey("client-1")
	}
	for i := range capacity + capacity/2 {
		if err := n.HoldDown(key(i), cats.ReasonOverload, time.Hour); err != nil {
			t.Fatalf("key %d of %d: %v", i, capacity, err)
		}
	}
	last := packet{tuple: key(capacity + capacity/2 - 1).Tuple, ttl: 64}.octets(t)
	n.expectDrop(t, "client0", ethernet(n.mac["client0"], clientMAC, last), cats.ReasonOverload)
	held := 0
	must(t, eachOf(n.maps.HoldDown, func(*programBindingKey, *programHeldDown) { held++ }))
	if held > capacity || held < capacity/2 {
		t.Errorf("%d keys are in hold-down; there is room for %d", held, capacity)
	}
}

func BenchmarkHoldDown(b *testing.B) {
	n := newDomain(b)
	key := udp4.ingressKey("client-1")
	for i := 0; b.Loop(); i++ {
		key.Tuple.Source = netip.AddrPortFrom(key.Tuple.Source.Addr(), uint16(i))
		must(b, n.HoldDown(key, cats.ReasonOverload, time.Second))
	}
}
