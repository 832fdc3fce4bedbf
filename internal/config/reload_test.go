package config

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

type small struct {
	Name Name `yaml:"name"`
	Size int  `yaml:"size"`
}

func TestReloadIsAllOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small.yaml")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("name: a\nsize: 1\n")
	first, err := Load[small](path)
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	registry := prometheus.NewRegistry()
	running := first.Size
	prepare := func(_ context.Context, current, next small) (func(), error) {
		if current.Size != running {
			t.Errorf("prepared from %d while %d runs", current.Size, running)
		}
		if err := Fixed(current, next, "name"); err != nil {
			return nil, err
		}
		if next.Size > 100 {
			return nil, errors.New("there is no room for that")
		}
		return func() { running = next.Size }, nil
	}
	r := NewReloader(first, func() (small, error) { return Load[small](path) }, prepare, slog.New(slog.NewTextHandler(&logged, nil)), registry)

	for what, c := range map[string]struct{ content, want string }{
		"two faults":           {"name: a\nsize: 2\nsise: 3\nsaze: 4\n", `unknown key "sise"`},
		"unknown key":          {"name: a\nsize: 2\nsise: 3\n", `unknown key "sise"`},
		"no YAML":              {"name: [", "not YAML"},
		"prepare fails":        {"name: a\nsize: 101\n", "there is no room for that"},
		"what takes a restart": {"name: b\nsize: 2\n", "name changed: restart the daemon to change that"},
	} {
		logged.Reset()
		before := testutil.ToFloat64(r.reloads.WithLabelValues("refused"))
		write(c.content)
		if err := r.Reload(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Reload = %v", what, err)
		}
		if running != 1 || r.current != first {
			t.Errorf("%s: %d runs, %+v is current", what, running, r.current)
		}
		if !strings.Contains(logged.String(), "the last good one stays in force") {
			t.Errorf("%s: logged %q", what, logged.String())
		}
		if log := logged.String(); strings.Count(log, "\n") != 1 || strings.Contains(log, "saze") || strings.Contains(log, "1 more: --check shows all") != (what == "two faults") {
			t.Errorf("%s: logged %q", what, log)
		}
		if n := testutil.ToFloat64(r.reloads.WithLabelValues("refused")); n != before+1 || testutil.ToFloat64(r.good) != 0 {
			t.Errorf("%s: refused counts %v, good is %v", what, n, testutil.ToFloat64(r.good))
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(context.Background()); err == nil || running != 1 {
		t.Errorf("without a file: %v, %d runs", err, running)
	}

	write("name: a\nsize: 2\n")
	if err := r.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(logged.String(), `msg="configuration applied: size changed"`) {
		t.Errorf("logged %q", logged.String())
	}
	if running != 2 || r.current.Size != 2 {
		t.Errorf("%d runs, %+v is current", running, r.current)
	}
	if n := testutil.ToFloat64(r.reloads.WithLabelValues("applied")); n != 1 || testutil.ToFloat64(r.good) != 1 {
		t.Errorf("applied counts %v, good is %v", n, testutil.ToFloat64(r.good))
	}
}

func TestFixed(t *testing.T) {
	a := example{Common: Common{Name: "a"}, State: "/a", Bindings: 1}
	b := a
	b.Bindings = 2
	if err := Fixed(a, b, "name", "state"); err != nil {
		t.Error(err)
	}
	b.Name, b.State = "b", "/b"
	if err := Fixed(a, b, "name", "state"); err == nil || err.Error() != "name, state changed: restart the daemon to change that" {
		t.Errorf("Fixed = %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a key that is not there was taken")
		}
	}()
	_ = Fixed(a, b, "nmae")
}
