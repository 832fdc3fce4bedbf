// Package search finds the path of least delay or TE metric under bounds on delay, jitter, loss, hops and bandwidth. It is
// exact: where a path within the bounds exists it finds the best one, and of equal ones always the same, with the fewest
// links.
//
// A single bound on the ranking metric needs Dijkstra's algorithm alone. Other additive bounds need a search over labels,
// the paths to a node of which none is at least as good as another in everything; it is ordered and pruned by the least
// that each metric can still add up to on the way to the target. That search can take exponential time, so that it has a
// budget, and whoever asks is told when it was spent.
package search

import (
	"errors"
	"math"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/pce/tedb"
)

// DefaultBudget is a label budget that ordinary topologies stay far below; spending it takes some tens of milliseconds.
const DefaultBudget = 1 << 18

// The outcomes other than a path.
var (
	ErrNone   = errors.New("no path within the bounds")
	ErrBudget = errors.New("label budget spent before the search ended")
)

// Problem asks for one path between two nodes.
type Problem struct {
	From, To  int32
	Rank      tedb.Metric                         // the least sum of it is best
	Max       [tedb.Metrics]cats.Optional[uint32] // bounds of additive metrics, in their units
	Bandwidth uint32                              // least on every link, kbit/s
	Unpinned  bool                                // go through nodes without SID too
	Budget    int                                 // labels at most; 0: DefaultBudget
}

// Workspace is the memory of a search, kept so that further searches allocate nothing. It serves one search at a time.
type Workspace struct {
	trees  [tedb.Metrics]tree
	labels []label
	heads  []int32 // newest settled label of each node, or none
	queue  queue
	path   []int32
}

const (
	none    = int32(-1)
	forever = uint64(math.MaxUint64)
)

// Find gives the links of the best path in travel order, empty where both ends are one node; they are good until the next
// use of w. It returns ErrNone or ErrBudget where it finds no path.
func (w *Workspace) Find(t *tedb.Snapshot, p Problem) ([]int32, error) {
	if p.From == p.To {
		return w.path[:0], nil
	}
	rank := &w.trees[p.Rank]
	rank.start(t, p, p.Rank)
	rank.grow(t, p.From, forever)
	best := rank.distance[p.From]
	if best == forever || p.exceeds(p.Rank, best) {
		return nil, ErrNone
	}
	w.path = rank.follow(t, p.From, p.To, w.path[:0])
	if p.holds(t, w.path) {
		return w.path, nil
	}
	return w.constrained(t, p)
}

// exceeds tells whether a sum of weights is above the bound on its metric.
func (p *Problem) exceeds(m tedb.Metric, sum uint64) bool {
	return p.Max[m].Present && sum > tedb.Limit(m, p.Max[m].Value)
}

// holds tells whether a path is within every additive bound.
func (p *Problem) holds(t *tedb.Snapshot, path []int32) bool {
	for m := range tedb.Metrics {
		if !p.Max[m].Present {
			continue
		}
		var sum uint64
		for _, l := range path {
			sum += t.Weights(m)[l]
		}
		if p.exceeds(m, sum) {
			return false
		}
	}
	return true
}

// Toward finds the paths of least p.Rank from every node to p.To under p.Bandwidth alone; p.From and p.Max do not matter.
// Path reads them.
func (w *Workspace) Toward(t *tedb.Snapshot, p Problem) {
	p.From = none
	w.trees[p.Rank].start(t, p, p.Rank)
	w.trees[p.Rank].grow(t, none, forever)
}

// Path gives the path from a node that the last call of Toward with rank found, and whether there is one; it is good until
// the next use of w.
func (w *Workspace) Path(t *tedb.Snapshot, rank tedb.Metric, from, to int32) (path []int32, reachable bool) {
	if w.trees[rank].distance[from] == forever {
		return nil, false
	}
	w.path = w.trees[rank].follow(t, from, to, w.path[:0])
	return w.path, true
}
