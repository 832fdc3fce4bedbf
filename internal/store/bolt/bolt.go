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

var epochs = []byte("epochs") // shard, 4 octets → term, 8 octets

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

// Advance gives the epoch of a new owner of the shard.
func (s *Store) Advance(shard cats.Shard) (cats.Epoch, error) {
	var epoch cats.Epoch
	err := s.db.Update(func(tx *bbolt.Tx) error { // it is on disk when this returns
		bucket, err := tx.CreateBucketIfNotExists(epochs)
		if err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint32(nil, uint32(shard))
		term, err := decodeTerm(bucket.Get(key))
		if err != nil {
			return fmt.Errorf("epoch of shard %d: %w", shard, err)
		}
		epoch.Term = term + 1
		return bucket.Put(key, binary.BigEndian.AppendUint64(nil, epoch.Term))
	})
	if err != nil {
		return cats.Epoch{}, fmt.Errorf("store %s: %w", s.db.Path(), err)
	}
	return epoch, nil
}

func decodeTerm(value []byte) (uint64, error) {
	if value == nil {
		return 0, nil
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%d octets, need 8: %w", len(value), store.ErrDamaged)
	}
	term := binary.BigEndian.Uint64(value)
	if term == 1<<64-1 {
		return 0, fmt.Errorf("term %d is the last one: %w", term, store.ErrDamaged)
	}
	return term, nil
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }
