package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/margay-net/margay/cats"
)

// AttachmentID gives the number that keys carry for the client attachment of that name; never 0. It depends on the name
// alone, so it is the same after a restart; SetAttachments refuses two names with one number.
func AttachmentID(name string) uint32 {
	if h := fnv1a(fnvBasis, []byte(name)); h != 0 {
		return h
	}
	return 1
}

// SetAttachments replaces the client attachments. Call it again after SetPorts where an interface came back, since its
// index may be another.
func (d *Datapath) SetAttachments(attachments []Attachment) error {
	want := make(map[programAttachmentKey]uint32)
	names := make(map[uint32]string)
	var indexes []uint32
	for _, a := range attachments {
		id := AttachmentID(a.Name)
		if other, ok := names[id]; ok {
			return fmt.Errorf("attachments %s and %s have the same number %d: rename one", other, a.Name, id)
		}
		names[id] = a.Name
		l, err := netlink.LinkByName(a.Interface)
		if err != nil {
			return fmt.Errorf("attachment %s: interface %s: %w", a.Name, a.Interface, err)
		}
		indexes = append(indexes, uint32(l.Attrs().Index))
		for _, p := range a.Prefixes {
			bits, address, err := encodePrefix(p)
			if err != nil {
				return fmt.Errorf("attachment %s: %w", a.Name, err)
			}
			key := programAttachmentKey{
				PrefixLength: 64 + bits, Ingress: uint32(l.Attrs().Index), Vlan: uint32(a.VLAN), Source: address,
			}
			if other, ok := want[key]; ok {
				return fmt.Errorf("attachments %s and %s both have %s of %s", names[other], a.Name, p, a.Interface)
			}
			want[key] = id
		}
	}
	if err := replace(d.maps.Attachments, want); err != nil {
		return fmt.Errorf("attachments: %w", err)
	}
	return d.setSoles(findSoles(attachments, indexes))
}

// SetServices replaces the service addresses that are intercepted on client ports: longest prefix, exact protocol and
// port. Two rules with the same prefix, protocol and port are refused.
func (d *Datapath) SetServices(rules []cats.ServiceRule) error {
	want := make(map[programServiceKey]uint32)
	for _, r := range rules {
		bits, address, err := encodePrefix(r.Prefix)
		if err != nil {
			return fmt.Errorf("service %s: %w", r.CSID, err)
		}
		key := programServiceKey{
			PrefixLength: 32 + bits, Protocol: uint8(r.Protocol), Port: swap16(r.Port), Target: address,
		}
		if other, ok := want[key]; ok {
			return fmt.Errorf("services %d and %d (%s) both have %s %s port %d", other, r.Number, r.CSID, r.Prefix,
				r.Protocol, r.Port)
		}
		want[key] = r.Number
		// The address alone, for packets whose port cannot be read.
		want[programServiceKey{PrefixLength: 32 + bits, Target: address}] = 0
	}
	if err := replace(d.maps.Services, want); err != nil {
		return fmt.Errorf("services: %w", err)
	}
	return nil
}

// SetDeliveries replaces the egress attachments. SIDs and locators are unique.
func (d *Datapath) SetDeliveries(deliveries []Delivery) error {
	sids, err := dump[programAddress, programSid](d.maps.Sids)
	if err != nil {
		return err
	}
	want := make(map[programAddress]programSid)
	for sid, v := range sids {
		if v.Kind == uint32(programSidKindSID_RETURN) {
			want[sid] = v
		}
	}
	locators := make(map[programLocatorKey]uint32)
	hosts := make(map[programAddress]uint32)
	for _, e := range deliveries {
		sid, key, value, err := encodeDelivery(e)
		if err != nil {
			return err
		}
		if _, ok := want[sid]; ok {
			return fmt.Errorf("delivery to %s: SID %s is in use", e.Locator, e.SID)
		}
		if _, ok := locators[key]; ok {
			return fmt.Errorf("delivery by SID %s: locator %s is in use", e.SID, e.Locator)
		}
		want[sid], locators[key] = value, e.NextHop
		hosts[key.Locator] |= 1 << key.Protocol
	}
	if err := replace(d.maps.Hosts, hosts); err != nil {
		return fmt.Errorf("hosts of locators: %w", err)
	}
	if err := replace(d.maps.Locators, locators); err != nil {
		return fmt.Errorf("locators: %w", err)
	}
	if err := replace(d.maps.Sids, want); err != nil {
		return fmt.Errorf("SIDs: %w", err)
	}
	return nil
}

