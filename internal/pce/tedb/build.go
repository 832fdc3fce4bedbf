package tedb

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/margay-net/margay/cats"
)

// Build makes a snapshot of what all the sources say together, as cats.JoinTopologies does.
func Build(generation uint64, sources ...Source) (*Snapshot, error) {
	parts := make([]cats.TopologyPart, len(sources))
	for i, s := range sources {
		parts[i] = cats.TopologyPart{Source: s.Name, Nodes: s.Nodes, Links: s.Links}
	}
	nodes, links, err := cats.JoinTopologies(parts)
	if err != nil {
		return nil, err
	}
	if len(nodes) > MaxNodes {
		return nil, fmt.Errorf("%d nodes are more than %d: %w", len(nodes), MaxNodes, cats.ReasonRange)
	}
	slices.SortFunc(links, func(x, y cats.JoinedLink) int {
		return cmp.Or(cmp.Compare(x.Head, y.Head), cmp.Compare(x.Tail, y.Tail))
	})
	s := &Snapshot{generation: generation}
	for _, o := range sources {
		s.origins = append(s.origins, Origin{Name: o.Name, Measured: o.Measured, TTL: o.TTL})
	}
	s.take(nodes, links)
	s.adjoin()
	return s, nil
}

// take writes nodes and links, but those that lose everything, into the arrays.
func (s *Snapshot) take(nodes []cats.JoinedNode, links []cats.JoinedLink) {
	for _, n := range nodes {
		s.names = append(s.names, n.Name)
		s.sids = append(s.sids, n.SID)
		s.nodeOrigin = append(s.nodeOrigin, uint16(n.Part))
	}
	for _, l := range links {
		if l.LossPPM == cats.MaxLossPPM {
			continue
		}
		s.from, s.to = append(s.from, int32(l.Tail)), append(s.to, int32(l.Head))
		s.values = append(s.values, l.Link)
		s.linkOrigin = append(s.linkOrigin, uint16(l.Part))
		s.bandwidth = append(s.bandwidth, l.BandwidthKbps)
		for m, v := range [Metrics]uint32{l.DelayUS, l.JitterUS, l.LossPPM, l.TEMetric, 1} {
			s.weights[m] = append(s.weights[m], weight(Metric(m), v))
		}
	}
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
