package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/lab/capture"
)

// drops gives how far one drop counter has moved.
func drops(before, after tally, forwarder string, reason api.Reason) uint64 {
	key := forwarder + " " + reason.String()
	return after.drops[key] - before.drops[key]
}

// dropped waits until a drop counter has moved by at least one.
func dropped(t *testing.T, before tally, forwarder string, reason api.Reason) {
	t.Helper()
	eventually(t, fmt.Sprintf("a drop at %s by %s", forwarder, reason), func() error {
		if after := count(t); drops(before, after, forwarder, reason) == 0 {
			return fmt.Errorf("the counters are %v, were %v", after.drops, before.drops)
		}
		return nil
	})
}

func TestBurstOnOneKey(t *testing.T) {
	domain(t)
	eligible(t, "U1", 2)
	atB := record(t, "B", "eth0")
	before := count(t)
	connection, err := dial(t, "client", "udp", clientV4, 52001, "192.0.2.100:5000")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := fmt.Fprintf(connection, "burst-%d", i); err != nil {
			t.Fatal(err)
		}
	}
	toB := cats.Tuple{Protocol: cats.UDP, Source: netip.AddrPortFrom(clientV4, 52001), Target: netip.MustParseAddrPort("198.51.100.21:5000")}
	eventually(t, "packets of the burst at B", func() error {
		if len(packets(atB.Packets(), toB)) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	if answer, err := datagram(connectionReader{connection}, "last"); err != nil {
		t.Logf("the answers to the burst come first: %q, %v", answer, err)
	}
	after := count(t)
	t.Run("CP-8.1-3 a burst on one new key makes one selection", func(t *testing.T) {
		if after.requests-before.requests != 1 || after.asked-before.asked != 1 || after.paths-before.paths != 2 {
			t.Errorf("%d requests sent, %g taken, %g path computations: want 1, 1, 2", after.requests-before.requests, after.asked-before.asked, after.paths-before.paths)
		}
	})
}

// connectionReader lets datagram read past earlier answers.
type connectionReader struct{ net.Conn }

func TestReverseWithoutBinding(t *testing.T) {
	domain(t)
	eligible(t, "U1", 2)
	atClient := record(t, "client", "eth0")
	before := count(t)
	// The instance's service holds the locator's port: a raw socket sends from it all the same.
	stray := cats.Tuple{Protocol: cats.UDP, Source: netip.MustParseAddrPort("198.51.100.21:5000"), Target: netip.AddrPortFrom(clientV4, 40_404)}
	if err := node(t, "B").Do(func() error { return sendRawUDP(stray, "stray") }); err != nil {
		t.Fatal(err)
	}
	dropped(t, before, "EF-2", api.Reason_REASON_NO_BINDING)
	t.Run("CP-8.6-2 a reverse packet without a binding makes no selection and reaches nobody", func(t *testing.T) {
		after := count(t)
		if after.requests != before.requests || after.asked != before.asked {
			t.Errorf("requests moved from %d to %d", before.requests, after.requests)
		}
		for _, p := range atClient.Packets() {
			if p.Tuple.Target == stray.Target {
				t.Errorf("the client got %s", p.String())
			}
		}
	})
}

// sendRawUDP sends one datagram with any source through a raw socket of this thread's namespace.
func sendRawUDP(tuple cats.Tuple, payload string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: tuple.Source.Addr().As4()}); err != nil {
		return err
	}
	return unix.Sendto(fd, udpSegment(tuple, payload), 0, &unix.SockaddrInet4{Addr: tuple.Target.Addr().As4()})
}

