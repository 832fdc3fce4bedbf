package namespace_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/testenv"
)

// aloneVariable tells this program that it has mounts of its own.
const aloneVariable = "MARGAY_NAMESPACE_TEST_ALONE"

// alone runs the calling test again in a process with mounts of its own and an empty /run, and tells whether this is
// that process.
func alone(t *testing.T) bool {
	t.Helper()
	testenv.RequireRoot(t)
	if os.Getenv(aloneVariable) != "" {
		for unix.Unmount(namespace.Dir, unix.MNT_DETACH) == nil { // a copy, whose going nobody else sees
		}
		if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	command.Env = append(os.Environ(), aloneVariable+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// mounted counts the mounts at a path.
func mounted(t *testing.T, path string) (n int, shared bool) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) > 6 && f[4] == path {
			n++
			shared = strings.HasPrefix(f[6], "shared:")
		}
	}
	return n, shared
}

// TestNamesBesideIP: namespaces made here and by `ip netns`, in either order, can all be removed.
func TestNamesBesideIP(t *testing.T) {
	if !alone(t) {
		return
	}
	ip := func(arguments ...string) {
		t.Helper()
		if out, err := exec.Command("ip", append([]string{"netns"}, arguments...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip netns %v: %v: %s", arguments, err, out)
		}
	}
	make := func(name string) {
		t.Helper()
		n, err := namespace.New(name)
		if err != nil {
			t.Fatal(err)
		}
		n.Close()
	}
	make("first")
	if n, shared := mounted(t, namespace.Dir); n != 1 || !shared {
		t.Fatalf("%s is mounted %d times; shared: %t", namespace.Dir, n, shared)
	}
	ip("add", "theirs")
	make("second")
	if n, _ := mounted(t, namespace.Dir); n != 1 {
		t.Errorf("%s is mounted %d times", namespace.Dir, n)
	}
	ip("delete", "second")
	for _, name := range []string{"first", "second", "theirs"} {
		if err := namespace.Remove(name); err != nil {
			t.Error(err)
		}
	}
	if left, err := namespace.List(""); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestRemoveOfAHiddenName: a namespace that something hid by a mount over Dir can be removed, and so is gone.
func TestRemoveOfAHiddenName(t *testing.T) {
	if !alone(t) {
		return
	}
	path := filepath.Join(namespace.Dir, "old")
	if err := os.MkdirAll(namespace.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct{ what, at string }{{"/proc/self/ns/net", path}, {namespace.Dir, namespace.Dir}} {
		if err := unix.Mount(m.what, m.at, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := mounted(t, path); n != 2 {
		t.Fatalf("%s is mounted %d times", path, n)
	}
	fresh, err := namespace.New("fresh")
	if err != nil {
		t.Fatal(err)
	}
	fresh.Close()
	if err := namespace.Remove("old"); err != nil {
		t.Fatal(err)
	}
	if n, _ := mounted(t, path); n != 0 {
		t.Errorf("%s is mounted %d times after Remove", path, n)
	}
	if _, err := namespace.Open("old"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open after Remove: %v", err)
	}
	if names, err := namespace.List(""); err != nil || fmt.Sprint(names) != "[fresh]" {
		t.Errorf("left: %v, %v", names, err)
	}
}
