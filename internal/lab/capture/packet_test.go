package capture

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

// A TCP SYN 192.0.2.10:51000 -> 198.51.100.21:443 in an IPv6 encapsulation with two segments.
const srv6SYN = "020000000002020000000001" + "86dd" +
	"6000000000502b3f" + "20010db8000000010000000000000001" + "20010db80000f1000000000000000001" +
	"04040401" + "01000000" + "20010db80000e2000000000000000021" + "20010db80000f1000000000000000001" +
	"4500002800000000" + "3f065014" + "c000020a" + "c6336415" +
	"c73801bb" + "00000001" + "00000000" + "5002ffff" + "00000000"

func TestParseSegmentRouting(t *testing.T) {
	frame, err := hex.DecodeString(srv6SYN)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(frame)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Tuple.String(); got != "tcp 192.0.2.10:51000 -> 198.51.100.21:443" {
		t.Errorf("tuple %s", got)
	}
	want := []netip.Addr{netip.MustParseAddr("2001:db8:0:f100::1"), netip.MustParseAddr("2001:db8:0:e200::21")}
	if p.Outer == nil || len(p.Outer.Segments) != 2 || p.Outer.Segments[0] != want[0] || p.Outer.Segments[1] != want[1] || p.Outer.SegmentsLeft != 1 {
		t.Errorf("outer %+v, want segments %v", p.Outer, want)
	}
	if p.TTL != 63 || p.TCP == nil || !p.TCP.SYN || p.TCP.ACK {
		t.Errorf("ttl %d, tcp %+v", p.TTL, p.TCP)
	}
	if p.Checksums == nil || !strings.Contains(p.Checksums.Error(), "tcp checksum is wrong") {
		t.Errorf("a zero TCP checksum passed: %v", p.Checksums)
	}
}

func TestParseNeverReadsPastTheFrame(t *testing.T) {
	frame, err := hex.DecodeString(srv6SYN)
	if err != nil {
		t.Fatal(err)
	}
	for n := range frame {
		if _, err := Parse(frame[:n]); err == nil {
			t.Errorf("a frame cut to %d octets was read", n)
		}
	}
}