func TestUnknownSID(t *testing.T) {
	domain(t)
	atB, atClient := record(t, "B", "eth0"), record(t, "client", "eth0")
	before := count(t)
	inner := cats.Tuple{Protocol: cats.UDP, Source: netip.AddrPortFrom(clientV4, 40_405), Target: netip.MustParseAddrPort("198.51.100.21:5000")}
	err := node(t, "R1").Do(func() error { return sendEncapsulated("2001:db8:0:e2::dead", inner) })
	if err != nil {
		t.Fatal(err)
	}
	dropped(t, before, "EF-2", api.Reason_REASON_UNKNOWN_SID)
	nobody(t, inner, atB, atClient)
	t.Run("a known SID without a binding", func(t *testing.T) {
		before := count(t)
		err := node(t, "R1").Do(func() error { return sendEncapsulated("2001:db8:0:e2::12", inner) })
		if err != nil {
			t.Fatal(err)
		}
		dropped(t, before, "EF-2", api.Reason_REASON_NO_BINDING)
		nobody(t, inner, atB, atClient)
	})
	t.Run("a known SID with another instance's locator", func(t *testing.T) {
		before := count(t)
		other := inner
		other.Target = netip.MustParseAddrPort("198.51.100.21:443")
		err := node(t, "R1").Do(func() error { return sendEncapsulated("2001:db8:0:e2::12", other) })
		if err != nil {
			t.Fatal(err)
		}
		dropped(t, before, "EF-2", api.Reason_REASON_BAD_CONTEXT)
		nobody(t, other, atB, atClient)
	})
}

// sendEncapsulated sends an IPv4 UDP packet in IPv6 to a SID, as a router that nobody asked would.
func sendEncapsulated(sid string, inner cats.Tuple) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_IPIP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, ipv4UDP(inner, 0, "stray"), 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr(sid).As16()})
}

// ipv4UDP gives a packet, or the fragment of one whose flags and offset are given.
func ipv4UDP(tuple cats.Tuple, fragment uint16, payload string) []byte {
	packet := []byte{0x45, 0, 0, byte(28 + len(payload)), 0x12, 0x34, byte(fragment >> 8), byte(fragment), 64, unix.IPPROTO_UDP, 0, 0}
	packet = append(packet, tuple.Source.Addr().AsSlice()...)
	packet = append(packet, tuple.Target.Addr().AsSlice()...)
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum))
	return append(packet, udpSegment(tuple, payload)...)
}

// udpSegment gives a datagram without checksum, which IPv4 allows (RFC 768).
func udpSegment(tuple cats.Tuple, payload string) []byte {
	segment := binary.BigEndian.AppendUint16(nil, tuple.Source.Port())
	segment = binary.BigEndian.AppendUint16(segment, tuple.Target.Port())
	segment = binary.BigEndian.AppendUint16(segment, uint16(8+len(payload)))
	return append(append(segment, 0, 0), payload...)
}

// ipv6 puts an IPv6 header before a payload.
func ipv6(source, target netip.Addr, next byte, payload []byte) []byte {
	packet := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(payload)))
	packet = append(packet, next, 64)
	packet = append(packet, source.AsSlice()...)
	packet = append(packet, target.AsSlice()...)
	return append(packet, payload...)
}

// sendIP sends a packet as it is from inside a node.
func sendIP(t *testing.T, from string, packet []byte) {
	t.Helper()
	err := node(t, from).Do(func() error {
		family, to := unix.AF_INET6, unix.Sockaddr(nil)
		if packet[0]>>4 == 4 {
			family, to = unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])}
		} else {
			to = &unix.SockaddrInet6{Addr: [16]byte(packet[24:40])}
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, packet, 0, to)
	})
	if err != nil {
		t.Fatalf("sending from %s: %v", from, err)
	}
}

// silent checks that no frame with the mark was seen at any of the captures.
func silent(t *testing.T, mark string, at ...*capture.Capture) {
	t.Helper()
	for _, c := range at {
		for _, f := range c.Frames() {
			if bytes.Contains(f.Octets, []byte(mark)) {
				t.Errorf("somebody got % x", f.Octets)
			}
		}
	}
}

