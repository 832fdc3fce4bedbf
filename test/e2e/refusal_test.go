package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

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
	segment := binary.BigEndian.AppendUint16(nil, tuple.Source.Port())
	segment = binary.BigEndian.AppendUint16(segment, tuple.Target.Port())
	segment = binary.BigEndian.AppendUint16(segment, uint16(8+len(payload)))
	segment = append(append(segment, 0, 0), payload...) // no checksum (RFC 768)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: tuple.Source.Addr().As4()}); err != nil {
		return err
	}
	return unix.Sendto(fd, segment, 0, &unix.SockaddrInet4{Addr: tuple.Target.Addr().As4()})
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
	payload := []byte("stray")
	packet := []byte{0x45, 0, 0, byte(28 + len(payload)), 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	packet = append(packet, inner.Source.Addr().AsSlice()...)
	packet = append(packet, inner.Target.Addr().AsSlice()...)
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum))
	packet = binary.BigEndian.AppendUint16(packet, inner.Source.Port())
	packet = binary.BigEndian.AppendUint16(packet, inner.Target.Port())
	packet = binary.BigEndian.AppendUint16(packet, uint16(8+len(payload)))
	packet = append(append(packet, 0, 0), payload...)
	return unix.Sendto(fd, packet, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr(sid).As16()})
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
		var rows api.ListBindingsResponse
		ask(t, &rows, "get", "bindings", "--service", "U6")
		for _, row := range rows.GetBindings() {
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
