package testenv

import (
	"testing"
	"time"
)

// Patience is how long a test waits for what has to happen: no machine is that slow.
const Patience = 60 * time.Second

// Eventually polls until ok.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", Patience, what)
		}
	}
}

// Want waits for the next event, which has to be an E.
func Want[E any](t testing.TB, events <-chan any) E {
	t.Helper()
	select {
	case e := <-events:
		if typed, ok := e.(E); ok {
			return typed
		}
		t.Fatalf("%T %+v instead of %T", e, e, *new(E))
	case <-time.After(Patience):
		t.Fatalf("no %T", *new(E))
	}
	panic("unreachable")
}
