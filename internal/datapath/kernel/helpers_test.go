package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/testenv"
)

var serial atomic.Int32

// newNamespace makes a namespace that goes away with the test.
func newNamespace(t *testing.T, role string) *namespace.Namespace {
	t.Helper()
	testenv.RequireRoot(t)
	name := fmt.Sprintf("mgyt-%s-%d-%d", role, os.Getpid(), serial.Add(1))
	n, err := namespace.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Close()
		if err := namespace.Remove(name); err != nil {
			t.Error(err)
		}
	})
	in(t, n, func() error { return up("lo") })
	return n
}

func in(t *testing.T, n *namespace.Namespace, f func() error) {
	t.Helper()
	if err := n.Do(f); err != nil {
		t.Fatalf("in %s: %v", n.Name(), err)
	}
}

// wire connects two namespaces by a veth pair and brings both ends up with addresses.
func wire(t *testing.T, a *namespace.Namespace, aName string, aAddrs []string, b *namespace.Namespace, bName string, bAddrs []string) {
	t.Helper()
	in(t, a, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = aName
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: bName, PeerNamespace: netlink.NsFd(b.Fd())})
	})
	in(t, a, func() error { return configure(aName, aAddrs) })
	in(t, b, func() error { return configure(bName, bAddrs) })
}

func configure(name string, addrs []string) error {
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/accept_dad", []byte("0"), 0); err != nil {
		return err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, s := range addrs {
		a, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func sysctl(values map[string]string) error {
	for k, v := range values {
		if err := os.WriteFile("/proc/sys/net/"+k, []byte(v), 0); err != nil {
			return err
		}
	}
	return nil
}

// linkMAC gives the MAC of an interface in the present namespace.
func linkMAC(name string) (string, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return "", err
	}
	return l.Attrs().HardwareAddr.String(), nil
}

// poke sends a datagram to the discard port, which makes the kernel resolve the neighbour.
func poke(addr netip.Addr) error {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 9)))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("x"))
	if err != nil && strings.Contains(err.Error(), "refused") {
		return nil
	}
	return err
}

// neighbour gives the MAC that the present namespace resolved an address to; empty if it did not.
func neighbour(addr netip.Addr) (string, error) {
	all, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return "", err
	}
	for _, n := range all {
		if ip, _ := netip.AddrFromSlice(n.IP); ip.Unmap() == addr && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) == 0 {
			return n.HardwareAddr.String(), nil
		}
	}
	return "", nil
}

// eventually waits, generously, until f gives an empty string; it fails with the last one otherwise.
func eventually(t *testing.T, what string, f func() string) {
	t.Helper()
	last := ""
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if last = f(); last == "" {
			return
		}
	}
	t.Fatalf("%s: %s", what, last)
}
