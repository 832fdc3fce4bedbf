package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/cats"
)

// tableError turns the kernel's word for a full map into the reason.
func tableError(m *ebpf.Map, err error) error {
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%v holds %d entries at most: %w", m, m.MaxEntries(), cats.ReasonTableFull)
	}
	return fmt.Errorf("writing %v: %w", m, err)
}

// encodeAddress gives a in network order; IPv4 mapped into IPv6.
func encodeAddress(a netip.Addr) programAddress {
	octets := a.As16()
	var p programAddress
	for i := range p.Word {
		p.Word[i] = binary.NativeEndian.Uint32(octets[4*i:])
	}
	return p
}

func decodeAddress(p programAddress) netip.Addr {
	var octets [16]byte
	for i, w := range p.Word {
		binary.NativeEndian.PutUint32(octets[4*i:], w)
	}
	return netip.AddrFrom16(octets).Unmap()
}

// swap16 turns a number into one in network order, and back.
func swap16(v uint16) uint16 {
	var octets [2]byte
	binary.BigEndian.PutUint16(octets[:], v)
	return binary.NativeEndian.Uint16(octets[:])
}

func swap32(v uint32) uint32 {
	var octets [4]byte
	binary.BigEndian.PutUint32(octets[:], v)
	return binary.NativeEndian.Uint32(octets[:])
}

// checkTuple refuses what no packet can have.
func checkTuple(t cats.Tuple) error {
	source, target := t.Source.Addr(), t.Target.Addr()
	if !source.IsValid() || !target.IsValid() || source.Is4() != target.Is4() || source.Is4In6() || target.Is4In6() {
		return fmt.Errorf("tuple %s: need two IPv4 or two IPv6 addresses: %w", t, cats.ReasonMalformed)
	}
	if t.Protocol != cats.TCP && t.Protocol != cats.UDP {
		return fmt.Errorf("tuple %s: need tcp or udp: %w", t, cats.ReasonMalformed)
	}
	return nil
}

func encodeKey(k Key) (programBindingKey, error) {
	if k.Kind >= kindCount || (k.Kind == IngressForward) != (k.Attachment != 0) {
		return programBindingKey{}, fmt.Errorf("key %s of attachment %d: an attachment goes with ingress-forward alone: %w",
			k.Kind, k.Attachment, cats.ReasonMalformed)
	}
	if err := checkTuple(k.Tuple); err != nil {
		return programBindingKey{}, err
	}
	return programBindingKey{
		Attachment: k.Attachment,
		Kind:       uint8(k.Kind),
		Protocol:   uint8(k.Tuple.Protocol),
		SourcePort: swap16(k.Tuple.Source.Port()),
		TargetPort: swap16(k.Tuple.Target.Port()),
		Source:     encodeAddress(k.Tuple.Source.Addr()),
		Target:     encodeAddress(k.Tuple.Target.Addr()),
	}, nil
}

func decodeKey(p *programBindingKey) Key {
	return Key{Kind: Kind(p.Kind), Attachment: p.Attachment, Tuple: cats.Tuple{
		Protocol: cats.Protocol(p.Protocol),
		Source:   netip.AddrPortFrom(decodeAddress(p.Source), swap16(p.SourcePort)),
		Target:   netip.AddrPortFrom(decodeAddress(p.Target), swap16(p.TargetPort)),
	}}
}

// rewritten gives the address and port of the tuple that the program replaces; invalid where it replaces none.
func rewritten(k Key) netip.AddrPort {
	switch k.Kind {
	case IngressForward:
		return k.Tuple.Target
	case IngressReverse:
		return k.Tuple.Source
	}
	return netip.AddrPort{}
}

func encodeEntry(e *Entry) (programBinding, error) {
	p := programBinding{
		Path: e.Path, NextHop: e.NextHop, FlowLabel: flowLabel(e.Key.Tuple), Transaction: e.Transaction,
		EpochTerm: e.Epoch.Term, EpochCounter: e.Epoch.Counter, Shard: uint32(e.Shard), Version: e.Version,
		Service: e.Service, Flags: drainingFlag(e.Draining), LastSeen: uint64(monotonicTick()),
	}
	old := rewritten(e.Key)
	if old.IsValid() != e.Rewrite.IsValid() || old.Addr().Is4() != e.Rewrite.Addr().Is4() || e.Rewrite.Addr().Is4In6() {
		return p, fmt.Errorf("%s %s cannot have its address rewritten to %s: %w", e.Key.Kind, e.Key.Tuple, e.Rewrite,
			cats.ReasonMalformed)
	}
	if old.IsValid() {
		p.Rewrite, p.RewritePort = encodeAddress(e.Rewrite.Addr()), swap16(e.Rewrite.Port())
		p.TransportDelta = swap16(checksumDelta(transportOctets(old), transportOctets(e.Rewrite)))
		if old.Addr().Is4() {
			p.NetworkDelta = swap16(checksumDelta(old.Addr().AsSlice(), e.Rewrite.Addr().AsSlice()))
		}
	}
	return p, nil
}

func decodeEntry(k *programBindingKey, p *programBinding) Entry {
	e := Entry{
		Key: decodeKey(k), Transaction: p.Transaction, Shard: cats.Shard(p.Shard),
		Epoch: cats.Epoch{Term: p.EpochTerm, Counter: p.EpochCounter}, Version: p.Version, Service: p.Service,
		Path: p.Path, NextHop: p.NextHop, Draining: p.Flags&drainingFlag(true) != 0,
	}
	if rewritten(e.Key).IsValid() {
		e.Rewrite = netip.AddrPortFrom(decodeAddress(p.Rewrite), swap16(p.RewritePort))
	}
	return e
}

func drainingFlag(draining bool) uint8 {
	if draining {
		return uint8(programBindingFlagBINDING_DRAINING)
	}
	return 0
}

// transportOctets gives what of a is in the sum of a transport checksum: the address in the pseudo-header, the port in
// the header.
func transportOctets(a netip.AddrPort) []byte {
	return binary.BigEndian.AppendUint16(a.Addr().AsSlice(), a.Port())
}

// checksumDelta gives the one's complement sum by which a checksum's complement changes where before becomes after
// (RFC 1624). Both have the same even length.
func checksumDelta(before, after []byte) uint16 {
	var sum uint32
	for i := 0; i < len(before); i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(before[i:])) + uint32(binary.BigEndian.Uint16(after[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// flowLabel gives a flow its IPv6 flow label (RFC 6437), in network order: 20 bits of an FNV-1a hash, never 0.
func flowLabel(t cats.Tuple) uint32 {
	h := fnv1a(fnvBasis, []byte{uint8(t.Protocol)})
	h = fnv1a(h, transportOctets(t.Source))
	h = fnv1a(h, transportOctets(t.Target))
	label := (h ^ h>>20) & 0xfffff
	if label == 0 {
		label = 1
	}
	return swap32(label)
}

const fnvBasis uint32 = 2166136261

func fnv1a(h uint32, octets []byte) uint32 {
	for _, o := range octets {
		h = (h ^ uint32(o)) * 16777619
	}
	return h
}
