package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/margay-net/margay/cats"
)

// Sizes of the table of ports (bpf/layout.h).
const (
	portPlaces = 1024
	portProbes = 4
)

// sole is what the program can know of the clients of an interface without a search: its one attachment, and the first
// prefix of each family. What is not in these is searched for.
type sole struct {
	attachment, vlan uint32
	prefix4, mask4   uint32
	prefix6, mask6   [2]uint64
}

// findSoles gives the sole attachment of each interface that has one. indexes are those of their interfaces.
func findSoles(attachments []Attachment, indexes []uint32) map[uint32]sole {
	soles, several := make(map[uint32]sole), make(map[uint32]bool)
	for i, a := range attachments {
		index := indexes[i]
		if _, ok := soles[index]; ok || several[index] {
			several[index] = true
			delete(soles, index)
			continue
		}
		// A mask without a bit and a prefix with one match nothing.
		s := sole{attachment: AttachmentID(a.Name), vlan: uint32(a.VLAN), prefix4: 1, prefix6: [2]uint64{1}}
		for _, p := range a.Prefixes {
			s.cover(p)
		}
		soles[index] = s
	}
	return soles
}

// cover takes the prefix in if it is the first of its family.
func (s *sole) cover(p netip.Prefix) {
	address, mask := p.Masked().Addr().As16(), maskOf(p)
	if p.Addr().Is4() && s.mask4 == 0 {
		s.prefix4, s.mask4 = binary.NativeEndian.Uint32(address[12:]), binary.NativeEndian.Uint32(mask[12:])
	} else if !p.Addr().Is4() && s.mask6 == [2]uint64{} {
		for i := range s.prefix6 {
			s.prefix6[i], s.mask6[i] = binary.NativeEndian.Uint64(address[8*i:]), binary.NativeEndian.Uint64(mask[8*i:])
		}
	}
}

// maskOf gives the mask of a prefix at the place that its addresses have among 16 octets.
func maskOf(p netip.Prefix) (mask [16]byte) {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	for i := range mask {
		mask[i] = ^byte(0xff >> min(max(bits-8*i, 0), 8))
	}
	return mask
}

// put writes s into a port.
func (s sole) put(p *programPort) {
	p.Attachment, p.Vlan, p.Prefix4, p.Mask4, p.Prefix6, p.Mask6 = s.attachment, s.vlan, s.prefix4, s.mask4, s.prefix6, s.mask6
}

// readPorts gives the table of ports.
func (d *Datapath) readPorts() (places [portPlaces]programPort, err error) {
	err = eachOf(d.maps.Ports, func(place *uint32, p *programPort) { places[*place] = *p })
	return places, err
}

// putPorts adds or changes ports, by interface index, and removes none.
func (d *Datapath) putPorts(want map[uint32]programPort) error {
	places, err := d.readPorts()
	if err != nil {
		return err
	}
	for index, port := range want {
		d.soles[index].put(&port)
		place, ok := placeOfPort(&places, index)
		if !ok {
			return fmt.Errorf("ports: no place for interface index %d, which %d others are next to modulo %d: make the "+
				"interface again: %w", index, portProbes, portPlaces, cats.ReasonTableFull)
		}
		if places[place] == port {
			continue
		}
		places[place] = port
		if err := d.maps.Ports.Put(place, &port); err != nil {
			return fmt.Errorf("port %d: %w", index, err)
		}
	}
	return nil
}

// placeOfPort gives the place of the port of an index, or one that it can have.
func placeOfPort(places *[portPlaces]programPort, index uint32) (place uint32, ok bool) {
	for i := range uint32(portProbes) {
		p := (index + i) % portPlaces
		if places[p].Ifindex == index {
			return p, true
		}
		if places[p].Ifindex == 0 && !ok {
			place, ok = p, true
		}
	}
	return place, ok
}

// dropPorts removes every port that is not in want.
func (d *Datapath) dropPorts(want map[uint32]programPort) error {
	places, err := d.readPorts()
	if err != nil {
		return err
	}
	for place, p := range places {
		if _, ok := want[p.Ifindex]; p.Ifindex == 0 || ok {
			continue
		}
		if err := d.maps.Ports.Put(uint32(place), &programPort{}); err != nil {
			return fmt.Errorf("port %d: %w", p.Ifindex, err)
		}
	}
	return nil
}

// setSoles makes the ports know their sole attachments.
func (d *Datapath) setSoles(soles map[uint32]sole) error {
	d.soles = soles
	places, err := d.readPorts()
	if err != nil {
		return err
	}
	have := make(map[uint32]programPort)
	for _, p := range places {
		if p.Ifindex != 0 {
			have[p.Ifindex] = p
		}
	}
	return d.putPorts(have)
}
