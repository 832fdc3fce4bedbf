package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/datapath/kernel"
	"github.com/margay-net/margay/internal/lab/namespace"
)

// watcher keeps the last hop of every destination that a resolver told of.
type watcher struct {
	*kernel.Resolver
	last map[netip.Addr]kernel.Hop
}

func newWatcher(t *testing.T, n *namespace.Namespace) *watcher {
	t.Helper()
	w := &watcher{last: map[netip.Addr]kernel.Hop{}}
	in(t, n, func() (err error) { w.Resolver, err = kernel.NewResolver(); return err })
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return w
}

func (w *watcher) watch(t *testing.T, addrs ...string) []kernel.Hop {
	t.Helper()
	var ds []netip.Addr
	for _, a := range addrs {
		ds = append(ds, netip.MustParseAddr(a))
	}
	hops, err := w.Watch(ds...)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hops {
		w.last[h.Destination] = h
	}
	return hops
}

// until reads changes until the destination's hop is as wanted.
func (w *watcher) until(t *testing.T, addr, what string, ok func(kernel.Hop) bool) kernel.Hop {
	t.Helper()
	d := netip.MustParseAddr(addr)
	limit := time.After(60 * time.Second)
	for !ok(w.last[d]) {
		select {
		case hops, open := <-w.Changes():
			if !open {
				t.Fatalf("resolver ended: %v", w.Err())
			}
			for _, h := range hops {
				w.last[h.Destination] = h
			}
		case <-limit:
			t.Fatalf("waiting for %s: last %s", what, w.last[d])
		}
	}
	return w.last[d]
}

func isState(s kernel.HopState) func(kernel.Hop) bool {
	return func(h kernel.Hop) bool { return h.State == s }
}

func lladdr(mac string) func(kernel.Hop) bool {
	return func(h kernel.Hop) bool { return h.State == kernel.HopResolved && h.Neighbor.String() == mac }
}

// coreAndForwarder gives a forwarder with a route over a neighbour to everything else.
func coreAndForwarder(t *testing.T) (core, forwarder *namespace.Namespace) {
	t.Helper()
	core, forwarder = newNamespace(t, "core"), newNamespace(t, "fw")
	wire(t, core, "eth0", []string{"198.51.100.2/24", "2001:db8:1::2/64"}, forwarder, "core0", []string{"198.51.100.1/24", "2001:db8:1::1/64"})
	in(t, forwarder, func() error {
		for dst, gw := range map[string]string{"203.0.113.0/24": "198.51.100.2", "2001:db8:ff::/48": "2001:db8:1::2"} {
			if err := route(netlink.RouteAdd, dst, gw, 0); err != nil {
				return err
			}
		}
		return nil
	})
	return core, forwarder
}

func route(do func(*netlink.Route) error, dst, gw string, mtu int) error {
	_, n, err := net.ParseCIDR(dst)
	if err != nil {
		return err
	}
	return do(&netlink.Route{Dst: n, Gw: net.ParseIP(gw), MTU: mtu})
}

func TestResolverFollowsTheKernel(t *testing.T) {
	t.Parallel()
	core, forwarder := coreAndForwarder(t)
	var coreMAC, ownMAC string
	in(t, core, func() (err error) { coreMAC, err = linkMAC("eth0"); return err })
	in(t, forwarder, func() (err error) { ownMAC, err = linkMAC("core0"); return err })
	w := newWatcher(t, forwarder)
	w.watch(t, "203.0.113.9", "2001:db8:ff::9", "198.51.100.2", "192.0.2.77", "198.51.100.1")

	for dst, gw := range map[string]string{"203.0.113.9": "198.51.100.2", "2001:db8:ff::9": "2001:db8:1::2", "198.51.100.2": "198.51.100.2"} {
		h := w.until(t, dst, "the neighbour to be resolved without any traffic", lladdr(coreMAC))
		if h.Gateway.String() != gw || h.Interface != "core0" || h.Source.String() != ownMAC || h.MTU != 1500 {
			t.Errorf("%s: %+v", dst, h)
		}
	}
	if h := w.last[netip.MustParseAddr("192.0.2.77")]; h.State != kernel.HopNoRoute || h.Detail == "" {
		t.Errorf("without a route: %s", h)
	}
	if h := w.last[netip.MustParseAddr("198.51.100.1")]; h.State != kernel.HopLocal {
		t.Errorf("own address: %s", h)
	}

	const moved = "02:00:00:00:00:99"
	in(t, core, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		mac, _ := net.ParseMAC(moved)
		return netlink.LinkSetHardwareAddr(l, mac)
	})
	in(t, core, func() error { return poke(netip.MustParseAddr("198.51.100.1")) }) // it speaks with its new MAC
	in(t, core, func() error { return poke(netip.MustParseAddr("2001:db8:1::1")) })
	w.until(t, "203.0.113.9", "the neighbour's new MAC", lladdr(moved))

	in(t, forwarder, func() error { return route(netlink.RouteAdd, "192.0.2.0/24", "198.51.100.2", 1400) })
	if h := w.until(t, "192.0.2.77", "the new route", lladdr(moved)); h.MTU != 1400 {
		t.Errorf("MTU %d, want the route's 1400", h.MTU)
	}
	in(t, forwarder, func() error { return route(netlink.RouteDel, "192.0.2.0/24", "198.51.100.2", 1400) })
	w.until(t, "192.0.2.77", "the route to go", isState(kernel.HopNoRoute))

	in(t, core, func() error { return setLink("eth0", netlink.LinkSetDown) }) // the other end: carrier lost
	w.until(t, "203.0.113.9", "the carrier to go", isState(kernel.HopDown))
	in(t, core, func() error { return setLink("eth0", netlink.LinkSetUp) })
	w.until(t, "203.0.113.9", "the carrier to come back", lladdr(moved))
	in(t, forwarder, func() error { return setLink("core0", netlink.LinkSetDown) }) // IPv4 routes go without a word
	w.until(t, "203.0.113.9", "the routes to go with the interface", isState(kernel.HopNoRoute))
	in(t, forwarder, func() error { return setLink("core0", netlink.LinkDel) })
	w.until(t, "198.51.100.2", "the interface to go", isState(kernel.HopNoRoute))
}

