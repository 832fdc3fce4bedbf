package capture

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket/layers"
)

const etherARP = 0x0806

// Describe gives one line for a person about a frame, and the packet if there is an IP packet in it.
func Describe(frame []byte) (string, *Packet) {
	p, err := Parse(frame)
	if err == nil {
		return p.describe(), &p
	}
	kind, rest, ok := etherType(frame)
	switch {
	case !ok:
		return fmt.Sprintf("%d octets, too few for Ethernet", len(frame)), nil
	case kind == etherARP:
		return describeARP(rest), nil
	case kind == etherIPv4 || kind == etherIPv6:
		return fmt.Sprintf("malformed IP: %v, %d octets", err, len(rest)), nil
	}
	return fmt.Sprintf("ethertype %#04x, %d octets", kind, len(rest)), nil
}

// describe is String with what only a reader of single packets wants to know.
func (p *Packet) describe() string {
	s := p.String()
	if p.ICMP && len(p.Payload) >= 2 {
		kind := layers.CreateICMPv4TypeCode(p.Payload[0], p.Payload[1]).String()
		if p.Tuple.Protocol == headerICM6 {
			kind = layers.CreateICMPv6TypeCode(p.Payload[0], p.Payload[1]).String()
		}
		s = fmt.Sprintf("icmp %s -> %s %s ttl %d", p.Tuple.Source.Addr(), p.Tuple.Target.Addr(), kind, p.TTL)
		if p.Outer != nil {
			s += p.Outer.String()
		}
	}
	if p.Checksums != nil {
		s += ", " + strings.ReplaceAll(p.Checksums.Error(), "\n", ", ")
	}
	return s
}

// etherType reads past VLAN tags.
func etherType(frame []byte) (kind uint16, rest []byte, ok bool) {
	if len(frame) < 14 {
		return 0, nil, false
	}
	kind, rest = be16(frame[12:]), frame[14:]
	for kind == etherVLAN || kind == etherQinQ {
		if len(rest) < 4 {
			return 0, nil, false
		}
		kind, rest = be16(rest[2:]), rest[4:]
	}
	return kind, rest, true
}

// describeARP reads ARP of IPv4 over Ethernet (RFC 826).
func describeARP(b []byte) string {
	if len(b) < 28 || b[4] != 6 || b[5] != 4 {
		return fmt.Sprintf("arp, %d octets", len(b))
	}
	sender, asked := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	switch binary.BigEndian.Uint16(b[6:]) {
	case 1:
		return fmt.Sprintf("arp who has %s, asks %s", asked, sender)
	case 2:
		return fmt.Sprintf("arp %s is at %s", sender, net.HardwareAddr(b[8:14]))
	}
	return fmt.Sprintf("arp, %d octets", len(b))
}
