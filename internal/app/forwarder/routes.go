package forwarder

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/datapath/kernel"
	core "github.com/margay-net/margay/internal/forwarder"
)

// silence is after how long a next hop whose neighbour does not answer counts as lost.
const silence = 3 * time.Second

// routes keeps the next hops and paths of the data plane: each is there once, as long as something refers to it, and
// follows what the kernel says of its neighbour.
type routes struct {
	plane    *datapath.Datapath
	resolver *kernel.Resolver
	source   netip.Addr // outer source of paths

	hops   map[netip.Addr]*hop
	hopIDs *ids
	paths  map[string]*path
	pathID *ids
	full   func(table string)    // is told of each refusal for want of a free number
	left   map[netip.Addr]uint32 // numbers of next hops that an earlier run left in use

	// From adopt to sweep. No number gets free then: what is in the data plane may refer to it still.
	adopting bool

	unresolved map[netip.Addr]cats.Instant // since when
	changes    []core.PathChange           // that the core has not been told
	moved      bool                        // some next hop was found or lost
	fault      error                       // something could not be taken back: the data plane is not as it should be
}

// hop is the next hop of one destination.
type hop struct {
	id      uint32 // in the data plane
	uses    int
	starts  int  // paths that begin at the destination
	adopted bool // what the data plane has is of an earlier run, and good until the kernel says more
	found   kernel.Hop
	up      bool
	detail  string
}

// path is a path of the data plane.
type path struct {
	id    uint32
	uses  int
	first netip.Addr // destination whose next hop it takes; the zero Addr on a native path, which the kernel routes
}

func newRoutes(plane *datapath.Datapath, resolver *kernel.Resolver, source netip.Addr, limits datapath.Config, full func(table string)) *routes {
	return &routes{
		plane: plane, resolver: resolver, source: source, full: full,
		hops: make(map[netip.Addr]*hop), hopIDs: newIDs(limits.NextHops),
		paths: make(map[string]*path), pathID: newIDs(limits.Paths), left: make(map[netip.Addr]uint32),
		unresolved: make(map[netip.Addr]cats.Instant),
	}
}

// The tables whose numbers can run out.
const (
	tablePaths    = "paths"
	tableNextHops = "next-hops"
)

// number gives a free number of a table, or an error that wraps ReasonTableFull.
func (r *routes) number(table string, from *ids) (uint32, error) {
	id, ok := from.get()
	if !ok {
		r.full(table)
		return 0, fmt.Errorf("the data plane's table of %s is full: %w", table, cats.ReasonTableFull)
	}
	return id, nil
}

// useHop gives the number of the next hop toward a destination, and keeps it until dropHop.
func (r *routes) useHop(now cats.Instant, destination netip.Addr) (uint32, error) {
	h := r.hops[destination]
	if h == nil {
		id, adopted := r.left[destination]
		if delete(r.left, destination); !adopted {
			var err error
			if id, err = r.number(tableNextHops, r.hopIDs); err != nil {
				return 0, fmt.Errorf("next hop of %s: %w", destination, err)
			}
		}
		h = &hop{id: id, adopted: adopted}
		r.hops[destination] = h
	}
	if h.uses++; h.uses > 1 {
		return h.id, nil
	}
	found, err := r.resolver.Watch(destination)
	if err == nil {
		err = r.follow(now, found[0])
	}
	if err != nil {
		r.dropHop(destination)
		return 0, err
	}
	return h.id, nil
}

// dropHop undoes one useHop.
func (r *routes) dropHop(destination netip.Addr) {
	h := r.hops[destination]
	if h.uses--; h.uses == 0 && !r.adopting {
		r.endHop(destination, h)
	}
}

func (r *routes) endHop(destination netip.Addr, h *hop) {
	delete(r.hops, destination)
	delete(r.unresolved, destination)
	r.fault = errors.Join(r.fault, r.resolver.Forget(destination))
	r.fault = errors.Join(r.fault, r.plane.PutNextHop(h.id, datapath.NextHop{}))
	r.hopIDs.put(h.id)
}

// follow puts what the kernel says of a destination into the data plane.
func (r *routes) follow(now cats.Instant, found kernel.Hop) error {
	h := r.hops[found.Destination]
	if h == nil {
		return nil // dropped meanwhile
	}
	h.found = found
	if err := r.put(h); err != nil {
		return err
	}
	if found.State == kernel.HopUnresolved {
		if _, waits := r.unresolved[found.Destination]; !waits {
			r.unresolved[found.Destination] = now
		}
	} else {
		delete(r.unresolved, found.Destination)
	}
	switch found.State {
	case kernel.HopNoRoute, kernel.HopDown:
		r.set(found.Destination, h, false, found.String())
	case kernel.HopUnresolved: // as it was, until it is silent for too long
		if h.detail == "" {
			r.set(found.Destination, h, true, found.String())
		}
	default:
		r.set(found.Destination, h, true, found.String())
	}
	return nil
}