func setLink(name string, do func(netlink.Link) error) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return do(l)
}

func TestResolverKeepsAskingForANeighbourThatAppearsLate(t *testing.T) {
	t.Parallel()
	core, forwarder := coreAndForwarder(t)
	w := newWatcher(t, forwarder)
	hops := w.watch(t, "198.51.100.33", "2001:db8:1::33")
	for _, h := range hops {
		w.until(t, h.Destination.String(), "the carrier", isState(kernel.HopUnresolved))
	}
	for _, a := range []string{"198.51.100.33", "2001:db8:1::33"} {
		eventually(t, "the kernel asks for "+a+" and gets no answer", func() string { return fails(forwarder, netip.MustParseAddr(a)) })
	}
	in(t, core, func() error { return configure("eth0", []string{"198.51.100.33/24", "2001:db8:1::33/64"}) })
	for _, h := range hops {
		w.until(t, h.Destination.String(), "the late neighbour", isState(kernel.HopResolved))
	}
}

func TestResolverLeavesStaticNeighboursAlone(t *testing.T) {
	t.Parallel()
	_, forwarder := coreAndForwarder(t)
	in(t, forwarder, func() error {
		l, err := netlink.LinkByName("core0")
		if err != nil {
			return err
		}
		mac, _ := net.ParseMAC("02:00:00:00:00:55")
		return netlink.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: net.ParseIP("198.51.100.55").To4(), HardwareAddr: mac, State: netlink.NUD_PERMANENT})
	})
	w := newWatcher(t, forwarder)
	if h := w.watch(t, "198.51.100.55")[0]; h.Neighbor.String() != "02:00:00:00:00:55" {
		t.Errorf("got %s", h)
	}
	if err := w.Forget(netip.MustParseAddr("198.51.100.55")); err != nil {
		t.Fatal(err)
	}
	in(t, forwarder, func() error {
		all, err := netlink.NeighList(0, unix.AF_INET)
		for _, e := range all {
			if e.IP.Equal(net.ParseIP("198.51.100.55")) && e.State == netlink.NUD_PERMANENT {
				return nil
			}
		}
		return fmt.Errorf("static neighbour is not there any more: %v, %v", all, err)
	})
}

func TestResolverManagesOnlyWhatItNeeds(t *testing.T) {
	t.Parallel()
	_, forwarder := coreAndForwarder(t)
	w := newWatcher(t, forwarder)
	w.watch(t, "203.0.113.1", "203.0.113.2")
	w.until(t, "203.0.113.1", "the neighbour", isState(kernel.HopResolved))
	for _, c := range []struct {
		forget string
		want   bool
	}{{"203.0.113.1", true}, {"203.0.113.2", false}} {
		if err := w.Forget(netip.MustParseAddr(c.forget)); err != nil {
			t.Fatal(err)
		}
		managed := false
		in(t, forwarder, func() error {
			all, err := netlink.NeighList(0, unix.AF_INET)
			for _, e := range all {
				managed = managed || e.FlagsExt&netlink.NTF_EXT_MANAGED != 0
			}
			return err
		})
		if managed != c.want {
			t.Errorf("after forgetting %s: managed %v, want %v", c.forget, managed, c.want)
		}
	}
}

func TestResolverSurvivesLostNotifications(t *testing.T) {
	t.Parallel()
	core, forwarder := coreAndForwarder(t)
	w := newWatcher(t, forwarder)
	w.watch(t, "203.0.113.9")
	w.until(t, "203.0.113.9", "the neighbour", isState(kernel.HopResolved))
	// Hold the owner in a command while the kernel's buffer overflows, then change something it will not be told of.
	if err := w.Overrun(func() error {
		return forwarder.Do(func() error {
			for range 60 {
				for i := range 250 {
					if err := route(netlink.RouteReplace, fmt.Sprintf("10.0.%d.0/24", i), "198.51.100.2", 0); err != nil {
						return err
					}
					if err := route(netlink.RouteDel, fmt.Sprintf("10.0.%d.0/24", i), "198.51.100.2", 0); err != nil {
						return err
					}
				}
			}
			return core.Do(func() error { return setLink("eth0", netlink.LinkSetDown) })
		})
	}); err != nil {
		t.Fatal(err)
	}
	w.until(t, "203.0.113.9", "the change that was not notified", isState(kernel.HopDown))
}

func TestResolverRefusesWhatIsNoUnicastAddress(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, newNamespace(t, "res"))
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("::"), netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("ff02::1")} {
		if _, err := w.Watch(a); err == nil {
			t.Errorf("Watch(%s) succeeded", a)
		}
	}
}

func TestResolverCloseWaitsForItsGoroutines(t *testing.T) {
	n := newNamespace(t, "res")
	before := goleak.IgnoreCurrent()
	w := newWatcher(t, n)
	w.watch(t, "192.0.2.1")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, open := <-w.Changes(); open {
		t.Error("Changes is still open")
	}
	if _, err := w.Watch(netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Error("Watch works on a closed resolver")
	}
	goleak.VerifyNone(t, before)
}
