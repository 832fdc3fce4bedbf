package datapath

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/margay-net/margay/cats"
)

// flow is one flow of the example: a client, the service that it knows, the instance that serves it.
type flow struct {
	name     string
	protocol cats.Protocol
	client   netip.AddrPort
	service  netip.AddrPort
	locator  netip.AddrPort
}

var (
	tcp4 = flow{"IPv4 TCP", cats.TCP, ap("192.0.2.10:51000"), ap("192.0.2.100:443"), ap("198.51.100.21:8443")}
	udp4 = flow{"IPv4 UDP", cats.UDP, ap("192.0.2.10:51001"), ap("192.0.2.100:53"), ap("198.51.100.21:5353")}
	tcp6 = flow{"IPv6 TCP", cats.TCP, ap("[2001:db8:c::10]:51000"), ap("[2001:db8:5::100]:443"), ap("[2001:db8:b::21]:8443")}
	udp6 = flow{"IPv6 UDP", cats.UDP, ap("[2001:db8:c::10]:51001"), ap("[2001:db8:5::100]:53"), ap("[2001:db8:b::21]:5353")}

	flows = []flow{tcp4, udp4, tcp6, udp6}
)

func (f flow) forward() cats.Tuple {
	return cats.Tuple{Protocol: f.protocol, Source: f.client, Target: f.service}
}
func (f flow) delivered() cats.Tuple {
	return cats.Tuple{Protocol: f.protocol, Source: f.client, Target: f.locator}
}
func (f flow) reverse() cats.Tuple  { return f.delivered().Reverse() }
func (f flow) restored() cats.Tuple { return f.forward().Reverse() }

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
func addr(s string) netip.Addr   { return netip.MustParseAddr(s) }

// Segments and outer addresses of the example.
var (
	ingressSource = addr("2001:db8:0:1::1")
	egressSource  = addr("2001:db8:0:e2::1")
	returnSID     = addr("2001:db8:0:1::100")
	deliverSID    = addr("2001:db8:0:e2::21")
	transitSID1   = addr("2001:db8:0:f1::1")
	transitSID2   = addr("2001:db8:0:f2::1")
)

// Neighbours that next hops resolve to.
var (
	clientMAC   = MAC{2, 0, 0, 0, 0, 0x10}
	coreMAC     = MAC{2, 0, 0, 0, 0, 0x20}
	instanceMAC = MAC{2, 0, 0, 0, 0, 0x30}
	someMAC     = MAC{2, 0, 0, 0, 0, 0xff}
)

// packet describes an IP packet; gopacket makes its octets, checksums included.
type packet struct {
	tuple   cats.Tuple
	ttl     uint8
	class   uint8
	flags   string // of TCP: a set of SAFRP; empty: A
	payload string
}

func (p packet) octets(t testing.TB) []byte {
	t.Helper()
	source, target := p.tuple.Source, p.tuple.Target
	var network gopacket.SerializableLayer
	var pseudo gopacket.NetworkLayer
	if source.Addr().Is4() {
		ip := &layers.IPv4{
			Version: 4, IHL: 5, Id: 0x1234, Flags: layers.IPv4DontFragment, TTL: p.ttl, TOS: p.class,
			Protocol: layers.IPProtocol(p.tuple.Protocol), SrcIP: source.Addr().AsSlice(), DstIP: target.Addr().AsSlice(),
		}
		network, pseudo = ip, ip
	} else {
		ip := &layers.IPv6{
			Version: 6, TrafficClass: p.class, FlowLabel: 0x54321, HopLimit: p.ttl,
			NextHeader: layers.IPProtocol(p.tuple.Protocol), SrcIP: source.Addr().AsSlice(), DstIP: target.Addr().AsSlice(),
		}
		network, pseudo = ip, ip
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, network, p.transport(pseudo), gopacket.Payload(p.payload)); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func (p packet) transport(pseudo gopacket.NetworkLayer) gopacket.SerializableLayer {
	if p.tuple.Protocol == cats.UDP {
		udp := &layers.UDP{SrcPort: layers.UDPPort(p.tuple.Source.Port()), DstPort: layers.UDPPort(p.tuple.Target.Port())}
		udp.SetNetworkLayerForChecksum(pseudo)
		return udp
	}
	flags := p.flags
	if flags == "" {
		flags = "A"
	}
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(p.tuple.Source.Port()), DstPort: layers.TCPPort(p.tuple.Target.Port()),
		Seq: 0x01020304, Ack: 0x0a0b0c0d, Window: 64240,
		SYN: strings.Contains(flags, "S"), ACK: strings.Contains(flags, "A"), FIN: strings.Contains(flags, "F"),
		RST: strings.Contains(flags, "R"), PSH: strings.Contains(flags, "P"),
	}
	tcp.SetNetworkLayerForChecksum(pseudo)
	return tcp
}