// TestBorderOfSRDomain sends what only the inside of the SR domain may send (RFC 8754 section 5.1) from a client, and
// then from inside, where it works.
func TestBorderOfSRDomain(t *testing.T) {
	domain(t)
	eligible(t, "U1", 2)
	const router, egress, routing = "2001:db8:0:f1::1", "2001:db8:0:e2::12", 43
	inner := cats.Tuple{Protocol: cats.UDP, Source: netip.AddrPortFrom(clientV4, 40_406), Target: netip.MustParseAddrPort("198.51.100.21:5000")}
	for name, c := range map[string]struct {
		target string
		next   byte
		srh    []byte
	}{
		"encapsulated to the segment of an egress": {egress, unix.IPPROTO_IPIP, nil},
		"by the End segment of a router": {router, routing, append(append([]byte{unix.IPPROTO_IPIP, 4, 4, 1, 1, 0, 0, 0},
			netip.MustParseAddr(egress).AsSlice()...), netip.MustParseAddr(router).AsSlice()...)},
	} {
		t.Run(name, func(t *testing.T) {
			packet := func(source netip.Addr, mark string) []byte {
				return ipv6(source, netip.MustParseAddr(c.target), c.next, append(c.srh, ipv4UDP(inner, 0, mark)...))
			}
			const mark = "from outside"
			at := []*capture.Capture{record(t, "R1", "if1"), record(t, "R2", "if1"), record(t, "B", "eth0")}
			before := count(t)
			sendIP(t, "client", packet(clientV6, mark))
			dropped(t, before, "IF-1", api.Reason_REASON_UNAUTHORIZED)
			sendIP(t, "IF-1", packet(netip.MustParseAddr("2001:db8:0:1::1"), "from inside"))
			dropped(t, before, "EF-2", api.Reason_REASON_NO_BINDING)
			silent(t, mark, at...)
			if n := drops(before, count(t), "IF-1", api.Reason_REASON_UNAUTHORIZED); n != 1 {
				t.Errorf("%d packets were dropped as unauthorized, want 1", n)
			}
		})
	}
}

// TestFragmentFromInstance sends a reply in pieces, of which only the first names a port.
func TestFragmentFromInstance(t *testing.T) {
	domain(t)
	eligible(t, "U1", 2)
	const mark = "in pieces"
	stray := cats.Tuple{Protocol: cats.UDP, Source: netip.MustParseAddrPort("198.51.100.21:5000"), Target: netip.AddrPortFrom(clientV4, 40_407)}
	source6, target6 := netip.MustParseAddr("2001:db8:b::21"), clientV6
	segment := udpSegment(stray, mark)
	piece6 := func(fragment uint16) []byte {
		header := append(binary.BigEndian.AppendUint16([]byte{unix.IPPROTO_UDP, 0}, fragment), 0, 0, 0, 1)
		return ipv6(source6, target6, unix.IPPROTO_FRAGMENT, append(header, segment...))
	}
	for name, pieces := range map[string][2][]byte{
		"IPv4": {ipv4UDP(stray, 0x2000, mark), ipv4UDP(stray, 3, mark)},
		"IPv6": {piece6(1), piece6(3 << 3)},
	} {
		t.Run("CP-8.6-2 fragments of an instance reach no client: "+name, func(t *testing.T) {
			at := []*capture.Capture{record(t, "client", "eth0"), record(t, "R1", "ef2"), record(t, "R2", "ef2")}
			before := count(t)
			sendIP(t, "B", pieces[0])
			sendIP(t, "B", pieces[1])
			eventually(t, "two drops", func() error {
				if n := drops(before, count(t), "EF-2", api.Reason_REASON_BAD_PACKET); n != 2 {
					return fmt.Errorf("%d packets were dropped as bad", n)
				}
				return nil
			})
			silent(t, mark, at...)
		})
	}
}

