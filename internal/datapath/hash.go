package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// secrets are the factors of the hash of the binding table. They are drawn when the pinned maps are made.
type secrets = [16]uint64

// Places of the multipliers of mix, which must be odd.
const (
	firstMixer  = 12
	secondMixer = 13
)

func drawSecrets() (s secrets) {
	var octets [8 * len(s)]byte
	rand.Read(octets[:]) // never fails
	for i := range s {
		s[i] = binary.NativeEndian.Uint64(octets[8*i:])
	}
	s[firstMixer] |= 1
	s[secondMixer] |= 1
	return s
}

// query is what an entry of a key looks like, and where it can be: as struct query of bpf/table.h.
type query struct {
	tag        uint32
	attachment uint32
	pair       uint64
	sourcePort uint16
	targetPort uint16
	kind       uint8
	protocol   uint8
	home       uint32
}

func isIPv4(k *programBindingKey) bool {
	return k.Source.Word[0] == 0 && k.Source.Word[1] == 0 && k.Source.Word[2] == mappedPrefix
}

// mappedPrefix is the third word of an IPv4 address that is mapped into IPv6 (RFC 4291 section 2.5.5.2).
var mappedPrefix = binary.NativeEndian.Uint32([]byte{0, 0, 0xff, 0xff})

// sumKey is multilinear (bpf/table.h).
func sumKey(s *secrets, k *programBindingKey, ipv4 bool) uint64 {
	sum := s[0] + s[1]*uint64(k.Attachment) + s[2]*(uint64(k.SourcePort)|uint64(k.TargetPort)<<16) +
		s[3]*(uint64(k.Kind)|uint64(k.Protocol)<<8) + s[4]*uint64(k.Source.Word[3]) + s[5]*uint64(k.Target.Word[3])
	if ipv4 {
		return sum
	}
	for i := range 3 {
		sum += s[6+i]*uint64(k.Source.Word[i]) + s[9+i]*uint64(k.Target.Word[i])
	}
	return sum
}

func mix(s *secrets, h uint64) uint64 {
	h ^= h >> 32
	h *= s[firstMixer]
	h ^= h >> 29
	h *= s[secondMixer]
	return h ^ h>>32
}

func prepareQuery(s *secrets, homes uint32, k *programBindingKey) query {
	ipv4 := isIPv4(k)
	sum := sumKey(s, k, ipv4)
	hash := mix(s, sum)
	q := query{
		tag: uint32(hash) | tagLive, attachment: k.Attachment, pair: sum, sourcePort: k.SourcePort, targetPort: k.TargetPort,
		kind: k.Kind | bindingIPv6, protocol: k.Protocol, home: uint32((hash>>32)*uint64(homes)>>32) * 2,
	}
	if ipv4 {
		q.kind, q.pair = k.Kind, uint64(k.Source.Word[3])|uint64(k.Target.Word[3])<<32
	}
	return q
}

// Sizes of the binding table for a number of bindings, of which each takes two entries.
const (
	probes         = 128     // PROBES of bpf/layout.h
	bindingIPv6    = 4       // BINDING_IPV6
	lastSeenShift  = 22      // LAST_SEEN_SHIFT
	maxBindings    = 1 << 28 // places are numbered in 32 bits
	spareRecords   = 1024    // and an eighth: for entries of IPv6 in quarantine
	tagNever       = uint32(programBindingTagTAG_NEVER)
	tagQuarantined = uint32(programBindingTagTAG_QUARANTINED)
	tagFree        = uint32(programBindingTagTAG_FREE)
	tagLive        = uint32(programBindingTagTAG_LIVE)
)

func entryCapacity(bindings uint32) uint32 { return 2 * bindings }
func homeCount(bindings uint32) uint32     { return entryCapacity(bindings) } // every other place
func placeCount(bindings uint32) uint32    { return 2*homeCount(bindings) + probes - 2 }
func touchedWords(bindings uint32) uint32  { return (placeCount(bindings) + 63) / 64 }
func recordCount(bindings uint32) uint32 {
	return entryCapacity(bindings) + entryCapacity(bindings)/8 + spareRecords
}

func checkBindings(n uint32) error {
	if n > maxBindings {
		return fmt.Errorf("%d bindings are more than %d", n, maxBindings)
	}
	return nil
}
