// Package storetest has the tests that every implementation of store.Store passes.
package storetest

import (
	"errors"
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
				next := advanced(t, s, 7)
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
		if first := advanced(t, s, 0); first.Compare(cats.Epoch{}) <= 0 {
			t.Fatalf("%s", first)
		}
		closed(t, s)
	})
	t.Run("shards do not share epochs", func(t *testing.T) {
		s := opened(t, newStore(t))
		for range 5 {
			advanced(t, s, 1)
		}
		if other := advanced(t, s, 2); other != (cats.Epoch{Term: 1}) {
			t.Fatalf("%s", other)
		}
		closed(t, s)
	})
	t.Run("a closed store gives no epoch", func(t *testing.T) {
		s := opened(t, newStore(t))
		closed(t, s)
		if e, _, err := s.Advance(1); err == nil {
			t.Fatalf("%s", e)
		}
		if s.Fence(1, fence) == nil {
			t.Error("it kept a fence")
		}
		if e, _, err := s.Recover(1); err == nil {
			t.Errorf("it recovered to %s", e)
		}
	})
	t.Run("a fenced shard has no new owner, however often it is started", func(t *testing.T) {
		open := newStore(t)
		s := opened(t, open)
		own := advanced(t, s, 3)
		if err := s.Fence(3, fence); err != nil {
			t.Fatal(err)
		}
		for range 20 { // more often than the fence is above the own epoch
			if e, f, err := s.Advance(3); err != nil || e != own || f != fence {
				t.Fatalf("%s, fence %+v, %v; want %s, fence %+v", e, f, err, own, fence)
			}
			closed(t, s)
			s = opened(t, open)
		}
		advanced(t, s, 4) // another shard has none
		closed(t, s)
	})
	t.Run("of two fences the higher stands", func(t *testing.T) {
		for _, order := range [][]cats.Fence{{fence, higher}, {higher, fence}} {
			s := opened(t, newStore(t))
			for _, f := range order {
				if err := s.Fence(3, f); err != nil {
					t.Fatal(err)
				}
			}
			if _, f, err := s.Advance(3); err != nil || f != higher {
				t.Errorf("%+v, %v", f, err)
			}
			closed(t, s)
		}
	})
	t.Run("a recovered shard goes on above the fence and above every owner before", func(t *testing.T) {
		for _, owners := range []int{1, 30} { // below the fence, and above
			open := newStore(t)
			s := opened(t, open)
			var last cats.Epoch
			for range owners {
				last = advanced(t, s, 3)
			}
			if err := s.Fence(3, fence); err != nil {
				t.Fatal(err)
			}
			e, f, err := s.Recover(3)
			if err != nil || f != fence || e.Compare(fence.Highest) <= 0 || e.Compare(last) <= 0 {
				t.Fatalf("%s, fence %+v, %v", e, f, err)
			}
			closed(t, s)
			s = opened(t, open)
			if next := advanced(t, s, 3); next.Compare(e) <= 0 {
				t.Errorf("the next owner has %s, recovered was %s", next, e)
			}
			if e, _, err := s.Recover(3); !errors.Is(err, store.ErrNotFenced) {
				t.Errorf("recovered again: %s, %v", e, err)
			}
			closed(t, s)
		}
	})
	t.Run("a shard that is not fenced is not recovered", func(t *testing.T) {
		s := opened(t, newStore(t))
		own := advanced(t, s, 3)
		if e, _, err := s.Recover(3); !errors.Is(err, store.ErrNotFenced) {
			t.Fatalf("%s, %v", e, err)
		}
		if next := advanced(t, s, 3); next.Term != own.Term+1 {
			t.Errorf("%s after %s", next, own)
		}
		closed(t, s)
	})
}

var (
	fence  = cats.Fence{Highest: cats.Epoch{Term: 12, Counter: 5}, Forwarder: "EF-1"}
	higher = cats.Fence{Highest: cats.Epoch{Term: 12, Counter: 6}, Forwarder: "IF-1"}
)

// advanced gives the epoch of a new owner of a shard that is not fenced.
func advanced(t *testing.T, s store.Store, shard cats.Shard) cats.Epoch {
	t.Helper()
	e, f, err := s.Advance(shard)
	if err != nil || !f.IsZero() {
		t.Fatalf("%s, fence %+v, %v", e, f, err)
	}
	return e
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
