package namespace_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/testenv"
)

func TestNamespaceLifeAndSeparation(t *testing.T) {
	testenv.RequireRoot(t)
	name := fmt.Sprintf("mgyt-ns-%d", os.Getpid())
	t.Cleanup(func() { namespace.Remove(name) })
	n, err := namespace.New(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := namespace.New(name); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second namespace of that name: %v, want it refused", err)
	}
	var inside []net.Interface
	if err := n.Do(func() (err error) { inside, err = net.Interfaces(); return err }); err != nil {
		t.Fatal(err)
	}
	if len(inside) != 1 || inside[0].Name != "lo" {
		t.Errorf("a fresh namespace has interfaces %v, want only lo", inside)
	}
	want := errors.New("from inside")
	if err := n.Do(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("Do gave %v, want the function's own error", err)
	}
	if names, err := namespace.List(name); err != nil || len(names) != 1 {
		t.Errorf("List gave %v, %v", names, err)
	}
	n.Close()
	for range 2 {
		if err := namespace.Remove(name); err != nil {
			t.Errorf("Remove: %v", err)
		}
	}
	if _, err := namespace.Open(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open after Remove: %v, want it not to exist", err)
	}
}

func TestNamespaceRefusesBadNames(t *testing.T) {
	for _, name := range []string{"", "a/b", "..", "a b"} {
		if _, err := namespace.New(name); err == nil {
			t.Errorf("New(%q) succeeded", name)
		}
	}
}