// TestPingOfService sends to a service's address what is no service: the kernel has it, whose route to the address ends
// in the private pair of the forwarder.
func TestPingOfService(t *testing.T) {
	domain(t)
	eligible(t, "U1", 2)
	eligible(t, "U6", 2)
	const mark = "anybody home?"
	atClient := record(t, "client", "eth0")
	beyond := []*capture.Capture{record(t, "R1", "if1"), record(t, "R2", "if1")}
	before, ended := count(t), atPrivatePair(t)
	for _, c := range []struct {
		family, protocol int
		kind             byte
		to               unix.Sockaddr
	}{
		{unix.AF_INET, unix.IPPROTO_ICMP, 8, &unix.SockaddrInet4{Addr: netip.MustParseAddr("192.0.2.100").As4()}},
		{unix.AF_INET6, unix.IPPROTO_ICMPV6, 128, &unix.SockaddrInet6{Addr: netip.MustParseAddr("2001:db8:c::100").As16()}},
	} {
		if err := node(t, "client").Do(func() error {
			fd, err := unix.Socket(c.family, unix.SOCK_DGRAM, c.protocol)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, append([]byte{c.kind, 0, 0, 0, 0, 0, 0, 1}, mark...), 0, c.to)
		}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both pings at the end of the private pair", func() error {
		if n := atPrivatePair(t); n < ended+2 {
			return fmt.Errorf("%d packets are there, before %d", n, ended)
		}
		return nil
	})
	silent(t, mark, beyond...)
	for _, f := range atClient.Frames() {
		if !f.Outgoing && bytes.Contains(f.Octets, []byte(mark)) {
			t.Errorf("the client was answered: % x", f.Octets)
		}
	}
	if after := count(t); after.requests != before.requests || after.held != before.held {
		t.Errorf("a ping was held: counters %+v, before %+v", after, before)
	}
}

// atPrivatePair counts packets that came to the far end of IF-1's private pair.
func atPrivatePair(t *testing.T) (packets uint64) {
	t.Helper()
	if err := node(t, "IF-1").Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Name, "mgs") {
				packets = l.Attrs().Statistics.RxPackets
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return packets
}

// nobody checks that a packet of the tuple's endpoints was seen at none of the captures.
func nobody(t *testing.T, tuple cats.Tuple, at ...*capture.Capture) {
	t.Helper()
	for _, c := range at {
		for _, p := range c.Packets() {
			if p.Tuple.Source == tuple.Source || p.Tuple.Target == tuple.Source {
				t.Errorf("somebody got %s", p.String())
			}
		}
	}
}

// TestNoEligibleInstance takes the last slot from every instance of a service.
func TestNoEligibleInstance(t *testing.T) {
	domain(t)
	eligible(t, "U6", 2)
	setSlots(t, "sci-a-u6", 0)
	setSlots(t, "sci-b-u6", 0)
	eligible(t, "U6", 0)
	atA, atB := record(t, "A", "eth0"), record(t, "B", "eth0")
	before := count(t)
	connection, err := dial(t, "client", "udp", clientV6, 52002, "[2001:db8:c::100]:5000")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Write([]byte("anybody?")); err != nil {
		t.Fatal(err)
	}
	dropped(t, before, "IF-1", api.Reason_REASON_NO_CANDIDATE)
	nobody(t, cats.Tuple{Source: netip.AddrPortFrom(clientV6, 52002)}, atA, atB)
	t.Run("CP-5-4 no compliant pair: a selection failure and no binding", func(t *testing.T) {
		rows := bindings(t, "U6")
		for _, row := range rows {
			if row.GetBinding().GetMatch().GetTuple().GetSource().GetPort() == 52002 {
				t.Errorf("there is a binding: %v", row)
			}
		}
		if after := count(t); after.paths != before.paths {
			t.Errorf("the PCE was asked %g times for a flow without a destination", after.paths-before.paths)
		}
	})
	if err := connection.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := connection.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client got %d octets, %v", n, err)
	}
	setSlots(t, "sci-a-u6", 100)
	setSlots(t, "sci-b-u6", 100)
	eligible(t, "U6", 2)
}
