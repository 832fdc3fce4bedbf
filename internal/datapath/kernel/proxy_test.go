package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/datapath/kernel"
	"github.com/margay-net/margay/internal/lab/namespace"
)

var releaseNames = kernel.ReleaseConfig{Send: "mgy-tx", Program: "mgy-rx"}

// clientAndForwarder gives a client and a forwarder on one subnet, the forwarder as Check wants it.
func clientAndForwarder(t *testing.T) (client, forwarder *namespace.Namespace) {
	t.Helper()
	client, forwarder = newNamespace(t, "cl"), newNamespace(t, "fw")
	wire(t, client, "eth0", []string{"192.0.2.10/24", "2001:db8:c::10/64"},
		forwarder, "client0", []string{"192.0.2.1/24", "2001:db8:c::1/64"})
	in(t, forwarder, func() error {
		return sysctl(map[string]string{"ipv6/conf/all/forwarding": "1", "ipv4/conf/client0/forwarding": "1"})
	})
	in(t, forwarder, func() error { return kernel.Prepare(kernel.Interfaces{Attachments: []string{"client0"}}) })
	return client, forwarder
}

func openProxy(t *testing.T, forwarder *namespace.Namespace) *kernel.Proxy {
	t.Helper()
	var p *kernel.Proxy
	in(t, forwarder, func() error {
		r, err := kernel.OpenRelease(releaseNames)
		if err != nil {
			return err
		}
		t.Cleanup(func() { r.Close() })
		p, err = kernel.NewProxy(releaseNames.Program)
		return err
	})
	t.Cleanup(func() { p.Close() })
	return p
}

func prefixes(s ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, x := range s {
		all = append(all, netip.MustParsePrefix(x))
	}
	return all
}

func TestProxyAnswersForServiceAddresses(t *testing.T) {
	t.Parallel()
	client, forwarder := clientAndForwarder(t)
	p := openProxy(t, forwarder)
	if err := p.SetServiceAddresses([]string{"client0"}, prefixes("192.0.2.100/32", "2001:db8:c::100/128", "192.0.2.104/30")); err != nil {
		t.Fatal(err)
	}
	var want string
	in(t, forwarder, func() (err error) { want, err = linkMAC("client0"); return err })
	for _, s := range []string{"192.0.2.100", "2001:db8:c::100", "192.0.2.104", "192.0.2.107"} {
		t.Run(s, func(t *testing.T) {
			addr := netip.MustParseAddr(s)
			in(t, client, func() error { return poke(addr) })
			eventually(t, "client asks who has "+s, func() string { return resolvesTo(client, addr, want) })
		})
	}
	t.Run("nobody answers for an address that is no service", func(t *testing.T) {
		for _, s := range []string{"192.0.2.101", "192.0.2.108", "2001:db8:c::101"} {
			addr := netip.MustParseAddr(s)
			in(t, client, func() error { return poke(addr) })
			eventually(t, "resolution of "+s+" fails", func() string { return fails(client, addr) })
		}
	})
	t.Run("the forwarder does not own it", func(t *testing.T) {
		in(t, forwarder, func() error {
			addrs, err := netlink.AddrList(nil, unix.AF_UNSPEC)
			for _, a := range addrs {
				if a.IP.Equal(net.ParseIP("192.0.2.100")) || a.IP.Equal(net.ParseIP("2001:db8:c::100")) {
					t.Errorf("address %s is configured", a)
				}
			}
			return err
		})
	})
}

func resolvesTo(n *namespace.Namespace, addr netip.Addr, want string) string {
	var got string
	if err := n.Do(func() (err error) { got, err = neighbour(addr); return err }); err != nil {
		return err.Error()
	}
	if got != want {
		return fmt.Sprintf("got %q, want %q", got, want)
	}
	return ""
}

// fails tells whether the kernel has given up asking for the neighbour.
func fails(n *namespace.Namespace, addr netip.Addr) string {
	state := -1
	err := n.Do(func() error {
		all, err := netlink.NeighList(0, netlink.FAMILY_ALL)
		for _, e := range all {
			if e.IP.Equal(addr.AsSlice()) {
				state = e.State
			}
		}
		return err
	})
	if err != nil || state != netlink.NUD_FAILED {
		return fmt.Sprintf("state %d, error %v", state, err)
	}
	return ""
}

// proxyEntries lists proxy entries and routes with our mark as text.
func proxyEntries(t *testing.T, n *namespace.Namespace) (neighs, routes string) {
	t.Helper()
	var a, b []string
	in(t, n, func() error {
		for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
			all, err := netlink.NeighProxyList(0, f)
			if err != nil {
				return err
			}
			for _, e := range all {
				a = append(a, e.IP.String())
			}
			rs, err := netlink.RouteListFiltered(f, &netlink.Route{Protocol: kernel.Protocol}, netlink.RT_FILTER_PROTOCOL)
			if err != nil {
				return err
			}
			for _, r := range rs {
				b = append(b, r.Dst.String())
			}
		}
		return nil
	})
	return strings.Join(a, " "), strings.Join(b, " ")
}

func TestProxyReplacesAsAWholeAndTouchesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	_, forwarder := clientAndForwarder(t)
	in(t, forwarder, func() error {
		l, err := netlink.LinkByName("client0")
		if err != nil {
			return err
		}
		return netlink.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: net.ParseIP("192.0.2.77").To4(), Flags: netlink.NTF_PROXY, State: netlink.NUD_PERMANENT})
	})
	p := openProxy(t, forwarder)
	steps := []struct {
		services       []string
		neighs, routes string
	}{
		{[]string{"192.0.2.100/32", "2001:db8:c::100/128"}, "192.0.2.100 192.0.2.77 2001:db8:c::100", "192.0.2.100/32 2001:db8:c::100/128"},
		{[]string{"192.0.2.100/32", "192.0.2.77/32"}, "192.0.2.100 192.0.2.77", "192.0.2.77/32 192.0.2.100/32"},
		{[]string{"203.0.113.0/24"}, "192.0.2.77", "203.0.113.0/24"}, // routed to clients' gateway: nothing to answer
		{nil, "192.0.2.77", ""},
	}
	for _, s := range steps {
		if err := p.SetServiceAddresses([]string{"client0"}, prefixes(s.services...)); err != nil {
			t.Fatal(err)
		}
		neighs, routes := proxyEntries(t, forwarder)
		if !sameSet(neighs, s.neighs) || !sameSet(routes, s.routes) {
			t.Errorf("services %v: entries %q, routes %q; want %q, %q", s.services, neighs, routes, s.neighs, s.routes)
		}
	}
}

func sameSet(a, b string) bool {
	count := map[string]int{}
	for _, f := range strings.Fields(a) {
		count[f]++
	}
	for _, f := range strings.Fields(b) {
		count[f]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestProxyRefusesBadInputAndChangesNothing(t *testing.T) {
	t.Parallel()
	_, forwarder := clientAndForwarder(t)
	p := openProxy(t, forwarder)
	if err := p.SetServiceAddresses([]string{"client0"}, prefixes("192.0.2.100/32")); err != nil {
		t.Fatal(err)
	}
	in(t, forwarder, func() error {
		l, err := netlink.LinkByName("client0")
		if err != nil {
			return err
		}
		_, dst, _ := net.ParseCIDR("192.0.2.55/32")
		return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK})
	})
	for _, c := range []struct {
		name, iface, services, want string
	}{
		{"own address", "client0", "192.0.2.1/32", "address of this host"},
		{"own address in a prefix", "client0", "2001:db8:c::/120", "address of this host"},
		{"too wide on the link", "client0", "192.0.0.0/16", "address of this host"},
		{"too many addresses", "client0", "2001:db8:c:0:1::/80", "more than 256"},
		{"multicast", "client0", "224.0.0.1/32", "not a prefix of unicast"},
		{"no interface", "nowhere0", "192.0.2.101/32", "nowhere0"},
		{"another's route", "client0", "192.0.2.55/32", "which this forwarder did not make"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := p.SetServiceAddresses([]string{c.iface}, prefixes("192.0.2.60/32", c.services))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if neighs, routes := proxyEntries(t, forwarder); neighs != "192.0.2.100" || routes != "192.0.2.100/32" {
				t.Errorf("after the error: entries %q, routes %q", neighs, routes)
			}
		})
	}
}
