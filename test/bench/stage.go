package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/datapath/kernel"
	"github.com/margay-net/margay/internal/lab/namespace"
)

// stage holds the network namespaces of an area, which go away with it.
type stage struct {
	prefix     string
	namespaces []*namespace.Namespace
}

func newStage(area string) *stage {
	return &stage{prefix: fmt.Sprintf("mgyb%d-%s-", os.Getpid(), area)}
}

func (s *stage) node(name string) (*namespace.Namespace, error) {
	n, err := namespace.New(s.prefix + name)
	if err != nil {
		return nil, err
	}
	s.namespaces = append(s.namespaces, n)
	return n, n.Do(func() error { return setUp("lo") })
}

func (s *stage) close() error {
	var errs []error
	for _, n := range s.namespaces {
		errs = append(errs, n.Close(), namespace.Remove(n.Name()))
	}
	return errors.Join(errs...)
}

// end is an interface in a namespace.
type end struct {
	node  *namespace.Namespace
	name  string
	index int
	mac   datapath.MAC
}

// wire joins two nodes by a veth pair. Both ends have GRO on, which gives them the receive loop without which frames
// that XDP redirects are lost.
func wire(a *namespace.Namespace, aName string, b *namespace.Namespace, bName string) (*end, *end, error) {
	err := a.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = aName
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: bName, PeerNamespace: netlink.NsFd(b.Fd())})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("veth %s to %s: %w", aName, bName, err)
	}
	ends := []*end{{node: a, name: aName}, {node: b, name: bName}}
	for _, e := range ends {
		if err := e.node.Do(e.bringUp); err != nil {
			return nil, nil, fmt.Errorf("veth end %s: %w", e.name, err)
		}
	}
	return ends[0], ends[1], nil
}

func (e *end) bringUp() error {
	link, err := netlink.LinkByName(e.name)
	if err != nil {
		return err
	}
	e.index, e.mac = link.Attrs().Index, datapath.MAC(link.Attrs().HardwareAddr)
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	// Only at an interface that is up does this also tell the other end that frames may be redirected to it.
	return kernel.SetOffload(e.name, kernel.OffloadGRO, true)
}

// neighbour makes address, behind interface e, known for good.
func (e *end) neighbour(address netip.Addr, mac datapath.MAC) error {
	return e.node.Do(func() error {
		err := netlink.NeighSet(&netlink.Neigh{
			LinkIndex: e.index, IP: address.AsSlice(), HardwareAddr: mac[:], State: unix.NUD_PERMANENT, Family: family(address),
		})
		if err != nil {
			return fmt.Errorf("neighbour %s on %s: %w", address, e.name, err)
		}
		return nil
	})
}

func (e *end) address(p netip.Prefix) error {
	return e.node.Do(func() error {
		link, err := netlink.LinkByName(e.name)
		if err != nil {
			return err
		}
		a := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return fmt.Errorf("address %s on %s: %w", p, e.name, err)
		}
		return nil
	})
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func host(a netip.Addr) *net.IPNet { return ipNet(netip.PrefixFrom(a, a.BitLen())) }

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// writeSysctl sets a value of net. in the network namespace of this thread.
func writeSysctl(key, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl net/%s=%s: %w", key, value, err)
	}
	return nil
}

// inject sends a whole frame out of an interface.
func (e *end) inject(frame []byte) error {
	return e.node.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: e.index}); err != nil {
			return fmt.Errorf("sending on %s: %w", e.name, err)
		}
		return nil
	})
}

// await polls until done says yes, for ten seconds at most.
func await(what string, done func() bool) error {
	for limit := time.Now().Add(10 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			return fmt.Errorf("%s: not within 10 s", what)
		}
	}
	return nil
}
