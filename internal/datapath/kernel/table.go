package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// table is the resolver's state: a mirror of the kernel's links and neighbours, and the watched destinations. Routes are
// not mirrored: the kernel is asked, so that rules, metrics and next-hop objects count exactly as they do for itself.
type table struct {
	handle        *netlink.Handle
	links         map[int]link
	neighs        map[neighKey]neighEntry
	watched       map[netip.Addr]Hop
	users         map[neighKey]map[netip.Addr]struct{} // destinations by the neighbour they need
	changed       []Hop                                // what to deliver, one entry a destination
	changedAt     map[netip.Addr]int                   // its place in changed
	unresolved    map[neighKey]struct{}                // neighbours to ask for again
	routesChanged bool
	stale         bool // the mirror may miss something: read it anew
	overruns      int  // how often notifications were lost
}

func newTable() (*table, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	t := &table{
		handle: h, watched: map[netip.Addr]Hop{}, users: map[neighKey]map[netip.Addr]struct{}{},
		changedAt: map[netip.Addr]int{}, unresolved: map[neighKey]struct{}{},
	}
	if err := t.read(); err != nil {
		h.Close()
		return nil, err
	}
	return t, nil
}

func (t *table) close() { t.handle.Close() }

// read replaces the mirror by what the kernel has now.
func (t *table) read() error {
	links, err := dump(t.handle.LinkList)
	if err != nil {
		return fmt.Errorf("list of interfaces: %w", err)
	}
	neighs, err := dump(func() ([]netlink.Neigh, error) { return t.handle.NeighList(0, unix.AF_UNSPEC) })
	if err != nil {
		return fmt.Errorf("list of neighbours: %w", err)
	}
	t.links, t.neighs = make(map[int]link, len(links)), make(map[neighKey]neighEntry, len(neighs))
	for _, l := range links {
		t.links[l.Attrs().Index] = linkOf(l)
	}
	for i := range neighs {
		if key, entry, ok := neighOf(&neighs[i]); ok {
			t.neighs[key] = entry
		}
	}
	return nil
}

// dump repeats a listing that changed under the kernel's hands.
func dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range 5 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, err
}

func (t *table) apply(n notice) {
	switch n.kind {
	case noticeRoutes:
		t.routesChanged = true
	case noticeLink:
		t.links[n.index] = n.link
		t.routesChanged = true // the kernel drops IPv4 routes of a device that goes down without a word
	case noticeLinkGone:
		delete(t.links, n.index)
		t.routesChanged = true
	case noticeNeigh:
		t.neighs[n.neigh] = n.entry
		t.refresh(n.neigh)
	case noticeNeighGone:
		delete(t.neighs, n.neigh)
		t.refresh(n.neigh)
	case noticeOverrun:
		t.overruns++
		t.resync()
	}
}

// resync reads everything anew after lost notifications.
func (t *table) resync() {
	t.stale = t.read() != nil
	if !t.stale {
		t.resolveAll()
	}
}

// wantsRetry tells whether anything must be tried again after a while.
func (t *table) wantsRetry() bool { return t.stale || len(t.unresolved) > 0 }

func (t *table) retry() {
	if t.stale {
		t.resync()
	}
	for key := range t.unresolved {
		// Where it failed, the hop has said so already.
		_ = t.manage(key, true)
	}
}

func (t *table) watch(dst netip.Addr) Hop {
	if h, ok := t.watched[dst]; ok {
		return h
	}
	h := t.look(dst)
	t.store(h)
	t.undeliver(dst) // it is given to the caller now
	return h
}

func (t *table) forget(dst netip.Addr) {
	h, ok := t.watched[dst]
	if !ok {
		return
	}
	delete(t.watched, dst)
	t.leave(h)
	t.undeliver(dst)
}

// resolveAll looks every destination up again.
func (t *table) resolveAll() {
	t.routesChanged = false
	for dst := range t.watched {
		t.store(t.look(dst))
	}
}

// refresh completes the destinations that use a neighbour by its present entry; their routes did not change.
func (t *table) refresh(key neighKey) {
	for dst := range t.users[key] {
		t.store(t.complete(t.watched[dst]))
	}
}

// look asks the kernel for the route, then completes the hop from the mirror.
func (t *table) look(dst netip.Addr) Hop {
	h := Hop{Destination: dst}
	routes, err := t.handle.RouteGet(dst.AsSlice())
	if err != nil || len(routes) == 0 {
		h.Detail = routeError(err)
		return h
	}
	r := routes[0]
	switch {
	case r.Type == unix.RTN_LOCAL:
		h.State, h.Detail = HopLocal, "an address of this host"
		return h
	case r.Type != unix.RTN_UNICAST:
		h.Detail = "its route is not a unicast route"
		return h
	}
	h.Index, h.MTU, h.Gateway = r.LinkIndex, r.MTU, dst
	gw := r.Gw
	if via, ok := r.Via.(*netlink.Via); ok {
		gw = via.Addr
	}
	if a, ok := netip.AddrFromSlice(gw); ok {
		h.Gateway = a.Unmap()
	}
	if l, ok := t.links[h.Index]; ok && (h.MTU == 0 || h.MTU > l.mtu) {
		h.MTU = l.mtu
	}
	return t.complete(h)
}

func routeError(err error) string {
	switch {
	case err == nil, errors.Is(err, unix.ENETUNREACH):
		return "no route to it"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EINVAL):
		return "its route says unreachable or blackhole"
	case errors.Is(err, unix.EACCES):
		return "its route says prohibit"
	}
	return err.Error()
}

// complete fills in link and neighbour of a hop whose Index and Gateway are set, from the mirror.
func (t *table) complete(h Hop) Hop {
	l, ok := t.links[h.Index]
	if !ok {
		return Hop{Destination: h.Destination, Detail: "its interface is gone"}
	}
	h.Interface, h.Source, h.Neighbor = l.name, l.mac, MAC{}
	entry := t.neighs[neighKey{h.Index, h.Gateway}]
	switch {
	case !l.up:
		h.State = HopDown
	case entry.valid():
		h.State, h.Neighbor = HopResolved, entry.mac
	default:
		h.State = HopUnresolved
	}
	return h
}

// store replaces a destination's hop, keeps the neighbour it needs alive and notes what to deliver.
func (t *table) store(h Hop) {
	old, had := t.watched[h.Destination]
	key := h.needs()
	ask := false
	if !had || old.needs() != key {
		t.leave(old)
		ask = t.join(key, h.Destination)
	}
	if h.State == HopUnresolved {
		_, asked := t.unresolved[key]
		ask = ask || !asked
		t.unresolved[key] = struct{}{}
	} else {
		delete(t.unresolved, key)
	}
	if ask {
		if err := t.manage(key, true); err != nil && h.State == HopUnresolved {
			h.Detail = "the kernel cannot be asked for the neighbour: " + err.Error()
		}
	}
	t.watched[h.Destination] = h
	if old != h {
		t.deliver(h)
	}
}

// needs is the neighbour that the hop needs; the zero key if it needs none.
func (h Hop) needs() neighKey {
	if h.State < HopDown {
		return neighKey{}
	}
	return neighKey{h.Index, h.Gateway}
}

// join notes that a destination needs a neighbour, and tells whether it is the first.
func (t *table) join(key neighKey, dst netip.Addr) bool {
	if key.index == 0 {
		return false
	}
	first := t.users[key] == nil
	if first {
		t.users[key] = map[netip.Addr]struct{}{}
	}
	t.users[key][dst] = struct{}{}
	return first
}

// leave undoes join, and lets the kernel age a neighbour that nothing needs any more.
func (t *table) leave(h Hop) {
	key := h.needs()
	if key.index == 0 {
		return
	}
	delete(t.users[key], h.Destination)
	if len(t.users[key]) > 0 {
		return
	}
	delete(t.users, key)
	delete(t.unresolved, key)
	if _, known := t.neighs[key]; known {
		// It fails only where the entry has just gone with its interface.
		_ = t.manage(key, false)
	}
}

// manage asks the kernel to resolve a neighbour now and, with keep, to keep it resolved.
func (t *table) manage(key neighKey, keep bool) error {
	if t.neighs[key].state&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 {
		return nil // the mark would make a static entry age
	}
	n := netlink.Neigh{LinkIndex: key.index, IP: key.addr.AsSlice(), Flags: netlink.NTF_USE}
	if keep {
		n.Flags, n.FlagsExt = 0, netlink.NTF_EXT_MANAGED
	}
	return t.handle.NeighSet(&n)
}

func (t *table) deliver(h Hop) {
	if i, ok := t.changedAt[h.Destination]; ok {
		t.changed[i] = h
		return
	}
	t.changedAt[h.Destination] = len(t.changed)
	t.changed = append(t.changed, h)
}

func (t *table) undeliver(dst netip.Addr) {
	i, ok := t.changedAt[dst]
	if !ok {
		return
	}
	last := len(t.changed) - 1
	t.changed[i] = t.changed[last]
	t.changedAt[t.changed[i].Destination] = i
	t.changed = t.changed[:last]
	delete(t.changedAt, dst)
}

// delivered starts a new batch; the reader keeps the old one.
func (t *table) delivered() {
	t.changed = nil
	clear(t.changedAt)
}
