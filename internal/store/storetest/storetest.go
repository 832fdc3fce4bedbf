// Package storetest has the tests that every implementation of store.Store passes.
package storetest

import (
	"testing"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/store"
)

// Run tests an implementation. Open opens the same store each time it is called; each subtest gets one of its own.
func Run(t *testing.T, newStore func(*testing.T) (open func() (store.Store, error))) {
	t.Run("each owner of a shard has a higher epoch than all before, over restarts", func(t *testing.T) {
		open := newStore(t)
		var last cats.Epoch
		for range 3 {
			s := opened(t, open)
			for range 3 {
				next, err := s.Advance(7)
				if err != nil {
					t.Fatal(err)
				}
				if next.Compare(last) <= 0 {
					t.Fatalf("epoch %s after %s", next, last)
				}
				last = next
			}
			closed(t, s)
		}
	})
	t.Run("the first epoch is above the zero epoch", func(t *testing.T) {
		s := opened(t, newStore(t))
		first, err := s.Advance(0)
		if err != nil || first.Compare(cats.Epoch{}) <= 0 {
			t.Fatalf("%s, %v", first, err)
		}
		closed(t, s)
	})
	t.Run("shards do not share epochs", func(t *testing.T) {
		s := opened(t, newStore(t))
		for range 5 {
			if _, err := s.Advance(1); err != nil {
				t.Fatal(err)
			}
		}
		if other, err := s.Advance(2); err != nil || other != (cats.Epoch{Term: 1}) {
			t.Fatalf("%s, %v", other, err)
		}
		closed(t, s)
	})
	t.Run("a closed store gives no epoch", func(t *testing.T) {
		s := opened(t, newStore(t))
		closed(t, s)
		if e, err := s.Advance(1); err == nil {
			t.Fatalf("%s", e)
		}
	})
}

func opened(t *testing.T, open func() (store.Store, error)) store.Store {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
