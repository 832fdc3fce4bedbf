package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-net/margay/internal/config"
)

// edge is one direction of a core link.
type edge struct {
	from, to config.Name
	delay    uint32 // µs
	out      End    // at from
	in       End    // at to
}

// coreEdges lists the directions of all links between forwarders and routers.
func (t *Topology) coreEdges() []edge {
	var all []edge
	for _, l := range t.Links {
		a, b := t.node(l.A.Node), t.node(l.B.Node)
		if a == nil || b == nil || !a.Role.core() || !b.Role.core() {
			continue
		}
		all = append(all, edge{a.Name, b.Name, l.DelayUS, l.A, l.B})
		if !l.OneWay {
			all = append(all, edge{b.Name, a.Name, l.backDelay(), l.B, l.A})
		}
	}
	return all
}

func (l *Link) backDelay() uint32 {
	if l.BackDelayUS != 0 {
		return l.BackDelayUS
	}
	return l.DelayUS
}

// hop is the first step of the least-delay path to a node.
type hop struct {
	edge  edge
	delay uint64
}

// firstHops gives the first hop from a core node to each other one that it can reach; equal paths are decided by the
// names of the nodes, so that the same file always gives the same routes.
func firstHops(edges []edge, from config.Name) map[config.Name]hop {
	best := map[config.Name]hop{}
	done := map[config.Name]bool{from: true}
	relax := func(at config.Name, base hop) {
		for _, e := range edges {
			if e.from != at || done[e.to] {
				continue
			}
			h := hop{base.edge, base.delay + uint64(e.delay)}
			if at == from {
				h.edge = e
			}
			if old, ok := best[e.to]; !ok || h.delay < old.delay {
				best[e.to] = h
			}
		}
	}
	relax(from, hop{})
	for {
		next, ok := nearest(best, done)
		if !ok {
			return best
		}
		done[next] = true
		relax(next, best[next])
	}
}

func nearest(best map[config.Name]hop, done map[config.Name]bool) (config.Name, bool) {
	var open []config.Name
	for name := range best {
		if !done[name] {
			open = append(open, name)
		}
	}
	if len(open) == 0 {
		return "", false
	}
	return slices.MinFunc(open, func(a, b config.Name) int {
		return cmp.Or(cmp.Compare(best[a].delay, best[b].delay), cmp.Compare(a, b))
	}), true
}

// checkReach tells which forwarders cannot reach which, at the forwarder that cannot be reached.
func (t *Topology) checkReach() []config.Problem {
	var problems []config.Problem
	edges := t.coreEdges()
	forwarders := t.role(Forwarder)
	reach := map[config.Name]map[config.Name]hop{}
	for _, f := range forwarders {
		reach[f.Name] = firstHops(edges, f.Name)
	}
	for i, f := range forwarders {
		for _, g := range forwarders[i+1:] {
			_, there := reach[f.Name][g.Name]
			_, back := reach[g.Name][f.Name]
			at := t.nodePath(g.Name)
			switch {
			case !there && !back:
				problems = append(problems, config.At(at, "forwarder %s and forwarder %s cannot reach each other: a link is missing between them or their routers", f.Name, g.Name))
			case !there:
				problems = append(problems, config.At(at, "the path is one-way: forwarder %s reaches %s, but not %s it; a flow needs both directions", g.Name, f.Name, f.Name))
			case !back:
				problems = append(problems, config.At(at, "the path is one-way: forwarder %s reaches %s, but not %s it; a flow needs both directions", f.Name, g.Name, g.Name))
			}
		}
	}
	return problems
}

// nodePath gives the place of a node in the file, for messages.
func (t *Topology) nodePath(name config.Name) string {
	for i := range t.Nodes {
		if t.Nodes[i].Name == name {
			return fmt.Sprintf("nodes[%d]", i)
		}
	}
	return "nodes"
}

// gateway is the address of an end that its neighbour routes to: the first IPv6 address, or IPv4 address.
func (e *End) gateway(v6 bool) (netip.Addr, bool) {
	for _, p := range e.Addresses {
		if p.Addr().Is6() == v6 {
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}
