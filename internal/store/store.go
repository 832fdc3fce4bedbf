// Package store is what a C-PS keeps on disk: for now the ownership epoch of each shard, which must never be used twice,
// and the fence that it met (CP section 13.2).
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

var (
	// ErrDamaged is wrapped by errors about a store whose content cannot be what a C-PS wrote.
	ErrDamaged = errors.New("the store is damaged")
	// ErrNotFenced is wrapped by errors about the recovery of a shard that needs none.
	ErrNotFenced = errors.New("the shard is not fenced: there is nothing to recover from")
)

// Store keeps epochs and fences. What a method changes is durable when it returns. It is used by one goroutine.
type Store interface {
	// Advance gives a new owner of a shard its epoch: a term above every earlier one. A fenced shard has no new owner: the
	// last epoch comes again, with the fence, and nothing changes.
	Advance(cats.Shard) (cats.Epoch, cats.Fence, error)
	// Fence keeps the fence that the owner of a shard met, until Recover; a later one replaces it where its epoch is higher.
	Fence(cats.Shard, cats.Fence) error
	// Recover ends the fence of a shard and gives the epoch that the next owner will exceed: above that of the fence, and
	// above every earlier owner here. Where there is no fence it wraps ErrNotFenced. It also gives the fence that was.
	Recover(cats.Shard) (cats.Epoch, cats.Fence, error)
	// Close ends the use of the store.
	Close() error
}
