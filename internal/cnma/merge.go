package cnma

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-net/margay/cats"
)

// merge gives the topology of all sources, with next in the place of what its source said before, in the order of names.
// Sources may share a node, so that what they cover meets there, and must agree on its SID; each link is of one source. The
// error names every node and link at fault.
func merge(sources map[string]Topology, next Topology) ([]cats.Node, []cats.Link, error) {
	all := maps.Clone(sources)
	all[next.Source] = next
	m := merger{nodes: map[string]cats.Node{}, links: map[[2]string]bool{}}
	names := slices.Sorted(maps.Keys(all))
	for _, name := range names {
		m.addNodes(all[name].Nodes)
	}
	nodes := slices.SortedFunc(maps.Values(m.nodes), func(a, b cats.Node) int { return cmp.Compare(a.Name, b.Name) })
	m.compareSIDs(nodes)
	for _, name := range names {
		m.addLinks(all[name].Links)
	}
	if err := errors.Join(m.problems...); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(m.ordered, func(a, b cats.Link) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return nodes, m.ordered, nil
}

type merger struct {
	nodes    map[string]cats.Node
	links    map[[2]string]bool
	ordered  []cats.Link
	problems []error
}

func (m *merger) problem(format string, args ...any) {
	m.problems = append(m.problems, fmt.Errorf(format, args...))
}

func (m *merger) addNodes(nodes []cats.Node) {
	own := map[string]bool{}
	for _, n := range nodes {
		known := m.nodes[n.Name]
		switch err := n.Check(); {
		case err != nil:
			m.problems = append(m.problems, err)
		case own[n.Name]:
			m.problem("node %s is given twice: %w", n.Name, cats.ReasonDuplicate)
		case known.SID.IsValid() && n.SID.IsValid() && known.SID != n.SID:
			m.problem("node %s has SID %s and SID %s: %w", n.Name, known.SID, n.SID, cats.ReasonIdentityConflict)
		case !known.SID.IsValid():
			m.nodes[n.Name] = n
		}
		own[n.Name] = true
	}
}

func (m *merger) compareSIDs(nodes []cats.Node) {
	owners := make(map[netip.Addr]string, len(nodes))
	for _, n := range nodes {
		if owner, taken := owners[n.SID]; taken && n.SID.IsValid() {
			m.problem("node %s: SID %s is also that of %s: %w", n.Name, n.SID, owner, cats.ReasonDuplicate)
		}
		owners[n.SID] = n.Name
	}
}

func (m *merger) addLinks(links []cats.Link) {
	for _, l := range links {
		if err := l.Check(); err != nil {
			m.problems = append(m.problems, err)
			continue
		}
		for _, end := range []string{l.From, l.To} {
			if _, known := m.nodes[end]; !known {
				m.problem("link %s: node %s is not in the topology: %w", l, end, cats.ReasonMalformed)
			}
		}
		ends := [2]string{l.From, l.To}
		if m.links[ends] {
			m.problem("link %s is given twice: %w", l, cats.ReasonDuplicate)
			continue
		}
		m.links[ends] = true
		m.ordered = append(m.ordered, l)
	}
}
