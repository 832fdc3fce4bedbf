package datapath

import (
	"encoding/binary"
	"math/bits"

	"github.com/margay-net/margay/cats"
)

// DigestBuckets is how many parts of the entries have a digest of their own.
const DigestBuckets = 4096

// Digests tell in short which entries there are: each is the exclusive or of the DigestOf all entries of a bucket. Two
// lists of entries with the same digests are the same but for one chance in 2^64 a bucket.
type Digests [DigestBuckets]uint64

// DigestOf gives the bucket and digest of an entry: of its transaction, its version and its kind, the two kinds of a half
// being on their own, since one of them may be missing. It is keyed by the incarnation of the data plane (see
// Datapath.Incarnation), so that no one can choose transactions whose digests cancel out.
func DigestOf(key [16]byte, transaction cats.Transaction, version uint32, kind Kind) (bucket int, digest uint64) {
	first, second := binary.LittleEndian.Uint64(transaction[:]), binary.LittleEndian.Uint64(transaction[8:])
	bucket = int(sipHash(key, first, second) % DigestBuckets)
	return bucket, sipHash(key, first, second, uint64(version)<<8|uint64(kind))
}

// Digests gives the digests of all entries, kept up to date as they come and go.
func (d *Datapath) Digests() Digests {
	d.table.mu.RLock()
	defer d.table.mu.RUnlock()
	return d.table.digests
}

// addDigest puts an entry into its digest, or takes it out.
func (t *table) addDigest(l *programBinding) {
	r := &t.records[l.Record]
	bucket, digest := DigestOf(t.digestKey, r.Transaction, r.Version, Kind(l.Kind&^bindingIPv6))
	t.digests[bucket] ^= digest
}

// sipHash is SipHash-2-4 of words in little-endian order.
func sipHash(key [16]byte, words ...uint64) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	s := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	for _, w := range words {
		s.absorb(w)
	}
	s.absorb(uint64(len(words)) * 8 << 56)
	s[2] ^= 0xff
	for range 4 {
		s.round()
	}
	return s[0] ^ s[1] ^ s[2] ^ s[3]
}

type sipState [4]uint64

func (s *sipState) absorb(w uint64) {
	s[3] ^= w
	s.round()
	s.round()
	s[0] ^= w
}

func (s *sipState) round() {
	s[0] += s[1]
	s[2] += s[3]
	s[1] = bits.RotateLeft64(s[1], 13) ^ s[0]
	s[3] = bits.RotateLeft64(s[3], 16) ^ s[2]
	s[0] = bits.RotateLeft64(s[0], 32)
	s[2] += s[1]
	s[0] += s[3]
	s[1] = bits.RotateLeft64(s[1], 17) ^ s[2]
	s[3] = bits.RotateLeft64(s[3], 21) ^ s[0]
	s[2] = bits.RotateLeft64(s[2], 32)
}
