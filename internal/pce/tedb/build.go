package tedb

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-net/margay/cats"
)

// maxProblems is how many problems one error lists; a longer list is cut, with the number of the rest.
const maxProblems = 20

// Build makes a snapshot of what all the sources say together. A node may come from several sources, so that domains
// meet in it, and they must agree on its SID; a link comes from one. Where anything is wrong there is no snapshot, and
// the error names every node or link that is, wrapping ReasonMalformed, ReasonDuplicate or ReasonRange.
func Build(generation uint64, sources ...Source) (*Snapshot, error) {
	b := builder{generation: generation, nodes: map[string]*node{}}
	for i, s := range sources {
		b.addNodes(uint16(i), s)
	}
	b.numberNodes()
	for i, s := range sources {
		b.addLinks(uint16(i), s)
	}
	b.sortLinks()
	if err := b.failure(); err != nil {
		return nil, err
	}
	return b.snapshot(sources), nil
}

type node struct {
	name   string
	sid    netip.Addr
	origin uint16
	source string
	number int32
}

type link struct {
	value    cats.Link
	from, to int32
	origin   uint16
	source   string
}

type builder struct {
	generation uint64
	nodes      map[string]*node
	order      []*node
	links      []link
	problems   []error
	unlisted   int
}

func (b *builder) problem(format string, args ...any) {
	if len(b.problems) == maxProblems {
		b.unlisted++
		return
	}
	b.problems = append(b.problems, fmt.Errorf(format, args...))
}

func (b *builder) failure() error {
	if b.unlisted > 0 {
		b.problems = append(b.problems, fmt.Errorf("and %d more: %w", b.unlisted, cats.ReasonMalformed))
	}
	return errors.Join(b.problems...)
}

func (b *builder) addNodes(origin uint16, s Source) {
	own := make(map[string]bool, len(s.Nodes))
	for _, n := range s.Nodes {
		if own[n.Name] {
			b.problem("%s: node %s is given twice: %w", s.Name, n.Name, cats.ReasonDuplicate)
			continue
		}
		own[n.Name] = true
		if err := n.Check(); err != nil {
			b.problem("%s: %w", s.Name, err)
			n.SID = netip.Addr{} // the node exists; its links need no second complaint
		}
		b.mergeNode(origin, s.Name, n)
	}
}

func (b *builder) mergeNode(origin uint16, source string, n cats.Node) {
	known := b.nodes[n.Name]
	switch {
	case known == nil:
		b.nodes[n.Name] = &node{name: n.Name, sid: n.SID, origin: origin, source: source}
	case !known.sid.IsValid():
		known.sid, known.origin, known.source = n.SID, origin, source
	case n.SID.IsValid() && n.SID != known.sid:
		b.problem("node %s: SID %s from %s, but %s from %s: %w", n.Name, known.sid, known.source, n.SID, source,
			cats.ReasonIdentityConflict)
	}
}

func (b *builder) numberNodes() {
	if len(b.nodes) > MaxNodes {
		b.problem("%d nodes are more than %d: %w", len(b.nodes), MaxNodes, cats.ReasonRange)
	}
	for _, n := range b.nodes {
		b.order = append(b.order, n)
	}
	slices.SortFunc(b.order, func(x, y *node) int { return cmp.Compare(x.name, y.name) })
	owners := make(map[netip.Addr]string, len(b.order))
	for i, n := range b.order {
		n.number = int32(i)
		if owner, taken := owners[n.sid]; taken && n.sid.IsValid() {
			b.problem("node %s: SID %s is also that of %s: %w", n.name, n.sid, owner, cats.ReasonDuplicate)
		}
		owners[n.sid] = n.name
	}
}

func (b *builder) addLinks(origin uint16, s Source) {
	for _, l := range s.Links {
		if err := l.Check(); err != nil {
			b.problem("%s: %w", s.Name, err)
			continue
		}
		from, to := b.nodes[l.From], b.nodes[l.To]
		if from == nil {
			b.unknownEnd(s.Name, l, l.From)
		}
		if to == nil {
			b.unknownEnd(s.Name, l, l.To)
		}
		if from != nil && to != nil {
			b.links = append(b.links, link{value: l, from: from.number, to: to.number, origin: origin, source: s.Name})
		}
	}
}

func (b *builder) unknownEnd(source string, l cats.Link, end string) {
	b.problem("%s: link %s: node %s is not in the topology: %w", source, l, end, cats.ReasonMalformed)
}

func (b *builder) sortLinks() {
	slices.SortStableFunc(b.links, func(x, y link) int {
		return cmp.Or(cmp.Compare(x.to, y.to), cmp.Compare(x.from, y.from))
	})
	for i := 1; i < len(b.links); i++ {
		x, y := &b.links[i-1], &b.links[i]
		if x.to != y.to || x.from != y.from {
			continue
		}
		by := "twice by " + x.source
		if x.source != y.source {
			by = "by " + x.source + " and by " + y.source
		}
		b.problem("link %s is given %s: %w", x.value, by, cats.ReasonDuplicate)
	}
}

func (b *builder) snapshot(sources []Source) *Snapshot {
	s := &Snapshot{generation: b.generation}
	for _, o := range sources {
		s.origins = append(s.origins, Origin{Name: o.Name, Measured: o.Measured, TTL: o.TTL})
	}
	for _, n := range b.order {
		s.names = append(s.names, n.name)
		s.sids = append(s.sids, n.sid)
		s.nodeOrigin = append(s.nodeOrigin, n.origin)
	}
	for _, l := range b.links {
		if l.value.LossPPM == cats.MaxLossPPM {
			continue
		}
		s.from, s.to = append(s.from, l.from), append(s.to, l.to)
		s.values = append(s.values, l.value)
		s.linkOrigin = append(s.linkOrigin, l.origin)
		s.bandwidth = append(s.bandwidth, l.value.BandwidthKbps)
		for m, v := range [Metrics]uint32{l.value.DelayUS, l.value.JitterUS, l.value.LossPPM, l.value.TEMetric, 1} {
			s.weights[m] = append(s.weights[m], weight(Metric(m), v))
		}
	}
	s.adjoin()
	return s
}

// adjoin makes the lists of links into and out of each node by counting.
func (s *Snapshot) adjoin() {
	s.in, s.out = make([]int32, len(s.names)+1), make([]int32, len(s.names)+1)
	for l := range s.to {
		s.in[s.to[l]+1]++
		s.out[s.from[l]+1]++
	}
	for n := range s.names {
		s.in[n+1] += s.in[n]
		s.out[n+1] += s.out[n]
	}
	s.outLinks = make([]int32, len(s.to))
	filled := slices.Clone(s.out)
	for l, f := range s.from {
		s.outLinks[filled[f]] = int32(l)
		filled[f]++
	}
}
