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

// onwardOf gives the id that an entry has in one place: of a path or of a next hop, by its kind.
func onwardOf(e *Entry) (uint32, error) {
	path, hop := e.Path, e.NextHop
	switch {
	case e.Key.Kind == IngressReverse && path == 0:
		return hop, nil
	case e.Key.Kind == EgressForward && path == 0 && hop == 0:
		return 0, nil
	case (e.Key.Kind == IngressForward || e.Key.Kind == EgressReverse) && hop == 0:
		return path, nil
	}
	return 0, fmt.Errorf("path %d and next hop %d: a path goes with ingress-forward and egress-reverse, a next hop with "+
		"ingress-reverse: %w", path, hop, cats.ReasonMalformed)
}

// encodeEntry gives an entry of key as the table has it, but for what says where it is.
func encodeEntry(e *Entry, key *programBindingKey) (l programBinding, r programRecord, err error) {
	old := rewritten(e.Key)
	if old.IsValid() != e.Rewrite.IsValid() || old.Addr().Is4() != e.Rewrite.Addr().Is4() || e.Rewrite.Addr().Is4In6() {
		return l, r, fmt.Errorf("%s %s cannot have its address rewritten to %s: %w", e.Key.Kind, e.Key.Tuple, e.Rewrite,
			cats.ReasonMalformed)
	}
	onward, err := onwardOf(e)
	if err != nil {
		return l, r, err
	}
	l = programBinding{
		Onward: onward, FlowLabel: flowLabel(e.Key.Tuple), Flags: drainingFlag(e.Draining),
		LastSeen: uint32(monotonicTick() >> lastSeenShift),
	}
	r = programRecord{
		Transaction: e.Transaction, EpochTerm: e.Epoch.Term, EpochCounter: e.Epoch.Counter, Shard: uint32(e.Shard),
		Version: e.Version, Service: e.Service,
	}
	if !isIPv4(key) {
		r.Source, r.Target = key.Source, key.Target
	}
	if old.IsValid() {
		to := encodeAddress(e.Rewrite.Addr())
		if isIPv4(key) {
			l.Rewrite = to.Word[3]
		} else {
			r.Rewrite = to
		}
		l.RewritePort = swap16(e.Rewrite.Port())
		l.TransportDelta = swap16(checksumDelta(transportOctets(old), transportOctets(e.Rewrite)))
	}
	return l, r, nil
}

func decodeEntry(k *programBindingKey, l *programBinding, r *programRecord) Entry {
	e := Entry{
		Key: decodeKey(k), Transaction: r.Transaction, Shard: cats.Shard(r.Shard),
		Epoch: cats.Epoch{Term: r.EpochTerm, Counter: r.EpochCounter}, Version: r.Version, Service: r.Service,
		Draining: l.Flags&drainingFlag(true) != 0,
	}
	if e.Key.Kind == IngressReverse {
		e.NextHop = l.Onward
	} else {
		e.Path = l.Onward
	}
	if rewritten(e.Key).IsValid() {
		to := r.Rewrite
		if isIPv4(k) {
			to.Word = [4]uint32{2: mappedPrefix, 3: l.Rewrite}
		}
		e.Rewrite = netip.AddrPortFrom(decodeAddress(to), swap16(l.RewritePort))
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
