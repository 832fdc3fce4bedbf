package main

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
)

// smallest is an Ethernet frame of 64 octets without its check sequence, which a veth does not carry.
const smallest = 60

// firstClient is the client of the first flow.
var firstClient = netip.MustParseAddrPort("10.9.0.0:40000")

// clientOf gives the client of flow n, up to 2^22: the lower half of its number is in the address, the rest in the port.
func clientOf(n int) netip.AddrPort {
	a := firstClient.Addr().As4()
	a[2], a[3] = byte(n), byte(n>>8)
	return netip.AddrPortFrom(netip.AddrFrom4(a), firstClient.Port()+uint16(n>>16))
}

// datagram is an IPv4 UDP packet; payload fills it to the length of a smallest frame.
type datagram struct{ from, to netip.AddrPort }

const payloadOctets = smallest - 14 - 20 - 8

func (d datagram) layers() ([]gopacket.SerializableLayer, error) {
	ip := &layers.IPv4{
		Version: 4, Id: 0xffff, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: d.from.Addr().AsSlice(), DstIP: d.to.Addr().AsSlice(),
	}
	udp := &layers.UDP{SrcPort: layers.UDPPort(d.from.Port()), DstPort: layers.UDPPort(d.to.Port())}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	return []gopacket.SerializableLayer{ip, udp, gopacket.Payload(make([]byte, payloadOctets))}, nil
}

func (d datagram) tuple() cats.Tuple {
	return cats.Tuple{Protocol: cats.UDP, Source: d.from, Target: d.to}
}

// frame gives the datagram in an Ethernet frame.
func (d datagram) frame(to, from datapath.MAC) ([]byte, error) {
	inner, err := d.layers()
	if err != nil {
		return nil, err
	}
	return serialize(append([]gopacket.SerializableLayer{ethernet(to, from, layers.EthernetTypeIPv4)}, inner...))
}

// unsummed gives the datagram in an Ethernet frame, with an UDP checksum of zero: none.
func (d datagram) unsummed(to, from datapath.MAC) ([]byte, error) {
	frame, err := d.frame(to, from)
	if err == nil {
		frame[14+20+6], frame[14+20+7] = 0, 0
	}
	return frame, err
}

// encapsulated gives the datagram in IPv6, to one segment and so without a routing header, in an Ethernet frame.
func (d datagram) encapsulated(to, from datapath.MAC, source, segment netip.Addr) ([]byte, error) {
	inner, err := d.layers()
	if err != nil {
		return nil, err
	}
	outer := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolIPv4, SrcIP: source.AsSlice(), DstIP: segment.AsSlice(),
	}
	return serialize(append([]gopacket.SerializableLayer{ethernet(to, from, layers.EthernetTypeIPv6), outer}, inner...))
}

func ethernet(to, from datapath.MAC, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{DstMAC: net.HardwareAddr(to[:]), SrcMAC: net.HardwareAddr(from[:]), EthernetType: kind}
}

func serialize(all []gopacket.SerializableLayer) ([]byte, error) {
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, all...); err != nil {
		return nil, fmt.Errorf("making a packet: %w", err)
	}
	return buffer.Bytes(), nil
}
