package cats

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// TopologyPart is what one source says of a topology.
type TopologyPart struct {
	Source string
	Nodes  []Node
	Links  []Link
}

// JoinedNode is a node of a joined topology. Part is the index of the part that it is of: the first that gives its SID, or
// the first that has it at all.
type JoinedNode struct {
	Node
	Part int
}

// JoinedLink is a link of a joined topology; Tail and Head are the indices of the nodes that it leads from and to.
type JoinedLink struct {
	Link
	Tail, Head int
	Part       int
}

// JoinTopologies puts parts together, nodes in the order of their names and links in that of their tails and heads. A
// node may be in several parts, so that they meet in it, and they must agree on its SID; a link is in one. Where anything
// is wrong there is no topology, and the error names every node or link that is, up to a number, and wraps
// ReasonMalformed, ReasonDuplicate, ReasonRange or ReasonIdentityConflict.
func JoinTopologies(parts []TopologyPart) ([]JoinedNode, []JoinedLink, error) {
	j := joiner{parts: parts, number: make(map[string]int)}
	for i := range parts {
		j.addNodes(i)
	}
	j.sortNodes()
	for i := range parts {
		j.addLinks(i)
	}
	j.sortLinks()
	if err := j.failure(); err != nil {
		return nil, nil, err
	}
	return j.nodes, j.links, nil
}

// mostProblems is how many problems one error lists; a longer list is cut, with the number of the rest.
const mostProblems = 20

type joiner struct {
	parts    []TopologyPart
	nodes    []JoinedNode
	number   map[string]int // index in nodes
	links    []JoinedLink
	problems []error
	unlisted int
}

func (j *joiner) problem(format string, args ...any) {
	if len(j.problems) == mostProblems {
		j.unlisted++
		return
	}
	j.problems = append(j.problems, fmt.Errorf(format, args...))
}

func (j *joiner) failure() error {
	if j.unlisted > 0 {
		j.problems = append(j.problems, fmt.Errorf("and %d more: %w", j.unlisted, ReasonMalformed))
	}
	return errors.Join(j.problems...)
}

func (j *joiner) addNodes(part int) {
	source, nodes := j.parts[part].Source, j.parts[part].Nodes
	own := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		if own[n.Name] {
			j.problem("%s: node %s is given twice: %w", source, n.Name, ReasonDuplicate)
			continue
		}
		own[n.Name] = true
		if err := n.Check(); err != nil {
			j.problem("%s: %w", source, err)
			n.SID = netip.Addr{} // the node exists; its links need no second complaint
		}
		j.mergeNode(part, n)
	}
}

func (j *joiner) mergeNode(part int, n Node) {
	i, known := j.number[n.Name]
	switch {
	case !known:
		j.number[n.Name] = len(j.nodes)
		j.nodes = append(j.nodes, JoinedNode{n, part})
	case !j.nodes[i].SID.IsValid():
		if n.SID.IsValid() {
			j.nodes[i] = JoinedNode{n, part}
		}
	case n.SID.IsValid() && n.SID != j.nodes[i].SID:
		j.problem("node %s: SID %s from %s, but %s from %s: %w", n.Name, j.nodes[i].SID, j.parts[j.nodes[i].Part].Source, n.SID, j.parts[part].Source,
			ReasonIdentityConflict)
	}
}

func (j *joiner) sortNodes() {
	slices.SortFunc(j.nodes, func(x, y JoinedNode) int { return cmp.Compare(x.Name, y.Name) })
	owners := make(map[netip.Addr]string, len(j.nodes))
	for i, n := range j.nodes {
		j.number[n.Name] = i
		if owner, taken := owners[n.SID]; taken && n.SID.IsValid() {
			j.problem("node %s: SID %s is also that of %s: %w", n.Name, n.SID, owner, ReasonDuplicate)
		}
		owners[n.SID] = n.Name
	}
}

func (j *joiner) addLinks(part int) {
	for _, l := range j.parts[part].Links {
		if err := l.Check(); err != nil {
			j.problem("%s: %w", j.parts[part].Source, err)
			continue
		}
		tail, known := j.end(part, l, l.From)
		head, knownToo := j.end(part, l, l.To)
		if known && knownToo {
			j.links = append(j.links, JoinedLink{Link: l, Tail: tail, Head: head, Part: part})
		}
	}
}

func (j *joiner) end(part int, l Link, name string) (int, bool) {
	i, known := j.number[name]
	if !known {
		j.problem("%s: link %s: node %s is not in the topology: %w", j.parts[part].Source, l, name, ReasonMalformed)
	}
	return i, known
}

func (j *joiner) sortLinks() {
	slices.SortStableFunc(j.links, func(x, y JoinedLink) int { return cmp.Or(cmp.Compare(x.Tail, y.Tail), cmp.Compare(x.Head, y.Head)) })
	for i := 1; i < len(j.links); i++ {
		x, y := &j.links[i-1], &j.links[i]
		if x.Tail != y.Tail || x.Head != y.Head {
			continue
		}
		by := "twice by " + j.parts[x.Part].Source
		if x.Part != y.Part {
			by = "by " + j.parts[x.Part].Source + " and by " + j.parts[y.Part].Source
		}
		j.problem("link %s is given %s: %w", x.Link, by, ReasonDuplicate)
	}
}
