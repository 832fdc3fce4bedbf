package datapath

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/margay-net/margay/cats"
)

// Install adds entries, all or none. An entry whose key is there under the same transaction is amended in place and
// keeps its usage; under another, it is refused with cats.ReasonTupleInUse. No room is cats.ReasonTableFull: all entries
// are in use, or, which is next to impossible below that, all places that this one could have.
func (d *Datapath) Install(entries []Entry) error {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	if d.table.lines == nil {
		return ErrClosed
	}
	var undo []func()
	for i := range entries {
		back, err := d.table.install(&entries[i])
		if err != nil {
			for j := len(undo) - 1; j >= 0; j-- {
				undo[j]()
			}
			return fmt.Errorf("%s %s: %w", entries[i].Key.Kind, entries[i].Key.Tuple, err)
		}
		undo = append(undo, back)
	}
	return nil
}

// install adds or amends one entry, and gives what takes that back.
func (t *table) install(e *Entry) (undo func(), err error) {
	key, err := encodeKey(e.Key)
	if err != nil {
		return nil, err
	}
	line, record, err := encodeEntry(e, &key)
	if err != nil {
		return nil, err
	}
	there, err := t.place(&key, &line, &record)
	if err != nil {
		return nil, err
	}
	if there == nil {
		return func() { t.remove(t.lookUp(&key)) }, nil
	}
	old := t.records[there.Record]
	if old.Transaction != record.Transaction {
		return nil, fmt.Errorf("transaction %s holds it: %w", cats.Transaction(old.Transaction), cats.ReasonTupleInUse)
	}
	if there.Rewrite != line.Rewrite || old.Rewrite != record.Rewrite || there.RewritePort != line.RewritePort ||
		old.Service != record.Service {
		return nil, fmt.Errorf("transaction %s selected another instance: %w", e.Transaction, cats.ReasonMalformed)
	}
	onward, flags := there.Onward, there.Flags
	t.amend(there, line.Onward, line.Flags, &record)
	return func() { t.amend(there, onward, flags, &old) }, nil
}

// amend changes an entry in place, with nothing lost of what packets count meanwhile.
func (t *table) amend(l *programBinding, onward uint32, flags uint8, record *programRecord) {
	t.addDigest(l) // a second time takes it away
	t.records[l.Record] = *record
	t.addDigest(l)
	atomic.StoreUint32(&l.Onward, onward)
	l.Flags = flags
}

// Remove removes the entries of keys; a key without one is skipped.
func (d *Datapath) Remove(keys []Key) error {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	if d.table.lines == nil {
		return ErrClosed
	}
	var errs []error
	for _, k := range keys {
		key, err := encodeKey(k)
		if err != nil {
			errs = append(errs, fmt.Errorf("removing %s %s: %w", k.Kind, k.Tuple, err))
			continue
		}
		if l, place := d.table.lookUp(&key); l != nil {
			d.table.remove(l, place)
		}
	}
	return errors.Join(errs...)
}

// SetDraining sets or clears the draining mark of an entry. An absent entry, or one of another transaction, is
// ErrNotInstalled.
func (d *Datapath) SetDraining(k Key, transaction cats.Transaction, draining bool) error {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	if d.table.lines == nil {
		return ErrClosed
	}
	key, err := encodeKey(k)
	if err != nil {
		return err
	}
	l, _ := d.table.lookUp(&key)
	if l == nil || d.table.records[l.Record].Transaction != transaction {
		return fmt.Errorf("%s %s: %w", k.Kind, k.Tuple, ErrNotInstalled)
	}
	l.Flags = drainingFlag(draining)
	return nil
}

// batch is how many entries one system call reads.
const batch = 1024

// eachOf reads a map in batches: 9 times as fast as one by one.
func eachOf[K, V any](m *ebpf.Map, visit func(*K, *V)) error {
	keys, values := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			visit(&keys[i], &values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %v: %w", m, err)
		}
	}
}