// set notes whether packets to a destination can be sent, and tells the core where paths begin there.
func (r *routes) set(destination netip.Addr, h *hop, up bool, detail string) {
	was := h.up
	h.up, h.detail = up, detail
	if was == up {
		return
	}
	r.moved = true
	if h.starts > 0 {
		r.changes = append(r.changes, core.PathChange{Segment: destination, Up: up, Detail: detail})
	}
}

// tick gives up next hops whose neighbours stay silent.
func (r *routes) tick(now cats.Instant) {
	for destination, since := range r.unresolved {
		if h := r.hops[destination]; h.up && now.Sub(since) >= silence {
			r.set(destination, h, false, fmt.Sprintf("the neighbour toward %s does not answer", destination))
		}
	}
}

// isUp tells whether packets to a destination in use can be sent.
func (r *routes) isUp(destination netip.Addr) bool {
	h := r.hops[destination]
	return h != nil && h.up
}

// put writes a next hop into the data plane. One that is not resolved, or leaves by an interface which the program cannot
// redirect to, is left to the kernel.
func (r *routes) put(h *hop) error {
	if h.adopted && h.found.State == kernel.HopUnresolved {
		return nil
	}
	h.adopted = false
	to := datapath.NextHop{}
	if f := &h.found; f.Resolved() && r.redirects(f.Index) {
		to = datapath.NextHop{Interface: f.Index, Source: datapath.MAC(f.Source), Target: datapath.MAC(f.Neighbor), MTU: uint16(min(f.MTU, 65535))}
	}
	return r.plane.PutNextHop(h.id, to)
}

// redirects tells whether the program can send frames out of an interface: it runs there, in the driver.
func (r *routes) redirects(index int) bool {
	for _, p := range r.plane.Ports() {
		if p.Index == index {
			return p.Mode == datapath.ModeNative
		}
	}
	return false
}

// portsChanged writes every next hop again.
func (r *routes) portsChanged() error {
	var errs []error
	for _, h := range r.hops {
		errs = append(errs, r.put(h))
	}
	return errors.Join(errs...)
}

// pathKey names a path by what it does.
func pathKey(kind cats.PathKind, segments []netip.Addr) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", kind)
	for _, s := range segments {
		b.WriteByte(' ')
		b.WriteString(s.String())
	}
	return b.String()
}

// usePath gives the number of a path, and keeps it until dropPath.
func (r *routes) usePath(now cats.Instant, p *cats.Path) (uint32, error) {
	key := pathKey(p.Kind, p.Segments)
	known := r.paths[key]
	if known != nil && known.uses > 0 {
		known.uses++
		return known.id, nil
	}
	adopted := known != nil
	if !adopted {
		id, err := r.number(tablePaths, r.pathID)
		if err != nil {
			return 0, err
		}
		known = &path{id: id}
		if p.Kind == cats.PathSRv6 {
			known.first = p.Segments[0]
		}
	}
	if err := r.putPath(now, known, p); err != nil {
		if !adopted { // else it is in the data plane, and may be in use there, until sweep
			r.pathID.put(known.id)
		}
		return 0, err
	}
	r.paths[key] = known
	known.uses = 1
	return known.id, nil
}

// putPath writes a path into the data plane, and takes hold of the next hop where it begins.
func (r *routes) putPath(now cats.Instant, known *path, p *cats.Path) error {
	put := datapath.Path{Kind: p.Kind, Segments: p.Segments}
	if !known.first.IsValid() {
		return r.plane.PutPath(known.id, put)
	}
	id, err := r.useHop(now, known.first)
	if err != nil {
		return err
	}
	put.Source, put.NextHop = r.source, id
	if err := r.plane.PutPath(known.id, put); err != nil {
		r.dropHop(known.first)
		return err
	}
	r.begin(known.first)
	return nil
}

// begin notes that a path begins at a destination; the core has to know if that cannot be reached now.
func (r *routes) begin(destination netip.Addr) {
	h := r.hops[destination]
	if h.starts++; h.starts == 1 && !h.up {
		r.changes = append(r.changes, core.PathChange{Segment: destination, Detail: h.detail})
	}
}

// dropPath undoes one usePath.
func (r *routes) dropPath(p *cats.Path) {
	key := pathKey(p.Kind, p.Segments)
	known := r.paths[key]
	if known.uses--; known.uses > 0 {
		return
	}
	if !r.adopting {
		r.endPath(key, known)
	}
	if !known.first.IsValid() {
		return
	}
	h := r.hops[known.first]
	if h.starts--; h.starts == 0 && !h.up {
		r.changes = append(r.changes, core.PathChange{Segment: known.first, Up: true}) // nothing begins there any more
	}
	r.dropHop(known.first)
}

func (r *routes) endPath(key string, p *path) {
	delete(r.paths, key)
	r.fault = errors.Join(r.fault, r.plane.DeletePath(p.id))
	r.pathID.put(p.id)
}
