package datapath

import (
	"math/bits"
	"sync/atomic"
)

// Bits of the TCP flags octet (RFC 9293).
const (
	tcpFIN = 0x01
	tcpRST = 0x04
)

// sliceWords is how many words of 64 places are read before a writer gets its turn.
const sliceWords = 32

// Usage calls visit for every entry. It reads memory alone. An entry that comes or goes meanwhile may be missed, or told
// although it has just gone. After Close it is ErrClosed.
func (d *Datapath) Usage(visit func(Usage)) error {
	return d.table.scan(func(t *table, word int) uint64 { return ^uint64(0) }, visit)
}

// Used calls visit for every entry that a packet came for, or that was installed, since Used visited it last. It reads
// no other entry, and so costs next to nothing where most are idle. Of what an earlier process did not come to, it may
// know nothing: begin with Usage. Otherwise it is as Usage.
func (d *Datapath) Used(visit func(Usage)) error {
	return d.table.scan(func(t *table, word int) uint64 {
		if atomic.LoadUint64(&t.touched[word]) == 0 {
			return 0
		}
		return atomic.SwapUint64(&t.touched[word], 0)
	}, visit)
}

// scan visits the entries whose bits choose gives, slice after slice.
func (t *table) scan(choose func(t *table, word int) uint64, visit func(Usage)) error {
	var s slice
	for first, last := 0, false; !last; first += sliceWords {
		var err error
		if last, err = s.read(t, first, choose); err != nil {
			return err
		}
		for i := range s.all {
			visit(s.all[i])
		}
	}
	return nil
}

// slice is what is read of a part of the table.
type slice struct {
	lines   []*programBinding
	records []*programRecord
	all     []Usage
}

// read reads one slice, which begins with a word, and tells whether it is the last. The slice's bits are taken before
// the first entry is read: what the program counted before it found a bit set is there by then. Each of the loops reads
// memory that the one before told the address of, so that the processor can fetch many entries at a time.
func (s *slice) read(t *table, first int, choose func(t *table, word int) uint64) (last bool, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.lines == nil {
		return false, ErrClosed
	}
	s.lines, s.records, s.all = s.lines[:0], s.records[:0], s.all[:0]
	end := min(first+sliceWords, len(t.occupied))
	for word := first; word < end; word++ {
		for set := choose(t, word) & t.occupied[word]; set != 0; set &= set - 1 {
			s.lines = append(s.lines, &t.lines[word*64+bits.TrailingZeros64(set)])
		}
	}
	for _, l := range s.lines {
		s.records = append(s.records, &t.records[l.Record])
	}
	now := t.now()
	for i, l := range s.lines {
		s.all = append(s.all, usage(l, s.records[i], now))
	}
	return end == len(t.occupied), nil
}

// usage reads an entry. When it was last seen is kept modulo 2^32 units, 208 days, before now. It is taken to be the end
// of its unit, as the program's clock is late already.
func usage(l *programBinding, r *programRecord, now int64) Usage {
	age := int32(uint32(now>>lastSeenShift) - atomic.LoadUint32(&l.LastSeen))
	seen := (now>>lastSeenShift-int64(age)+1)<<lastSeenShift - 1
	key := keyOf(l, r)
	return Usage{
		Key: decodeKey(&key), Transaction: r.Transaction, Packets: atomic.LoadUint64(&l.Packets),
		Octets: atomic.LoadUint64(&l.Octets), LastSeen: seen, FIN: l.TcpFlags&tcpFIN != 0, RST: l.TcpFlags&tcpRST != 0,
		Draining: l.Flags&drainingFlag(true) != 0,
	}
}

// keyOf gives the key of an entry.
func keyOf(l *programBinding, r *programRecord) programBindingKey {
	k := programBindingKey{
		Attachment: l.Attachment, Kind: l.Kind &^ bindingIPv6, Protocol: l.Protocol, SourcePort: l.SourcePort, TargetPort: l.TargetPort,
	}
	if l.Kind&bindingIPv6 != 0 {
		k.Source, k.Target = r.Source, r.Target
		return k
	}
	k.Source.Word = [4]uint32{2: mappedPrefix, 3: uint32(l.Pair)}
	k.Target.Word = [4]uint32{2: mappedPrefix, 3: uint32(l.Pair >> 32)}
	return k
}

// Entries gives every entry: what a restarted agent finds.
func (d *Datapath) Entries() ([]Entry, error) {
	t := d.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.lines == nil {
		return nil, ErrClosed
	}
	var all []Entry
	for word, set := range t.occupied {
		for ; set != 0; set &= set - 1 {
			l := &t.lines[word*64+bits.TrailingZeros64(set)]
			r := &t.records[l.Record]
			key := keyOf(l, r)
			all = append(all, decodeEntry(&key, l, r))
		}
	}
	return all, nil
}
