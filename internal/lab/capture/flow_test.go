package capture

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-net/margay/cats"
)

func TestFlowPicksBothDirections(t *testing.T) {
	tuple := func(p cats.Protocol, a, b string) *Packet {
		return &Packet{Tuple: cats.Tuple{Protocol: p, Source: netip.MustParseAddrPort(a), Target: netip.MustParseAddrPort(b)}}
	}
	there, rewritten := tuple(cats.UDP, "192.0.2.10:51000", "192.0.2.100:5000"), tuple(cats.UDP, "192.0.2.10:51000", "198.51.100.21:5000")
	back := tuple(cats.UDP, "192.0.2.100:5000", "192.0.2.10:51000")
	other, tcp := tuple(cats.UDP, "192.0.2.10:51001", "192.0.2.100:5000"), tuple(cats.TCP, "192.0.2.10:51000", "192.0.2.100:5000")
	six := tuple(cats.TCP, "[2001:db8:c::10]:1", "[2001:db8:c::100]:443")
	for _, c := range []struct {
		flow    string
		yes, no []*Packet
	}{
		{"udp 192.0.2.10:51000", []*Packet{there, rewritten, back}, []*Packet{other, tcp, six}},
		{"192.0.2.10:51000", []*Packet{there, tcp}, []*Packet{other}},
		{"udp 192.0.2.10", []*Packet{there, back, other}, []*Packet{tcp, six}},
		{"UDP  192.0.2.100:5000 192.0.2.10:51000", []*Packet{there, back}, []*Packet{rewritten, other, tcp}},
		{"tcp [2001:db8:c::100]:443", []*Packet{six}, []*Packet{tcp}},
		{"2001:db8:c::10", []*Packet{six}, []*Packet{tcp}},
		{"[2001:db8:c::10] [2001:db8:c::100]:443", []*Packet{six}, []*Packet{there}},
	} {
		f, err := ParseFlow(c.flow)
		if err != nil {
			t.Errorf("%q: %v", c.flow, err)
			continue
		}
		for _, p := range c.yes {
			if !f.Match(p) {
				t.Errorf("%q leaves %s out", c.flow, p.Tuple)
			}
		}
		for _, p := range c.no {
			if f.Match(p) {
				t.Errorf("%q takes %s", c.flow, p.Tuple)
			}
		}
	}
	for _, bad := range []string{"", "udp", "sctp 192.0.2.1", "udp 192.0.2.10:0", "udp 192.0.2.10:99999", "tcp a b", "tcp 192.0.2.1 192.0.2.2 192.0.2.3", "2001:db8::1:443x"} {
		if _, err := ParseFlow(bad); err == nil || !strings.Contains(err.Error(), "need a flow such as") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDescribe(t *testing.T) {
	const ethernet = "020000000002020000000001"
	for _, c := range []struct{ frame, want string }{
		{srv6SYN, "tcp 192.0.2.10:51000 -> 198.51.100.21:443 SYN ttl 63, 0 octets [outer 2001:db8:0:1::1 -> 2001:db8:0:f100::1, segments [2001:db8:0:f100::1 2001:db8:0:e200::21], left 1], IPv4 header checksum is wrong, tcp checksum is wrong"},
		{ethernet + "0806" + "0001080006040001" + "020000000001c000020a" + "000000000000c0000201", "arp who has 192.0.2.1, asks 192.0.2.10"},
		{ethernet + "81000064" + "0806" + "0001080006040002" + "020000000002c0000201" + "020000000001c000020a", "arp 192.0.2.1 is at 02:00:00:00:00:02"},
		{ethernet + "0806" + "0001", "arp, 2 octets"},
		{ethernet + "88b5" + "0102", "ethertype 0x88b5, 2 octets"},
		{ethernet + "0800" + "4500", "malformed IP: truncated, 2 octets"},
		{ethernet, "12 octets, too few for Ethernet"},
		{ethernet + "0800" + "4500001c000000004001f6d5c000020ac0000201" + "0800f7ff00000000", "icmp 192.0.2.10 -> 192.0.2.1 EchoRequest ttl 64"},
		{ethernet + "88a80064" + "81000065" + "0800" + "4500001c000000004001f6d5c000020ac0000201" + "0301f4fd00000000", "icmp 192.0.2.10 -> 192.0.2.1 DestinationUnreachable(Host) ttl 64"},
	} {
		frame, err := hex.DecodeString(c.frame)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := Describe(frame); got != c.want {
			t.Errorf("%s\n got %q\nwant %q", c.frame, got, c.want)
		}
	}
}
