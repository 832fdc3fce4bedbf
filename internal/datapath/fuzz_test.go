package datapath

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"
)

// FuzzProgram runs arbitrary frames, and checks what must hold of any: see checkAny.
func FuzzProgram(f *testing.F) {
	n := newDomain(f)
	for _, s := range n.samples(f) {
		f.Add(s.frame, uint8(n.index[s.port]))
	}
	f.Fuzz(func(t *testing.T, frame []byte, port uint8) {
		if len(frame) < 14 || len(frame) > 3000 {
			t.Skip("the kernel runs no program on it")
		}
		index := uint32(n.index[nodePorts[int(port)%len(nodePorts)].Name])
		n.in(t, func() error {
			if err := n.checkAny(index, frame); err != nil {
				t.Error(err)
			}
			return nil
		})
	})
}

// checkAny runs a frame and tells what is wrong: an action that is none of drop, pass and redirect; an output frame
// whose lengths or hop limits do not fit; a packet to a segment of this node that goes on although its headers are not
// what RFC 8754 and RFC 8986 ask for; one that goes on although it is none that may come from a client or an instance.
func (n *node) checkAny(index uint32, frame []byte) error {
	action, out, err := n.runHere(index, frame)
	if err != nil {
		return err
	}
	tell := func(format string, v ...any) error {
		return fmt.Errorf("%s: %s of %s gives %s", fmt.Sprintf(format, v...), actionName(action), hex.EncodeToString(frame),
			hex.EncodeToString(out))
	}
	if action != xdpDrop && action != xdpPass && action != xdpRedirect {
		return tell("no legal action")
	}
	if index == uint32(n.index["core0"]) && action != xdpDrop && toLocalSegment(n, frame) {
		if err := soundEncapsulation(frame); err != nil {
			return tell("not sound: %v", err)
		}
	}
	for _, outside := range []string{"client0", "svc0"} {
		if index == uint32(n.index[outside]) && action != xdpDrop {
			if err := n.fromOutside(outside, frame, action == xdpPass); err != nil {
				return tell("from outside: %v", err)
			}
		}
	}
	if action == xdpRedirect {
		if err := soundOutput(out); err != nil {
			return tell("output: %v", err)
		}
	}
	// Nothing is read from held packets here; make room for the next.
	if n.ring.AvailableBytes() > 1<<18 {
		for n.ring.AvailableBytes() > 0 {
			if err := n.ring.ReadInto(&n.record); err != nil {
				return err
			}
		}
	}
	return nil
}

// toLocalSegment tells whether an untagged frame for core0 is to a configured segment.
func toLocalSegment(n *node, frame []byte) bool {
	mac := n.mac["core0"]
	if len(frame) < 54 || string(frame[:6]) != string(mac[:]) || binary.BigEndian.Uint16(frame[12:]) != 0x86dd ||
		frame[14]>>4 != 6 {
		return false
	}
	target := netip.AddrFrom16([16]byte(frame[38:54]))
	return target == returnSID || netip.MustParsePrefix("2001:db8:0:e2::30/126").Contains(target)
}

// fromOutside is a second reading of what an untagged frame must not be that goes on from a client or, left to the
// kernel, from an instance.
func (n *node) fromOutside(port string, frame []byte, toKernel bool) error {
	mac := n.mac[port]
	if len(frame) < 34 || string(frame[:6]) != string(mac[:]) {
		return nil
	}
	ip := frame[14:]
	protocol, rest, source := ip[9], []byte(nil), netip.AddrFrom4([4]byte(ip[12:]))
	switch {
	case binary.BigEndian.Uint16(frame[12:]) == 0x0800 && ip[0]>>4 == 4:
		header, length := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
		if first := binary.BigEndian.Uint16(ip[6:])&0x1fff == 0; first && header >= 20 && header <= min(length, len(ip)) {
			rest = ip[header:min(length, len(ip))]
		}
	case binary.BigEndian.Uint16(frame[12:]) == 0x86dd && ip[0]>>4 == 6 && len(ip) >= 40:
		source = netip.AddrFrom16([16]byte(ip[8:]))
		target := netip.AddrFrom16([16]byte(ip[24:]))
		if source.Is4In6() || target.Is4In6() {
			return nil // the kernel takes none
		}
		for _, p := range domain {
			if p.Contains(target) {
				return fmt.Errorf("%s is in the domain", target)
			}
		}
		var routed bool
		if protocol, rest, routed = behindExtensions(ip); routed {
			return fmt.Errorf("there is a segment routing header")
		}
	default:
		return nil
	}
	if !toKernel || port != "svc0" || source != tcp4.locator.Addr() && source != tcp6.locator.Addr() {
		return nil
	}
	locator := map[byte]uint16{6: tcp4.locator.Port(), 17: udp4.locator.Port()}[protocol]
	if locator != 0 && (len(rest) < 4 || binary.BigEndian.Uint16(rest) == locator) {
		return fmt.Errorf("it may be from a locator")
	}
	return nil
}

