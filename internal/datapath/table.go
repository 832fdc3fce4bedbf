package datapath

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/cats"
)

// table is the binding table, which this process and the program share through mmap: open addressing with linear probing,
// one cache line an entry, at most half full of entries, in each of which the program counts.
//
// Its one writer fills a place before it sets the tag, so that the program sees a whole entry or none. A place that it
// took an entry out of is quarantined: the program might be at work on a packet with it. No entry ever moves.
//
// A place is never used before an entry's home is found to have none nearer: between the home of an entry and its place
// no tag is tagNever, which therefore ends a search.
type table struct {
	mu       sync.RWMutex // held by the writer for one entry at a time, by a reader for one slice
	memory   [3][]byte    // of lines, records and touched; nil once closed
	lines    []programBinding
	records  []programRecord
	touched  []uint64 // a bit a place, set by the program
	secret   *secrets
	homes    uint32
	capacity int
	now      func() int64 // CLOCK_MONOTONIC ns

	count      int
	occupied   []uint64 // a bit a place, so that a scan reads no place that is empty
	fresh      uint32   // records from here on were never used
	returned   []uint32 // records that were, and are free
	quarantine []quarantined
	released   int // of quarantine, its first elements that are done with
	digests    Digests
	digestKey  [16]byte
}

// quarantined is a place that an entry was taken out of.
type quarantined struct {
	place, record uint32
	since         int64
}

// Parameters of quarantine.
const (
	// quarantineTime is much longer than the program takes for a packet, also where the hypervisor stops the CPU meanwhile.
	quarantineTime = int64(1e9)
	noRecord       = ^uint32(0)
)

