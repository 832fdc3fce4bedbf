package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/cats"
)

// Install adds entries, all or none. An entry whose key is there under the same transaction is amended in place and
// keeps its usage; under another, it is refused with cats.ReasonTupleInUse. No room is cats.ReasonTableFull.
func (d *Datapath) Install(entries []Entry) error {
	var undo []func() error
	for i := range entries {
		back, err := d.installOne(&entries[i])
		if err != nil {
			err = fmt.Errorf("%s %s: %w", entries[i].Key.Kind, entries[i].Key.Tuple, err)
			for j := len(undo) - 1; j >= 0; j-- {
				if e := undo[j](); e != nil {
					err = errors.Join(err, fmt.Errorf("undoing the half that was installed: %w", e))
				}
			}
			return err
		}
		undo = append(undo, back)
	}
	return nil
}

// installOne adds or amends one entry, and gives what takes that back.
func (d *Datapath) installOne(e *Entry) (undo func() error, err error) {
	key, err := encodeKey(e.Key)
	if err != nil {
		return nil, err
	}
	value, err := encodeEntry(e)
	if err != nil {
		return nil, err
	}
	err = d.maps.Bindings.Update(&key, &value, ebpf.UpdateNoExist)
	if err == nil {
		return func() error { return d.maps.Bindings.Delete(&key) }, nil
	}
	if !errors.Is(err, ebpf.ErrKeyExist) {
		return nil, tableError(d.maps.Bindings, err)
	}
	var old programBinding
	if err := d.maps.Bindings.Lookup(&key, &old); err != nil {
		return nil, fmt.Errorf("reading %v: %w", d.maps.Bindings, err)
	}
	if old.Transaction != value.Transaction {
		return nil, fmt.Errorf("transaction %s holds it: %w", cats.Transaction(old.Transaction), cats.ReasonTupleInUse)
	}
	if old.Rewrite != value.Rewrite || old.RewritePort != value.RewritePort || old.Service != value.Service {
		return nil, fmt.Errorf("transaction %s selected another instance: %w", e.Transaction, cats.ReasonMalformed)
	}
	if err := d.amendOne(key, &value); err != nil {
		return nil, err
	}
	return func() error { return d.amendOne(key, &old) }, nil
}

// amendOne changes an entry in place, with nothing lost of what packets count meanwhile.
func (d *Datapath) amendOne(key programBindingKey, to *programBinding) error {
	result, err := d.amend.Run(&ebpf.RunOptions{Context: programAmendment{
		Key: key, Transaction: to.Transaction, Path: to.Path, NextHop: to.NextHop, Shard: to.Shard,
		EpochTerm: to.EpochTerm, EpochCounter: to.EpochCounter, Version: to.Version, Flags: uint32(to.Flags),
	}})
	if err != nil {
		return fmt.Errorf("amending an entry: %w", err)
	}
	switch unix.Errno(-int32(result)) {
	case 0:
		return nil
	case unix.ENOENT, unix.ESTALE:
		return ErrNotInstalled
	}
	return fmt.Errorf("amending an entry: result %d", int32(result))
}

// Remove removes the entries of keys; a key without one is skipped.
func (d *Datapath) Remove(keys []Key) error {
	var errs []error
	for _, k := range keys {
		key, err := encodeKey(k)
		if err == nil {
			err = d.maps.Bindings.Delete(&key)
		}
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("removing %s %s: %w", k.Kind, k.Tuple, err))
		}
	}
	return errors.Join(errs...)
}

// SetDraining sets or clears the draining mark of an entry. An absent entry, or one of another transaction, is
// ErrNotInstalled.
func (d *Datapath) SetDraining(k Key, transaction cats.Transaction, draining bool) error {
	key, err := encodeKey(k)
	if err != nil {
		return err
	}
	var value programBinding
	err = d.maps.Bindings.Lookup(&key, &value)
	if errors.Is(err, ebpf.ErrKeyNotExist) || err == nil && value.Transaction != transaction {
		return fmt.Errorf("%s %s: %w", k.Kind, k.Tuple, ErrNotInstalled)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", k.Kind, k.Tuple, err)
	}
	value.Flags = drainingFlag(draining)
	return d.amendOne(key, &value)
}

// Bits of the TCP flags octet (RFC 9293).
const (
	tcpFIN = 0x01
	tcpRST = 0x04
)

// Usage calls visit for every entry.
func (d *Datapath) Usage(visit func(Usage)) error {
	return eachOf(d.maps.Bindings, func(k *programBindingKey, v *programBinding) {
		visit(Usage{
			Key: decodeKey(k), Transaction: v.Transaction, Packets: v.Packets, Octets: v.Octets,
			LastSeen: int64(v.LastSeen), FIN: v.TcpFlags&tcpFIN != 0, RST: v.TcpFlags&tcpRST != 0,
			Draining: v.Flags&drainingFlag(true) != 0,
		})
	})
}

// Entries gives every entry: what a restarted agent finds.
func (d *Datapath) Entries() ([]Entry, error) {
	var all []Entry
	err := eachOf(d.maps.Bindings, func(k *programBindingKey, v *programBinding) {
		all = append(all, decodeEntry(k, v))
	})
	return all, err
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
