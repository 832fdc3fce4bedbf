// Package bolt is a store in one bbolt file, for a C-PS on one node. Only one process can have the file open.
package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bboltErrors "go.etcd.io/bbolt/errors"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/store"
)

// lockTimeout is how long Open waits for another process to close the file.
const lockTimeout = 5 * time.Second

var (
	epochs = []byte("epochs") // shard, 4 octets → term, 8 octets
	fences = []byte("fences") // shard, 4 octets → term and counter, 8 octets each, then the forwarder's name
)

// Store is an open file. Make it with Open.
type Store struct{ db *bbolt.DB }

// Open opens or creates the file at path, with its directory.
func Open(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout})
	if errors.Is(err, bboltErrors.ErrTimeout) {
		return nil, fmt.Errorf("store %s: another process has it open: stop it first", path)
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	return &Store{db}, nil
}

// Advance gives the epoch of a new owner of the shard, unless it is fenced.
func (s *Store) Advance(shard cats.Shard) (epoch cats.Epoch, fence cats.Fence, err error) {
	err = s.update(shard, func(r *row) error {
		if fence = r.fence; fence.IsZero() {
			r.term++
		}
		epoch.Term = r.term
		return nil
	})
	if err != nil {
		return cats.Epoch{}, cats.Fence{}, err
	}
	return epoch, fence, nil
}

// Fence keeps the fence that the owner of a shard met.
func (s *Store) Fence(shard cats.Shard, fence cats.Fence) error {
	return s.update(shard, func(r *row) error {
		if fence.Highest.Compare(r.fence.Highest) > 0 {
			r.fence = fence
		}
		return nil
	})
}

// Recover ends the fence of a shard, above the epoch that a forwarder has obeyed.
func (s *Store) Recover(shard cats.Shard) (epoch cats.Epoch, fence cats.Fence, err error) {
	err = s.update(shard, func(r *row) error {
		if r.fence.IsZero() {
			return store.ErrNotFenced
		}
		highest := max(r.term, r.fence.Highest.Term)
		if highest >= lastTerm-1 {
			return fmt.Errorf("no epoch is above term %d: %w", highest, store.ErrDamaged)
		}
		fence, r.fence, r.term = r.fence, cats.Fence{}, highest+1
		epoch.Term = r.term
		return nil
	})
	if err != nil {
		return cats.Epoch{}, cats.Fence{}, err
	}
	return epoch, fence, nil
}

// lastTerm is a term that no owner has a next one after.
const lastTerm = 1<<64 - 1

// row is what is kept of a shard.
type row struct {
	term  uint64
	fence cats.Fence
}

// update changes what is kept of a shard, all or nothing; it is on disk when this returns.
func (s *Store) update(shard cats.Shard, change func(*row) error) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		terms, err := tx.CreateBucketIfNotExists(epochs)
		if err != nil {
			return err
		}
		marks, err := tx.CreateBucketIfNotExists(fences)
		if err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint32(nil, uint32(shard))
		var r row
		if r.term, err = decodeTerm(terms.Get(key)); err != nil {
			return fmt.Errorf("epoch of shard %d: %w", shard, err)
		}
		if r.fence, err = decodeFence(marks.Get(key)); err != nil {
			return fmt.Errorf("fence of shard %d: %w", shard, err)
		}
		if err := change(&r); err != nil {
			return fmt.Errorf("shard %d: %w", shard, err)
		}
		if err := terms.Put(key, binary.BigEndian.AppendUint64(nil, r.term)); err != nil {
			return err
		}
		if r.fence.IsZero() {
			return marks.Delete(key)
		}
		return marks.Put(key, encodeFence(r.fence))
	})
	if err != nil {
		return fmt.Errorf("store %s: %w", s.db.Path(), err)
	}
	return nil
}

func decodeTerm(value []byte) (uint64, error) {
	if value == nil {
		return 0, nil
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%d octets, need 8: %w", len(value), store.ErrDamaged)
	}
	term := binary.BigEndian.Uint64(value)
	if term == lastTerm {
		return 0, fmt.Errorf("term %d is the last one: %w", term, store.ErrDamaged)
	}
	return term, nil
}

func encodeFence(f cats.Fence) []byte {
	b := binary.BigEndian.AppendUint64(nil, f.Highest.Term)
	b = binary.BigEndian.AppendUint64(b, f.Highest.Counter)
	return append(b, f.Forwarder...)
}

func decodeFence(value []byte) (f cats.Fence, err error) {
	if value == nil {
		return cats.Fence{}, nil
	}
	if len(value) <= 16 {
		return cats.Fence{}, fmt.Errorf("%d octets, need more than 16: %w", len(value), store.ErrDamaged)
	}
	f.Highest = cats.Epoch{Term: binary.BigEndian.Uint64(value), Counter: binary.BigEndian.Uint64(value[8:])}
	f.Forwarder = string(value[16:])
	return f, nil
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }
