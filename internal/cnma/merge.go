package cnma

import (
	"maps"
	"slices"

	"github.com/margay-net/margay/cats"
)

// merge gives the topology of all sources, with next in the place of what its source said before, in the order of names.
// The error names every node and link at fault.
func merge(sources map[string]Topology, next Topology) (nodes []cats.Node, links []cats.Link, err error) {
	all := maps.Clone(sources)
	all[next.Source] = next
	var parts []cats.TopologyPart
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, cats.TopologyPart{Source: name, Nodes: all[name].Nodes, Links: all[name].Links})
	}
	joined, lines, err := cats.JoinTopologies(parts)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range joined {
		nodes = append(nodes, n.Node)
	}
	for _, l := range lines {
		links = append(links, l.Link)
	}
	return nodes, links, nil
}
