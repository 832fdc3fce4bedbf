package datapath

import (
	"fmt"
	"net/netip"

	"github.com/margay-net/margay/cats"
)

// Octets and numbers of the outer headers (RFC 8200, RFC 8754).
const (
	ipv6Octets    = 40
	srhOctets     = 8
	nextRouting   = 43
	routingTypeSR = 4
	outerHopLimit = 64
)

// PutPath sets the path of id, 1 to Config.Paths-1. Packets in flight may see a change half made: give a path with
// other segments a fresh id. A kind beside PathSRv6 and PathNative, or a list that is too deep, is
// cats.ReasonCapabilityMismatch.
func (d *Datapath) PutPath(id uint32, path Path) error {
	if id == 0 || id >= d.config.Paths {
		return fmt.Errorf("path id %d is not in 1..%d", id, d.config.Paths-1)
	}
	value, err := encodePath(path)
	if err != nil {
		return fmt.Errorf("path %d: %w", id, err)
	}
	if err := d.maps.Paths.Put(id, &value); err != nil {
		return fmt.Errorf("path %d: %w", id, err)
	}
	return nil
}

// DeletePath removes the path of id; packets of bindings that still refer to it are dropped as no-path.
func (d *Datapath) DeletePath(id uint32) error {
	if id == 0 || id >= d.config.Paths {
		return fmt.Errorf("path id %d is not in 1..%d", id, d.config.Paths-1)
	}
	if err := d.maps.Paths.Put(id, &programPath{}); err != nil {
		return fmt.Errorf("path %d: %w", id, err)
	}
	return nil
}

// Paths gives every path by id.
func (d *Datapath) Paths() (map[uint32]Path, error) {
	paths := make(map[uint32]Path)
	err := eachOf(d.maps.Paths, func(id *uint32, v *programPath) {
		if v.Usable != 0 {
			paths[*id] = decodePath(v)
		}
	})
	return paths, err
}

// encodePath writes the outer headers of H.Encaps (RFC 8986 section 5.1) but for what depends on the packet: traffic
// class, flow label, payload length, the inner protocol, an IPv6 packet's hop limit.
func encodePath(path Path) (programPath, error) {
	value := programPath{Usable: 1, NextHop: path.NextHop}
	switch path.Kind {
	case cats.PathNative:
		return value, nil
	case cats.PathSRv6:
	default:
		return value, fmt.Errorf("this data plane has SRv6 and native paths alone: %w", cats.ReasonCapabilityMismatch)
	}
	n := len(path.Segments)
	if n == 0 || n > MaxSegments {
		return value, fmt.Errorf("%d segments are not 1..%d: %w", n, MaxSegments, cats.ReasonCapabilityMismatch)
	}
	for _, a := range append([]netip.Addr{path.Source}, path.Segments...) {
		if err := checkSID(a); err != nil {
			return value, fmt.Errorf("%w: %w", err, cats.ReasonMalformed)
		}
	}
	outer := append(value.Outer[:0], 6<<4, 0, 0, 0, 0, 0, 0, outerHopLimit)
	outer = append(outer, path.Source.AsSlice()...)
	outer = append(outer, path.Segments[0].AsSlice()...)
	if n > 1 { // RFC 8754 section 2: the list is in reverse order
		value.Outer[6] = nextRouting
		outer = append(outer, 0, byte(2*n), routingTypeSR, byte(n-1), byte(n-1), 0, 0, 0)
		for i := n - 1; i >= 0; i-- {
			outer = append(outer, path.Segments[i].AsSlice()...)
		}
	}
	value.Overhead, value.Segments = uint16(len(outer)), uint16(n)
	return value, nil
}

func decodePath(value *programPath) Path {
	if value.Overhead == 0 {
		return Path{Kind: cats.PathNative, NextHop: value.NextHop}
	}
	at := func(offset int) netip.Addr { return netip.AddrFrom16([16]byte(value.Outer[offset : offset+16])) }
	path := Path{Kind: cats.PathSRv6, Source: at(8), NextHop: value.NextHop, Segments: []netip.Addr{at(24)}}
	for i := int(value.Segments) - 2; i >= 0; i-- {
		path.Segments = append(path.Segments, at(ipv6Octets+srhOctets+16*i))
	}
	return path
}

// PutNextHop sets the next hop of id, 1 to Config.NextHops-1; one that is unresolved (Interface 0) leaves packets to
// the kernel.
func (d *Datapath) PutNextHop(id uint32, hop NextHop) error {
	if id == 0 || id >= d.config.NextHops {
		return fmt.Errorf("next-hop id %d is not in 1..%d", id, d.config.NextHops-1)
	}
	if hop.Interface < 0 || hop.VLAN > 4094 {
		return fmt.Errorf("next hop %d: interface %d and VLAN %d: need no negative index, and a VLAN up to 4094", id,
			hop.Interface, hop.VLAN)
	}
	value := programNextHop{
		Ifindex: uint32(hop.Interface), Source: hop.Source, Target: hop.Target, Vlan: hop.VLAN, Mtu: hop.MTU,
	}
	if err := d.maps.NextHops.Put(id, &value); err != nil {
		return fmt.Errorf("next hop %d: %w", id, err)
	}
	return nil
}

// NextHops gives every resolved next hop by id.
func (d *Datapath) NextHops() (map[uint32]NextHop, error) {
	hops := make(map[uint32]NextHop)
	err := eachOf(d.maps.NextHops, func(id *uint32, v *programNextHop) {
		if v.Ifindex != 0 {
			hops[*id] = NextHop{int(v.Ifindex), v.Source, v.Target, v.Vlan, v.Mtu}
		}
	})
	return hops, err
}
