package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/margay-net/margay/cats"
)

const (
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100
	etherQinQ  = 0x88a8
	headerIPv4 = 4  // IP protocol number of IPv4 in IP
	headerIPv6 = 41 // IP protocol number of IPv6 in IP
	headerSR   = 43 // IPv6 routing header
	headerICMP = 1
	headerICM6 = 58
)

var errShort = errors.New("truncated")

// Packet is what an observer reads in one frame.
type Packet struct {
	At        time.Time
	Outgoing  bool
	Outer     *Outer // nil: not encapsulated
	Tuple     cats.Tuple
	TTL       uint8 // TTL or hop limit of the inner packet
	TCP       *TCP
	ICMP      bool
	Payload   []byte
	Checksums error // nil: every checksum of the inner packet is right
}

// Outer is the encapsulation that a packet travels in.
type Outer struct {
	Source       netip.Addr
	Target       netip.Addr
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
	Segments     []netip.Addr // in travel order; empty where there is no segment routing header
	SegmentsLeft uint8
}

// Path gives the segments in travel order; without a segment routing header the target is the only one.
func (o *Outer) Path() []netip.Addr {
	if len(o.Segments) > 0 {
		return o.Segments
	}
	return []netip.Addr{o.Target}
}

// TCP are the fields of a TCP header that tests look at.
type TCP struct {
	Sequence, Acknowledgement uint32
	SYN, ACK, FIN, RST        bool
}

// String gives one line for a person.
func (p *Packet) String() string {
	s := p.Tuple.String()
	if p.TCP != nil {
		for _, f := range []struct {
			set  bool
			name string
		}{{p.TCP.SYN, " SYN"}, {p.TCP.SYN && p.TCP.ACK, " ACK"}, {p.TCP.FIN, " FIN"}, {p.TCP.RST, " RST"}} {
			if f.set {
				s += f.name
			}
		}
	}
	s += fmt.Sprintf(" ttl %d, %d octets", p.TTL, len(p.Payload))
	if p.Outer != nil {
		s += p.Outer.String()
	}
	return s
}

// String gives the part of Packet.String about it.
func (o *Outer) String() string {
	return fmt.Sprintf(" [outer %s -> %s, segments %v, left %d]", o.Source, o.Target, o.Path(), o.SegmentsLeft)
}

// Parse reads an Ethernet frame that carries an IP packet, plain or in one IPv6 encapsulation.
func Parse(frame []byte) (Packet, error) {
	kind, rest, ok := etherType(frame)
	if !ok {
		return Packet{}, errShort
	}
	var p Packet
	var err error
	switch kind {
	case etherIPv4:
		err = p.ipv4(rest)
		return p, err
	case etherIPv6:
		err = p.ipv6(rest)
		return p, err
	}
	return p, fmt.Errorf("ethertype %#04x is not IP", kind)
}

func (p *Packet) ipv4(b []byte) error {
	if len(b) < 20 || len(b) < int(b[0]&15)*4 || len(b) < int(be16(b[2:])) || b[0]&15 < 5 {
		return errShort
	}
	header, all := int(b[0]&15)*4, int(be16(b[2:]))
	if sum(0, b[:header]) != 0xffff {
		p.Checksums = errors.New("IPv4 header checksum is wrong")
	}
	p.TTL = b[8]
	source, target := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	return p.transport(b[9], source, target, b[header:all])
}

func (p *Packet) ipv6(b []byte) error {
	if len(b) < 40 || len(b) < 40+int(be16(b[4:])) {
		return errShort
	}
	source, target := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	next, rest := b[6], b[40:40+int(be16(b[4:]))]
	outer := &Outer{
		Source: source, Target: target, HopLimit: b[7],
		TrafficClass: b[0]<<4 | b[1]>>4, FlowLabel: binary.BigEndian.Uint32(b) & 0xfffff,
	}
	if next == headerSR {
		var err error
		if next, rest, err = outer.segmentRouting(rest); err != nil {
			return err
		}
	}
	switch {
	case next == headerIPv4 && p.Outer == nil:
		p.Outer = outer
		return p.ipv4(rest)
	case next == headerIPv6 && p.Outer == nil:
		p.Outer = outer
		return p.ipv6(rest)
	}
	p.TTL = b[7]
	return p.transport(next, source, target, rest)
}

// segmentRouting reads the header of RFC 8754 section 2; its list is in reverse order of travel.
func (o *Outer) segmentRouting(b []byte) (next uint8, rest []byte, err error) {
	if len(b) < 8 || len(b) < 8+int(b[1])*8 {
		return 0, nil, errShort
	}
	if b[2] != 4 {
		return 0, nil, fmt.Errorf("routing header type %d is not segment routing", b[2])
	}
	o.SegmentsLeft = b[3]
	count := int(b[4]) + 1
	if count*16 > int(b[1])*8 {
		return 0, nil, fmt.Errorf("segment routing header of %d octets with %d segments", 8+int(b[1])*8, count)
	}
	for i := count - 1; i >= 0; i-- {
		o.Segments = append(o.Segments, netip.AddrFrom16([16]byte(b[8+16*i:])))
	}
	return b[0], b[8+int(b[1])*8:], nil
}

func (p *Packet) transport(protocol uint8, source, target netip.Addr, b []byte) error {
	p.Tuple.Protocol = cats.Protocol(protocol)
	var sourcePort, targetPort uint16
	switch {
	case protocol == uint8(cats.TCP) && len(b) >= 20 && len(b) >= int(b[12]>>4)*4:
		sourcePort, targetPort = be16(b), be16(b[2:])
		flags := b[13]
		p.TCP = &TCP{
			Sequence: binary.BigEndian.Uint32(b[4:]), Acknowledgement: binary.BigEndian.Uint32(b[8:]),
			FIN: flags&1 != 0, SYN: flags&2 != 0, RST: flags&4 != 0, ACK: flags&16 != 0,
		}
		p.Payload = b[int(b[12]>>4)*4:]
		p.verify(source, target, protocol, b)
	case protocol == uint8(cats.UDP) && len(b) >= 8:
		sourcePort, targetPort = be16(b), be16(b[2:])
		p.Payload = b[8:]
		if be16(b[6:]) != 0 { // zero: the sender computed none (RFC 768)
			p.verify(source, target, protocol, b)
		}
	case protocol == headerICMP || protocol == headerICM6:
		p.ICMP = true
		p.Payload = b
	case protocol == uint8(cats.TCP) || protocol == uint8(cats.UDP):
		return errShort
	default:
		p.Payload = b
	}
	p.Tuple.Source, p.Tuple.Target = netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(target, targetPort)
	return nil
}

// verify computes the transport checksum anew over the pseudo header and the segment.
func (p *Packet) verify(source, target netip.Addr, protocol uint8, segment []byte) {
	var pseudo []byte
	pseudo = append(pseudo, source.AsSlice()...)
	pseudo = append(pseudo, target.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(segment)))
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(protocol))
	if sum(sum(0, pseudo), segment) != 0xffff {
		p.Checksums = errors.Join(p.Checksums, fmt.Errorf("%s checksum is wrong", cats.Protocol(protocol)))
	}
}

// sum adds b to a one's complement sum (RFC 1071).
func sum(start uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		start += uint32(be16(b))
	}
	if len(b) == 1 {
		start += uint32(b[0]) << 8
	}
	for start > 0xffff {
		start = start>>16 + start&0xffff
	}
	return start
}