func encodeDelivery(e Delivery) (sid programAddress, key programLocatorKey, value programSid, err error) {
	if err := checkSID(e.SID); err != nil {
		return sid, key, value, err
	}
	address := e.Locator.Address
	if !address.IsValid() || address.Addr().Is4In6() {
		return sid, key, value, fmt.Errorf("delivery by SID %s: locator %s is no address", e.SID, e.Locator)
	}
	if p := e.Locator.Protocol; p != cats.TCP && p != cats.UDP {
		return sid, key, value, fmt.Errorf("delivery by SID %s: protocol %s of the locator is neither tcp nor udp", e.SID, p)
	}
	key = programLocatorKey{
		Locator: encodeAddress(address.Addr()), Port: swap16(address.Port()), Protocol: uint8(e.Locator.Protocol),
	}
	value = programSid{
		Kind: uint32(programSidKindSID_DELIVER), NextHop: e.NextHop, Locator: key.Locator, LocatorPort: key.Port,
		LocatorProtocol: key.Protocol,
	}
	return encodeAddress(e.SID), key, value, nil
}

// SetReturnSID sets the segment that ends return paths at this ingress; the zero Addr where there is none.
func (d *Datapath) SetReturnSID(sid netip.Addr) error {
	want, err := dump[programAddress, programSid](d.maps.Sids)
	if err != nil {
		return err
	}
	for have, v := range want {
		if v.Kind == uint32(programSidKindSID_RETURN) {
			delete(want, have)
		}
	}
	if sid.IsValid() {
		if err := checkSID(sid); err != nil {
			return err
		}
		if _, ok := want[encodeAddress(sid)]; ok {
			return fmt.Errorf("return SID %s is that of a delivery", sid)
		}
		want[encodeAddress(sid)] = programSid{Kind: uint32(programSidKindSID_RETURN)}
	}
	if err := replace(d.maps.Sids, want); err != nil {
		return fmt.Errorf("SIDs: %w", err)
	}
	return nil
}

// SetLocalBlock sets the prefix that this forwarder's SIDs are taken from (its SRv6 locator): encapsulated packets to
// any other address in it are dropped as unknown-sid. The zero Prefix: no such check.
func (d *Datapath) SetLocalBlock(block netip.Prefix) error {
	var value programBlock
	if block.IsValid() {
		if err := checkSID(block.Addr()); err != nil {
			return err
		}
		prefix := block.Masked().Addr().As16()
		ones, _ := netip.AddrFrom16([16]byte{
			255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
		}).Prefix(block.Bits())
		mask := ones.Addr().As16()
		for i := range value.Prefix {
			value.Prefix[i] = binary.NativeEndian.Uint64(prefix[8*i:])
			value.Mask[i] = binary.NativeEndian.Uint64(mask[8*i:])
		}
		value.Enabled = 1
	}
	if err := d.maps.Blocks.Put(uint32(0), &value); err != nil {
		return fmt.Errorf("local block: %w", err)
	}
	return nil
}

// SetDomainBlock replaces the prefixes that the SIDs of the whole SR domain are taken from, those of other nodes
// included: an IPv6 packet to an address in them that comes in on a port without RoleCore is dropped as unauthorized (RFC
// 8754 section 5.1), whatever is in it. On such ports this forwarder's own SIDs, and segment routing headers, are refused
// without it, too.
func (d *Datapath) SetDomainBlock(prefixes []netip.Prefix) error {
	want := make(map[programDomainKey]uint32)
	for _, p := range prefixes {
		if err := checkSID(p.Addr()); err != nil {
			return fmt.Errorf("SR domain: %w", err)
		}
		bits, address, err := encodePrefix(p)
		if err != nil {
			return fmt.Errorf("SR domain: %w", err)
		}
		want[programDomainKey{PrefixLength: bits, Target: address}] = 1
	}
	if err := replace(d.maps.Domain, want); err != nil {
		return fmt.Errorf("SR domain: %w", err)
	}
	return nil
}

func checkSID(sid netip.Addr) error {
	if !sid.Is6() || sid.Is4In6() || sid.IsUnspecified() || sid.IsMulticast() {
		return fmt.Errorf("%s cannot be a SID: need a unicast IPv6 address", sid)
	}
	return nil
}

// encodePrefix gives a prefix in the form of an LPM key: IPv4 is 96 bits deeper.
func encodePrefix(p netip.Prefix) (bits uint32, address programAddress, err error) {
	if !p.IsValid() || p.Addr().Is4In6() {
		return 0, address, fmt.Errorf("%s is no IPv4 or IPv6 prefix", p)
	}
	bits = uint32(p.Bits())
	if p.Addr().Is4() {
		bits += 96
	}
	return bits, encodeAddress(p.Masked().Addr()), nil
}