// ethernet puts an Ethernet header before an IP packet.
func ethernet(target, source MAC, ip []byte) []byte {
	return vlanFrame(target, source, nil, ip)
}

// vlanFrame puts an Ethernet header with tags before an IP packet.
func vlanFrame(target, source MAC, tags []uint16, ip []byte) []byte {
	frame := append(append([]byte(nil), target[:]...), source[:]...)
	for _, tag := range tags {
		frame = binary.BigEndian.AppendUint16(frame, 0x8100)
		frame = binary.BigEndian.AppendUint16(frame, tag)
	}
	ethertype := uint16(0x0800)
	if ip[0]>>4 == 6 {
		ethertype = 0x86dd
	}
	return append(binary.BigEndian.AppendUint16(frame, ethertype), ip...)
}

// outer describes an outer IPv6 header with a segment list.
type outer struct {
	source   netip.Addr
	segments []netip.Addr // in travel order
	left     int          // segments left
	class    uint8
	label    uint32
	hops     uint8
}

// encapsulate writes the headers of RFC 8200 and RFC 8754 field by field before an IP packet.
func (o outer) encapsulate(ip []byte) []byte {
	n := len(o.segments)
	inner := byte(4)
	if ip[0]>>4 == 6 {
		inner = 41
	}
	var srh []byte
	next := inner
	if n > 1 {
		next = 43
		srh = []byte{inner, byte(2 * n), 4, byte(o.left), byte(n - 1), 0, 0, 0}
		for i := range n {
			srh = append(srh, o.segments[n-1-i].AsSlice()...)
		}
	}
	header := binary.BigEndian.AppendUint32(nil, 6<<28|uint32(o.class)<<20|o.label)
	header = binary.BigEndian.AppendUint16(header, uint16(len(srh)+len(ip)))
	header = append(header, next, o.hops)
	header = append(header, o.source.AsSlice()...)
	header = append(header, o.segments[n-1-o.left].AsSlice()...)
	return append(append(header, srh...), ip...)
}

// checkSums recomputes the checksums of an IP packet from nothing but its octets, and fails t if one is wrong.
func checkSums(t testing.TB, ip []byte) {
	t.Helper()
	var pseudo, transport []byte
	var protocol byte
	if ip[0]>>4 == 4 {
		header := int(ip[0]&15) * 4
		if s := onesSum(ip[:header]); s != 0xffff {
			t.Errorf("IPv4 header checksum: sum %04x, want ffff", s)
		}
		pseudo, protocol, transport = append(pseudo, ip[12:20]...), ip[9], ip[header:]
	} else {
		pseudo, protocol, transport = append(pseudo, ip[8:40]...), ip[6], ip[40:]
	}
	if protocol == 17 && ip[0]>>4 == 4 && transport[6]|transport[7] == 0 {
		return
	}
	pseudo = append(pseudo, 0, protocol)
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(transport)))
	if s := onesSum(append(pseudo, transport...)); s != 0xffff {
		t.Errorf("protocol %d checksum: sum %04x, want ffff", protocol, s)
	}
}

func onesSum(octets []byte) uint16 {
	var sum uint64
	for i, o := range octets {
		if i%2 == 0 {
			sum += uint64(o) << 8
		} else {
			sum += uint64(o)
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// unhex reads octets written in groups.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	octets, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return octets
}

func diff(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if string(got) != string(want) {
		t.Errorf("%s:\n got %s\nwant %s", what, hex.EncodeToString(got), hex.EncodeToString(want))
	}
}
