package search

import (
	"slices"

	"github.com/margay-net/margay/internal/pce/tedb"
)

// label is a path from the start to a node: its rank, and what it has used of each bound.
type label struct {
	rank   uint64
	used   [tedb.Metrics]uint64 // of the bounded metrics, in the order of bounds
	node   int32
	link   int32 // its last
	before int32 // label of the path without that link
	older  int32 // label that its node settled before
}

// bound is an additive bound other than the one on the ranking metric, with the least that each node still needs of it.
type bound struct {
	weights  []uint64
	limit    uint64
	distance []uint64
}

// bounds are the bounds of one search, without a slice so that they stay on the stack.
type bounds struct {
	each [tedb.Metrics]bound
	n    int
}

// constrained finds the best path under every bound. It looks at labels in the order of the best rank that they can end with,
// so that the first that reaches the target is the answer. The tree of the ranking metric is there already.
func (w *Workspace) constrained(t *tedb.Snapshot, p Problem) ([]int32, error) {
	var b bounds
	if !w.prepare(t, p, &b) {
		return nil, ErrNone
	}
	budget := p.Budget
	if budget == 0 {
		budget = DefaultBudget
	}
	w.begin(t, p)
	rank := w.trees[p.Rank].distance
	for len(w.queue) > 0 {
		at := w.queue.pop().item
		l := w.labels[at]
		if l.node == p.To {
			return w.trace(at), nil
		}
		if w.dominated(l.node, &l.used, b.n) {
			continue
		}
		w.labels[at].older, w.heads[l.node] = w.heads[l.node], at
		if l.node != p.From && !p.Unpinned && !t.SID(l.node).IsValid() {
			continue
		}
		for _, k := range t.OutOf(l.node) {
			if t.Bandwidths()[k] < p.Bandwidth || !w.extend(t, p, &b, l, at, k, rank) {
				continue
			}
			if len(w.labels) > budget {
				return nil, ErrBudget
			}
		}
	}
	return nil, ErrNone
}

// prepare grows the trees of the ranking and of the bounded metrics. It tells whether each bound alone can be met.
func (w *Workspace) prepare(t *tedb.Snapshot, p Problem, b *bounds) bool {
	for m := range tedb.Metrics {
		if !p.Max[m].Present || m == p.Rank {
			continue
		}
		limit := tedb.Limit(m, p.Max[m].Value)
		w.trees[m].start(t, p, m)
		w.trees[m].grow(t, none, limit)
		if w.trees[m].distance[p.From] > limit {
			return false
		}
		b.each[b.n] = bound{weights: t.Weights(m), limit: limit, distance: w.trees[m].distance}
		b.n++
	}
	limit := forever
	if p.Max[p.Rank].Present {
		limit = tedb.Limit(p.Rank, p.Max[p.Rank].Value)
	}
	w.trees[p.Rank].grow(t, none, limit)
	return true
}

func (w *Workspace) begin(t *tedb.Snapshot, p Problem) {
	n := t.Nodes()
	if cap(w.heads) < n {
		w.heads = make([]int32, n)
	}
	w.heads = w.heads[:n]
	for i := range w.heads {
		w.heads[i] = none
	}
	w.labels = append(w.labels[:0], label{node: p.From, link: none, before: none, older: none})
	w.queue = append(w.queue[:0], entry{key: w.trees[p.Rank].distance[p.From]})
}

// extend makes the label of l and one more link, unless it cannot lead to an answer; it tells whether it did.
func (w *Workspace) extend(t *tedb.Snapshot, p Problem, b *bounds, l label, at, link int32, rank []uint64) bool {
	_, head := t.Ends(link)
	if rank[head] == forever {
		return false
	}
	longer := label{rank: l.rank + t.Weights(p.Rank)[link], node: head, link: link, before: at, older: none}
	if p.exceeds(p.Rank, longer.rank+rank[head]) {
		return false
	}
	for i := range b.n {
		k := &b.each[i]
		longer.used[i] = l.used[i] + k.weights[link]
		if k.distance[head] > k.limit || longer.used[i] > k.limit-k.distance[head] {
			return false
		}
	}
	if w.dominated(head, &longer.used, b.n) {
		return false
	}
	w.labels = append(w.labels, longer)
	w.queue.push(entry{key: longer.rank + rank[head], item: int32(len(w.labels) - 1)})
	return true
}

// dominated tells whether a label that the node settled, and whose rank is therefore no greater, uses no more of any
// bound. That holds for every label that has gone in a circle.
func (w *Workspace) dominated(node int32, used *[tedb.Metrics]uint64, n int) bool {
settled:
	for i := w.heads[node]; i != none; i = w.labels[i].older {
		for k := range n {
			if w.labels[i].used[k] > used[k] {
				continue settled
			}
		}
		return true
	}
	return false
}

func (w *Workspace) trace(at int32) []int32 {
	w.path = w.path[:0]
	for l := &w.labels[at]; l.link != none; l = &w.labels[l.before] {
		w.path = append(w.path, l.link)
	}
	slices.Reverse(w.path)
	return w.path
}