// behindExtensions gives what is behind the extension headers of an IPv6 packet; nil where that cannot be read.
func behindExtensions(ip []byte) (next byte, rest []byte, routed bool) {
	next, rest = ip[6], ip[40:min(len(ip), 40+int(binary.BigEndian.Uint16(ip[4:])))]
	for {
		size, later := 0, false
		switch {
		case next != 0 && next != 43 && next != 44 && next != 51 && next != 60:
			return next, rest, routed
		case len(rest) < 8:
			return next, nil, routed
		case next == 44:
			size, later = 8, binary.BigEndian.Uint16(rest[2:])&0xfff8 != 0
		case next == 51:
			size = 4 * (2 + int(rest[1]))
		default:
			size = 8 * (1 + int(rest[1]))
			routed = routed || next == 43 && rest[2] == 4
		}
		if next = rest[0]; later || size > len(rest) {
			return next, nil, routed
		}
		rest = rest[size:]
	}
}

// soundEncapsulation is a second reading of the standards: one SRH or none, at its last segment, with its list inside.
func soundEncapsulation(frame []byte) error {
	ip := frame[14:]
	payload := int(binary.BigEndian.Uint16(ip[4:]))
	if payload > len(ip)-40 {
		return fmt.Errorf("payload of %d octets in %d", payload, len(ip)-40)
	}
	next, body := ip[6], ip[40:40+payload]
	if next == 43 {
		if len(body) < 8 {
			return fmt.Errorf("SRH of %d octets", len(body))
		}
		size := 8 * (1 + int(body[1]))
		switch {
		case size > len(body):
			return fmt.Errorf("SRH of %d octets in %d", size, len(body))
		case body[2] != 4:
			return fmt.Errorf("routing type %d", body[2])
		case body[3] != 0:
			return fmt.Errorf("segments left %d", body[3])
		case 8+16*(1+int(body[4])) > size:
			return fmt.Errorf("last entry %d in %d octets", body[4], size)
		}
		next, body = body[0], body[size:]
	}
	if next == 4 {
		if len(body) < 20 || body[0]>>4 != 4 || int(binary.BigEndian.Uint16(body[2:])) > len(body) {
			return fmt.Errorf("inner IPv4")
		}
		return nil
	}
	if next == 41 {
		if len(body) < 40 || body[0]>>4 != 6 || 40+int(binary.BigEndian.Uint16(body[4:])) > len(body) {
			return fmt.Errorf("inner IPv6")
		}
		return nil
	}
	return fmt.Errorf("next header %d", next)
}

// soundOutput checks a forwarded frame: outer and inner lengths are those of the frame, and no hop limit is 0.
func soundOutput(frame []byte) error {
	ip := frame[14:]
	if binary.BigEndian.Uint16(frame[12:]) == 0x8100 {
		ip = frame[18:]
	}
	for {
		if len(ip) < 20 {
			return fmt.Errorf("%d octets of IP", len(ip))
		}
		if ip[0]>>4 == 4 {
			if int(binary.BigEndian.Uint16(ip[2:])) != len(ip) || ip[8] == 0 {
				return fmt.Errorf("IPv4 length or TTL")
			}
			return nil
		}
		if ip[0]>>4 != 6 || len(ip) < 40 || 40+int(binary.BigEndian.Uint16(ip[4:])) != len(ip) || ip[7] == 0 {
			return fmt.Errorf("IPv6 version, length or hop limit")
		}
		if ip[6] != 4 && ip[6] != 41 {
			return nil
		}
		ip = ip[40:]
	}
}
