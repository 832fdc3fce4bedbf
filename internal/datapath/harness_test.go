package datapath

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/testenv"
)

// node is a forwarder in a network namespace of its own, with one interface of each kind, whose program the tests run
// on frames that they make.
type node struct {
	*Datapath
	pins    string
	index   map[string]int
	mac     map[string]MAC
	threads *thread
}

// The interfaces of a node, by role; each is one end of a veth whose other end is named with a p behind.
var nodePorts = []Port{
	{"client0", RoleClient}, {"core0", RoleCore}, {"svc0", RoleInstance}, {"rel0", RoleRelease},
	{"any0", RoleClient | RoleCore | RoleInstance},
}

// newNode makes a node; attachments, services and all else are the test's to set.
func newNode(t testing.TB) *node {
	t.Helper()
	testenv.RequireRoot(t)
	n := &node{pins: pinDir(t), index: make(map[string]int), mac: make(map[string]MAC), threads: newThread(t)}
	n.in(t, func() error {
		for _, p := range nodePorts {
			if err := addVeth(p.Name, p.Name+"p"); err != nil {
				return err
			}
			l, err := netlink.LinkByName(p.Name)
			if err != nil {
				return err
			}
			n.index[p.Name] = l.Attrs().Index
			n.mac[p.Name] = MAC(l.Attrs().HardwareAddr)
		}
		return nil
	})
	n.open(t, n.config())
	return n
}

// config is small, so that opening it is quick.
func (n *node) config() Config {
	return Config{PinDir: n.pins, Ports: nodePorts, Bindings: 128, Paths: 64, NextHops: 64, RingOctets: 1 << 20}
}

// open opens the data plane, again or for the first time, and closes it with the test.
func (n *node) open(t testing.TB, config Config) {
	t.Helper()
	n.in(t, func() (err error) {
		n.Datapath, err = Open(config)
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			t.Logf("%-40v", refused)
		}
		return err
	})
	d := n.Datapath
	t.Cleanup(func() { d.Close() })
}

// in runs f in the node's network namespace.
func (n *node) in(t testing.TB, f func() error) {
	t.Helper()
	if err := n.threads.run(f); err != nil {
		t.Fatal(err)
	}
}

// run passes a frame that came in on an interface through the program; it gives the action and the frame after.
func (n *node) run(t testing.TB, port string, frame []byte) (action uint32, out []byte) {
	t.Helper()
	n.in(t, func() (err error) {
		action, out, err = n.runHere(uint32(n.index[port]), frame)
		return err
	})
	return action, out
}

// runHere is run for a thread that is in the namespace already.
func (n *node) runHere(index uint32, frame []byte) (action uint32, out []byte, err error) {
	options := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+512),
		Context: xdpContext{DataEnd: uint32(len(frame)), Ingress: index},
	}
	action, err = n.program.Run(&options)
	return action, options.DataOut, err
}

// xdpContext is struct xdp_md.
type xdpContext struct {
	Data, DataEnd, DataMeta, Ingress, Queue, Egress uint32
}

// XDP actions (linux/bpf.h).
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpRedirect = 4
)

func actionName(a uint32) string {
	switch a {
	case xdpDrop:
		return "drop"
	case xdpPass:
		return "pass"
	case xdpRedirect:
		return "redirect"
	}
	return fmt.Sprintf("action %d", a)
}

var pinCount atomic.Uint32

// pinDir gives a pin directory of the test's own, unloaded at its end.
func pinDir(t testing.TB) string {
	dir := fmt.Sprintf("%s/margay-test-%d-%d", bpffs, os.Getpid(), pinCount.Add(1))
	t.Cleanup(func() {
		if err := Unload(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// addVeth makes a veth with both ends up.
func addVeth(name, peer string) error {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("adding veth %s: %w", name, err)
	}
	for _, end := range []string{name, peer} {
		l, err := netlink.LinkByName(end)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("setting %s up: %w", end, err)
		}
	}
	return nil
}

// thread runs functions on one thread that is in a network namespace of its own, since a Go test's own goroutine may
// be on any thread.
type thread struct {
	work chan func() error
	done chan error
}

func newThread(t testing.TB) *thread {
	t.Helper()
	s := &thread{work: make(chan func() error), done: make(chan error)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		s.done <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range s.work {
			s.done <- f()
		}
	}()
	if err := <-s.done; err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() {
		close(s.work)
		<-ended
	})
	return s
}

func (s *thread) run(f func() error) error {
	s.work <- f
	return <-s.done
}
