// Package store is what a C-PS keeps on disk: for now the ownership epoch of each shard, which must never be used twice
// (CP section 13.2).
//
// The bindings are not in it. Both forwarders of a flow hold its whole record, so theirs is the first copy, and a C-PS
// that starts rebuilds its bindings from them before it admits anything.
//
// Each implementation is a package of its own below this one; package storetest has the tests that all of them pass.
package store

import (
	"errors"

	"github.com/margay-net/margay/cats"
)

// ErrDamaged is wrapped by errors about a store whose content cannot be what a C-PS wrote.
var ErrDamaged = errors.New("the store is damaged")

// Store keeps the epochs. It is used by one goroutine.
type Store interface {
	// Advance gives a new owner of a shard its epoch: a term above every earlier one, durable before it is given.
	Advance(cats.Shard) (cats.Epoch, error)
	// Close ends the use of the store.
	Close() error
}
