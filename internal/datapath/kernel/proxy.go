package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxExpansion is how many addresses of a service prefix on a client link get a proxy entry of their own; the kernel
// has no entry for a whole prefix.
const maxExpansion = 256

// Proxy answers ARP and neighbour solicitations of clients for service addresses that no host owns, with the MAC of the
// interface that was asked, by proxy neighbour entries of the kernel.
//
// The kernel answers only if it would forward: forwarding must be on at the interface (and proxy_ndp for IPv6, see
// Check), and the route to the address must leave by another device. So every service prefix also gets a route to the
// program end of the release pair. That route fails closed as well: a packet to a service address that reaches the
// kernel, because the XDP program is gone, ends there and nowhere else.
//
// Entries and routes carry Protocol and stay when the agent ends. There is one Proxy in a network namespace.
type Proxy struct {
	handle *netlink.Handle
	neighs *proxyTable
	blind  string // interface that the routes point to
}

// NewProxy opens a Proxy in the network namespace of the calling thread; routes for service addresses will point to the
// interface named blind, the program end of the release pair, which must exist where any are to be made.
func NewProxy(blind string) (*Proxy, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("proxy neighbours: netlink: %w", err)
	}
	n, err := newProxyTable()
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("proxy neighbours: netlink: %w", err)
	}
	return &Proxy{handle: h, neighs: n, blind: blind}, nil
}

// Close releases the sockets; entries and routes stay.
func (p *Proxy) Close() error {
	p.handle.Close()
	p.neighs.close()
	return nil
}

// SetServiceAddresses makes the forwarder answer for exactly these services on these interfaces: what is missing is
// added, what an earlier call left and is not wanted any more is removed, and what others made is not touched. A prefix
// wider than one address is answered for where it is on a client link, up to 256 addresses. On an error nothing has
// changed, unless it says otherwise. Without services everything is removed.
func (p *Proxy) SetServiceAddresses(attachments []string, services []netip.Prefix) error {
	want, err := p.plan(attachments, services)
	if err != nil {
		return fmt.Errorf("service addresses: %w", err)
	}
	have, err := p.present()
	if err != nil {
		return fmt.Errorf("service addresses: %w", err)
	}
	var undo []func() error
	add := func(do, reverse func() error) error {
		err := do()
		if err == nil {
			undo = append(undo, reverse)
		}
		return err
	}
	if err := p.addMissing(want, have, add); err != nil {
		slices.Reverse(undo)
		for _, f := range undo {
			if e := f(); e != nil {
				err = errors.Join(err, fmt.Errorf("taking back what was added: %w", e))
			}
		}
		return fmt.Errorf("service addresses: %w", err)
	}
	return p.removeUnwanted(want, have)
}

// proxyState is a set of routes (all to the blind interface) and of proxy entries.
type proxyState struct {
	routes map[netip.Prefix]struct{}
	neighs map[neighKey]struct{}
	alien  map[neighKey]struct{} // entries that others made; they answer as well
	stray  []netlink.Route       // routes of ours that do not point to the blind interface
}

// plan checks the input against the interfaces' addresses and works out what is wanted. It changes nothing.
func (p *Proxy) plan(attachments []string, services []netip.Prefix) (proxyState, error) {
	want := proxyState{routes: map[netip.Prefix]struct{}{}, neighs: map[neighKey]struct{}{}}
	own, err := p.ownAddresses()
	if err != nil {
		return want, err
	}
	for _, s := range services {
		s = s.Masked()
		if !s.IsValid() || s.Addr().IsUnspecified() || s.Addr().IsMulticast() || s.Addr().Is4In6() {
			return want, fmt.Errorf("%s is not a prefix of unicast addresses", s)
		}
		for a, iface := range own {
			if s.Contains(a) {
				return want, fmt.Errorf("%s is an address of this host (interface %s), in service prefix %s; a forwarder never owns a service address: remove it with `ip address del`",
					a, iface, s)
			}
		}
		want.routes[s] = struct{}{}
	}
	for _, name := range attachments {
		l, err := p.handle.LinkByName(name)
		if err != nil {
			return want, fmt.Errorf("interface %s: %w", name, err)
		}
		subnets, err := p.subnets(l)
		if err != nil {
			return want, err
		}
		for s := range want.routes {
			addrs, err := answered(s, subnets)
			if err != nil {
				return want, fmt.Errorf("on interface %s: %w", name, err)
			}
			for _, a := range addrs {
				want.neighs[neighKey{l.Attrs().Index, a}] = struct{}{}
			}
		}
	}
	return want, nil
}

// answered gives the addresses of a service prefix to answer for on a link with these subnets. A single address is
// answered for anywhere, as a client's mask may be wider than ours.
func answered(service netip.Prefix, subnets []netip.Prefix) ([]netip.Addr, error) {
	if service.IsSingleIP() {
		return []netip.Addr{service.Addr()}, nil
	}
	var all []netip.Addr
	for _, n := range subnets {
		if !n.Overlaps(service) {
			continue
		}
		part := service
		if n.Bits() > service.Bits() {
			part = n
		}
		if part.Addr().BitLen()-part.Bits() > 8 {
			return nil, fmt.Errorf("service prefix %s shares more than %d addresses with the client subnet %s; give single addresses, or move the service out of the subnet",
				service, maxExpansion, n)
		}
		for a := part.Addr(); part.Contains(a); a = a.Next() {
			all = append(all, a)
		}
	}
	return all, nil
}

func (p *Proxy) ownAddresses() (map[netip.Addr]string, error) {
	own := map[netip.Addr]string{}
	links, err := dump(p.handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list of interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return p.handle.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list of addresses: %w", err)
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			own[ip.Unmap()] = names[a.LinkIndex]
		}
	}
	return own, nil
}

func (p *Proxy) subnets(l netlink.Link) ([]netip.Prefix, error) {
	addrs, err := dump(func() ([]netlink.Addr, error) { return p.handle.AddrList(l, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("addresses of interface %s: %w", l.Attrs().Name, err)
	}
	var subnets []netip.Prefix
	for _, a := range addrs {
		if n, ok := prefixOf(a.IPNet); ok {
			subnets = append(subnets, n.Masked())
		}
	}
	return subnets, nil
}

// present reads what is there.
func (p *Proxy) present() (proxyState, error) {
	s := proxyState{routes: map[netip.Prefix]struct{}{}, neighs: map[neighKey]struct{}{}, alien: map[neighKey]struct{}{}}
	at, err := p.blindIndex()
	if err != nil {
		return s, err
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := dump(func() ([]netlink.Route, error) {
			return p.handle.RouteListFiltered(family, &netlink.Route{Protocol: Protocol, Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return s, fmt.Errorf("list of routes: %w", err)
		}
		for _, r := range routes {
			if n, ok := prefixOf(r.Dst); ok && at != 0 && r.LinkIndex == at {
				s.routes[n] = struct{}{}
			} else {
				s.stray = append(s.stray, r)
			}
		}
		if err := p.neighs.list(family, func(key neighKey, protocol uint8) {
			if protocol == Protocol {
				s.neighs[key] = struct{}{}
			} else {
				s.alien[key] = struct{}{}
			}
		}); err != nil {
			return s, fmt.Errorf("list of proxy neighbours: %w", err)
		}
	}
	return s, nil
}

// blindIndex gives the index of the blind interface, or 0 if it is gone, with every route that pointed to it.
func (p *Proxy) blindIndex() (int, error) {
	blind, err := p.handle.LinkByName(p.blind)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", p.blind, err)
	}
	return blind.Attrs().Index, nil
}

// Count gives how many routes and proxy entries there are that this or an earlier Proxy made.
func (p *Proxy) Count() (routes, entries int, err error) {
	have, err := p.present()
	if err != nil {
		return 0, 0, fmt.Errorf("service addresses: %w", err)
	}
	return len(have.routes) + len(have.stray), len(have.neighs), nil
}

// addMissing adds routes before entries, since an entry answers only beside its route.
func (p *Proxy) addMissing(want, have proxyState, add func(do, reverse func() error) error) error {
	for n := range want.routes {
		if _, ok := have.routes[n]; ok {
			continue
		}
		r, err := p.route(n)
		if err != nil {
			return err
		}
		err = add(func() error { return p.handle.RouteAdd(r) }, func() error { return p.handle.RouteDel(r) })
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("there is a route to %s already, which this forwarder did not make; remove it with `ip route del %s`", n, n)
		}
		if err != nil {
			return fmt.Errorf("route to %s on %s: %w", n, p.blind, err)
		}
	}
	for key := range want.neighs {
		if _, ok := have.neighs[key]; ok {
			continue
		}
		if _, ok := have.alien[key]; ok {
			continue
		}
		if err := add(func() error { return p.neighs.add(key) }, func() error { return p.neighs.remove(key) }); err != nil {
			return fmt.Errorf("proxy neighbour %s on interface %d: %w", key.addr, key.index, err)
		}
	}
	return nil
}

// removeUnwanted removes what is ours and not wanted; it tries all, and a thing that has gone already is no error.
func (p *Proxy) removeUnwanted(want, have proxyState) error {
	var failed []error
	for key := range have.neighs {
		if _, ok := want.neighs[key]; ok {
			continue
		}
		if err := p.neighs.remove(key); err != nil && !gone(err) {
			failed = append(failed, fmt.Errorf("service addresses: proxy neighbour %s stays on interface %d: %w", key.addr, key.index, err))
		}
	}
	unwanted := have.stray
	for n := range have.routes {
		if _, ok := want.routes[n]; ok {
			continue
		}
		r, err := p.route(n)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		unwanted = append(unwanted, *r)
	}
	for _, r := range unwanted {
		if err := p.handle.RouteDel(&r); err != nil && !gone(err) {
			failed = append(failed, fmt.Errorf("service addresses: route to %s stays: %w", r.Dst, err))
		}
	}
	return errors.Join(failed...)
}

func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}

func (p *Proxy) route(n netip.Prefix) (*netlink.Route, error) {
	l, err := p.handle.LinkByName(p.blind)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", p.blind, err)
	}
	r := &netlink.Route{
		LinkIndex: l.Attrs().Index, Protocol: Protocol, Table: unix.RT_TABLE_MAIN,
		Dst: &net.IPNet{IP: n.Addr().AsSlice(), Mask: net.CIDRMask(n.Bits(), n.Addr().BitLen())},
	}
	if n.Addr().Is4() {
		r.Scope = netlink.SCOPE_LINK
	}
	return r, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	if bits == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, ones), true
}
