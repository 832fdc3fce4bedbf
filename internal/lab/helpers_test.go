package lab_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/impair"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// TestMain lets this test program stand for the `margay` that a lab starts at its instances.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "margay" {
		if err := serve(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "margay:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve is `margay lab service` and `margay lab impair-process`.
func serve(args []string) error {
	if len(args) > 2 && args[0] == "lab" && args[1] == "impair-process" {
		return impairProcess(args[2:])
	}
	if len(args) < 2 || args[0] != "lab" || args[1] != "service" {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	o := lab.ServiceOptions{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	for args = args[2:]; len(args) >= 2; args = args[2:] {
		switch args[0] {
		case "--name":
			o.Name = args[1]
		case "--listen":
			o.Listen = append(o.Listen, args[1])
		case "--observe":
			o.Observe = endpoint.Address(args[1])
		}
	}
	if os.Getenv("LAB_TEST_FAIL") == o.Name {
		return fmt.Errorf("told to fail")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch leaves := os.Getenv("LAB_TEST_LEAVE"); leaves {
	case "":
	case o.Name:
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		return errors.Join(lab.Service(ctx, o), errors.New("told to leave"))
	default:
		time.Sleep(time.Second) // so that the one that leaves was ready before, on most machines
	}
	return lab.Service(ctx, o)
}

func impairProcess(args []string) error {
	o := impair.ProcessOptions{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	for ; len(args) >= 2; args = args[2:] {
		switch args[0] {
		case "--a":
			o.A = args[1]
		case "--b":
			o.B = args[1]
		case "--control":
			o.Control = endpoint.Address(args[1])
		case "--observe":
			o.Observe = endpoint.Address(args[1])
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return impair.Process(ctx, o)
}

// programs gives a directory in which `margay` is this test program.
func programs(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// A hard copy of the name, not a link to it, decides what os.Args[0] is.
	if err := os.Symlink(self, filepath.Join(dir, "margay")); err != nil {
		t.Fatal(err)
	}
	return dir
}

var serial atomic.Int32

// uniqueName is the name of a lab that no other test has.
func uniqueName() string { return fmt.Sprintf("t%d_%d-lab", os.Getpid(), serial.Add(1)) }

// up brings the example up under a name of its own and takes it down after the test.
func up(t *testing.T, extent lab.Extent) *lab.Lab {
	t.Helper()
	testenv.RequireRoot(t)
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		t.Fatal(err)
	}
	name := uniqueName()
	o := lab.Options{Topology: topology, Name: name, Extent: extent}
	if extent != lab.NetworkAlone {
		o.Programs = programs(t)
	}
	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, name)
	})
	return l
}

// nothingLeft fails the test if anything on the machine still has the name of the lab.
func nothingLeft(t *testing.T, name string) {
	t.Helper()
	for _, pattern := range []string{"/run/netns/mgy-" + name + "-*", "/run/margay/lab/" + name, "/run/margay/lab/." + name + "*", "/sys/fs/bpf/margay/" + name + "-*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range processes {
		if line, err := os.ReadFile(p); err == nil && strings.Contains(string(line), "/run/margay/lab/"+name+"/") {
			t.Errorf("still runs: %q", line)
		}
	}
}

// in runs f inside a node.
func in(t *testing.T, l *lab.Lab, node string, f func() error) {
	t.Helper()
	n, err := l.Node(node)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Do(f); err != nil {
		t.Fatalf("on node %s: %v", node, err)
	}
}

// eventually waits, generously, until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
