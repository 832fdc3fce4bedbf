package bolt

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/store"
	"github.com/margay-net/margay/internal/store/storetest"
)

// killVariable names the store that this binary, started again, advances and then dies without closing.
const killVariable = "MARGAY_BOLT_TEST_STORE"

func TestMain(m *testing.M) {
	if path := os.Getenv(killVariable); path != "" {
		s, err := Open(path)
		if err == nil {
			_, _, err = s.Advance(3)
		}
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func() (store.Store, error) {
		path := filepath.Join(t.TempDir(), "state", "cps.db")
		return func() (store.Store, error) { return Open(path) }
	})
}

func TestAnEpochOutlivesTheProcessThatTookIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cps.db")
	for range 2 {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), killVariable+"="+path)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if e, _, err := s.Advance(3); err != nil || e.Term != 3 {
		t.Errorf("%s, %v; want term 3", e, err)
	}
}

func TestDamage(t *testing.T) {
	for name, value := range map[string][]byte{
		"too short":     {1, 2, 3},
		"the last term": binary.BigEndian.AppendUint64(nil, 1<<64-1),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(filepath.Join(t.TempDir(), "cps.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, _, err := s.Advance(1); err != nil {
				t.Fatal(err)
			}
			err = s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(epochs).Put([]byte{0, 0, 0, 1}, value) })
			if err != nil {
				t.Fatal(err)
			}
			if e, _, err := s.Advance(1); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "shard 1") {
				t.Errorf("%s, %v", e, err)
			}
		})
	}
	t.Run("a fence that is too short", func(t *testing.T) {
		s, err := Open(filepath.Join(t.TempDir(), "cps.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Fence(1, cats.Fence{Highest: cats.Epoch{Term: 2}, Forwarder: "IF-1"}); err != nil {
			t.Fatal(err)
		}
		err = s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(fences).Put([]byte{0, 0, 0, 1}, make([]byte, 16)) })
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Advance(1); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a fence that no epoch is above", func(t *testing.T) {
		s, err := Open(filepath.Join(t.TempDir(), "cps.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Fence(1, cats.Fence{Highest: cats.Epoch{Term: lastTerm - 1}, Forwarder: "IF-1"}); err != nil {
			t.Fatal(err)
		}
		if e, _, err := s.Recover(1); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%s, %v", e, err)
		}
		if _, f, err := s.Advance(1); err != nil || f.IsZero() {
			t.Errorf("the fence is gone: %+v, %v", f, err)
		}
	})
	t.Run("not a store", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "cps.db")
		if err := os.WriteFile(path, []byte(strings.Repeat("not a store ", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%v, %v", s, err)
		}
	})
}
