// Package namespace makes, enters and removes named Linux network namespaces, as `ip netns` knows them, without running
// a program in them: `ip netns exec` remounts /sys, so that pinned BPF objects vanish there.
package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is where named namespaces are kept; it is the directory of `ip netns`.
const Dir = "/run/netns"

// Namespace is one named network namespace.
type Namespace struct {
	name string
	file *os.File
}

// New makes a namespace of that name, which must not exist yet. It outlives the process until Remove.
func New(name string) (*Namespace, error) {
	if name == "" || strings.ContainsAny(name, "/ ") || name == "." || name == ".." {
		return nil, fmt.Errorf("network namespace name %q: need a file name without spaces", name)
	}
	if err := prepareDir(); err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	path := filepath.Join(Dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	f.Close()
	if err := onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("network namespace %s: %w", name, err), os.Remove(path))
	}
	n, err := Open(name)
	if err != nil {
		return nil, errors.Join(err, Remove(name))
	}
	return n, nil
}

// Open gives the existing namespace of that name.
func Open(name string) (*Namespace, error) {
	f, err := os.Open(filepath.Join(Dir, name))
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err == nil && fs.Type != unix.NSFS_MAGIC {
		f.Close()
		return nil, fmt.Errorf("network namespace %s: %s is a left-over file, not a namespace; remove it", name, filepath.Join(Dir, name))
	}
	return &Namespace{name: name, file: f}, nil
}

// List gives the names of all namespaces whose name begins with prefix, sorted.
func List(prefix string) ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Remove takes the name of a namespace away; the kernel frees it when nothing runs or is open in it any more. It is no
// error if there is no such namespace.
func Remove(name string) error {
	path := filepath.Join(Dir, name)
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if err == nil {
			continue // mounted more than once
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break
		}
		return fmt.Errorf("network namespace %s: unmount: %w", name, err)
	}
	err := os.Remove(path)
	if errors.Is(err, unix.EBUSY) {
		if err = unmountHidden(name); err == nil {
			err = os.Remove(path)
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	return nil
}

// Name is the name in Dir.
func (n *Namespace) Name() string { return n.name }

// Fd is a descriptor of the namespace, valid until Close; netlink uses it to move an interface there.
func (n *Namespace) Fd() int { return int(n.file.Fd()) }

// Close releases the handle; the namespace stays.
func (n *Namespace) Close() error { return n.file.Close() }

// Do runs f on a thread of its own inside the namespace and waits for it. Sockets, netlink handles and /proc/sys/net
// that f itself uses are the namespace's; goroutines that f starts are not inside, though sockets that f made remain
// so. A program that f starts is inside, too.
func (n *Namespace) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n.name, err)
		}
		return f()
	})
}

// onOwnThread runs f on a locked thread that ends with it, since a changed thread must never serve another goroutine.
// A f that ends its goroutine (testing.T.FailNow) ends only f: the caller goes on.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime then ends the thread
		err := errors.New("the function ended its goroutine")
		defer func() { result <- err }()
		err = f()
	}()
	return <-result
}