// openTable maps the table and takes up what is in it.
func openTable(maps *programMaps, bindings uint32, state *programIncarnation) (*table, error) {
	t := &table{
		secret: &state.Secret, homes: homeCount(bindings), capacity: int(entryCapacity(bindings)), now: Monotonic,
		occupied: make([]uint64, touchedWords(bindings)), digestKey: state.Id,
	}
	var errs [3]error
	t.memory[0], t.lines, errs[0] = share[programBinding](maps.Bindings)
	t.memory[1], t.records, errs[1] = share[programRecord](maps.Records)
	t.memory[2], t.touched, errs[2] = share[uint64](maps.Touched)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, t.close())
	}
	if err := t.takeUp(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// share maps an array into this process.
func share[V any](m *ebpf.Map) ([]byte, []V, error) {
	var v V
	n := int(m.MaxEntries())
	memory, err := unix.Mmap(m.FD(), 0, n*int(unsafe.Sizeof(v)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mapping %v into memory: %w", m, err)
	}
	return memory, unsafe.Slice((*V)(unsafe.Pointer(unsafe.SliceData(memory))), n), nil
}

func (t *table) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.memory {
		if t.memory[i] != nil {
			if err := unix.Munmap(t.memory[i]); err != nil {
				return fmt.Errorf("unmapping the binding table: %w", err)
			}
			t.memory[i] = nil
		}
	}
	t.lines, t.records, t.touched = nil, nil, nil
	return nil
}

// takeUp learns what an earlier process left.
func (t *table) takeUp() error {
	used := make([]uint64, (len(t.records)+63)/64)
	for place := range t.lines {
		l := &t.lines[place]
		switch tag := atomic.LoadUint32(&l.Tag); {
		case tag == tagQuarantined:
			t.quarantine = append(t.quarantine, quarantined{uint32(place), noRecord, t.now()})
		case tag >= tagLive:
			if int(l.Record) >= len(t.records) || used[l.Record/64]>>(l.Record%64)&1 != 0 {
				return fmt.Errorf("the pinned binding table is damaged: place %d has record %d: unload the data plane, "+
					"which ends its flows", place, l.Record)
			}
			used[l.Record/64] |= 1 << (l.Record % 64)
			t.fresh = max(t.fresh, l.Record+1)
			t.occupy(uint32(place))
			t.count++
			t.addDigest(l)
		}
	}
	for r := range t.fresh {
		if used[r/64]>>(r%64)&1 == 0 {
			t.returned = append(t.returned, r)
		}
	}
	return nil
}

func (t *table) occupy(place uint32) { t.occupied[place/64] |= 1 << (place % 64) }
func (t *table) vacate(place uint32) { t.occupied[place/64] &^= 1 << (place % 64) }

// find gives the place of an entry that looks like q, and the first place that one could have; nil where there is none.
func (t *table) find(q *query) (entry, room *programBinding, place uint32) {
	for p := q.home; p < q.home+probes; p++ {
		l := &t.lines[p]
		tag := l.Tag
		if (tag == tagNever || tag == tagFree) && room == nil {
			room, place = l, p
		}
		if tag == tagNever {
			break
		}
		if tag == q.tag && l.Attachment == q.attachment && l.Pair == q.pair && l.SourcePort == q.sourcePort &&
			l.TargetPort == q.targetPort && l.Kind == q.kind && l.Protocol == q.protocol {
			return l, nil, p
		}
	}
	return nil, room, place
}

// lookUp gives the entry of a key, and its place. Two keys of IPv6 may look alike.
func (t *table) lookUp(k *programBindingKey) (*programBinding, uint32) {
	q := prepareQuery(t.secret, t.homes, k)
	l, _, place := t.find(&q)
	if l == nil || !t.isOf(l, k) {
		return nil, 0
	}
	return l, place
}

func (t *table) isOf(l *programBinding, k *programBindingKey) bool {
	r := &t.records[l.Record]
	return l.Kind&bindingIPv6 == 0 || r.Source == k.Source && r.Target == k.Target
}

// place puts an entry in, or says why it cannot. What is there under the key it gives, and changes nothing.
func (t *table) place(k *programBindingKey, line *programBinding, record *programRecord) (there *programBinding, err error) {
	t.release()
	q := prepareQuery(t.secret, t.homes, k)
	there, room, place := t.find(&q)
	if there != nil {
		if t.isOf(there, k) {
			return there, nil
		}
		return nil, fmt.Errorf("another key has the same hash: %w", cats.ReasonTableFull)
	}
	if t.count >= t.capacity {
		return nil, fmt.Errorf("the binding table holds %d entries at most: %w", t.capacity, cats.ReasonTableFull)
	}
	if room == nil {
		return nil, fmt.Errorf("%d of %d entries are in use, and the %d places of this one are taken: %w", t.count, t.capacity,
			probes, cats.ReasonTableFull)
	}
	number, ok := t.takeRecord()
	if !ok {
		return nil, fmt.Errorf("%d of %d entries are in use, and those removed within the last second cannot be yet: %w",
			t.count, t.capacity, cats.ReasonTableFull)
	}
	t.records[number] = *record
	line.Tag, line.Attachment, line.Pair, line.SourcePort, line.TargetPort = room.Tag, q.attachment, q.pair, q.sourcePort, q.targetPort
	line.Kind, line.Protocol, line.Record = q.kind, q.protocol, number
	*room = *line
	atomic.StoreUint32(&room.Tag, q.tag) // all else is there
	atomic.OrUint64(&t.touched[place/64], 1<<(place%64))
	t.occupy(place)
	t.count++
	t.addDigest(room)
	return nil, nil
}

func (t *table) takeRecord() (uint32, bool) {
	if n := len(t.returned); n > 0 {
		r := t.returned[n-1]
		t.returned = t.returned[:n-1]
		return r, true
	}
	if int(t.fresh) == len(t.records) {
		return 0, false
	}
	t.fresh++
	return t.fresh - 1, true
}

// remove takes the entry at a place out. The program uses the record of an IPv6 entry alone.
func (t *table) remove(l *programBinding, place uint32) {
	t.release()
	t.addDigest(l) // a second time takes it away
	q := quarantined{place, l.Record, t.now()}
	atomic.StoreUint32(&l.Tag, tagQuarantined)
	if l.Kind&bindingIPv6 == 0 {
		t.returned = append(t.returned, l.Record)
		q.record = noRecord
	}
	t.vacate(place)
	t.count--
	t.quarantine = append(t.quarantine, q)
}

// release makes places reusable that were quarantined long enough.
func (t *table) release() {
	if t.released == len(t.quarantine) {
		return
	}
	due := t.now() - quarantineTime
	for t.released < len(t.quarantine) && t.quarantine[t.released].since <= due {
		q := t.quarantine[t.released]
		t.released++
		if q.record != noRecord {
			t.returned = append(t.returned, q.record)
		}
		atomic.StoreUint32(&t.lines[q.place].Tag, tagFree)
		t.shorten(q.place)
	}
	if 2*t.released >= len(t.quarantine) {
		t.quarantine = t.quarantine[:copy(t.quarantine, t.quarantine[t.released:])]
		t.released = 0
	}
}

// shorten lets searches end at a free place, and those before it, where none goes on behind.
func (t *table) shorten(place uint32) {
	if int(place)+1 < len(t.lines) && t.lines[place+1].Tag != tagNever {
		return
	}
	for p := int(place); p >= 0 && t.lines[p].Tag == tagFree; p-- {
		atomic.StoreUint32(&t.lines[p].Tag, tagNever)
	}
}
