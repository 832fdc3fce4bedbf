package search

import (
	"github.com/margay-net/margay/internal/pce/tedb"
)

// tree is Dijkstra's algorithm backward from the target: the least sum of one metric from each node to it. It stops early
// and goes on later, since its queue stays.
type tree struct {
	distance []uint64 // to the target, forever where none is known
	next     []int32  // link that the least sum begins with
	queue    queue
	weights  []uint64
	problem  Problem
}

func (t *tree) start(s *tedb.Snapshot, p Problem, m tedb.Metric) {
	n := s.Nodes()
	if cap(t.distance) < n {
		t.distance, t.next = make([]uint64, n), make([]int32, n)
	}
	t.distance, t.next = t.distance[:n], t.next[:n]
	for i := range t.distance {
		t.distance[i] = forever
	}
	t.weights, t.problem = s.Weights(m), p
	t.distance[p.To] = 0
	t.queue = append(t.queue[:0], entry{item: p.To})
}

// grow settles nodes in the order of their distance until it has settled stop, or every node that is not further than
// limit. Nodes that are not settled have a distance that is too great or forever.
func (t *tree) grow(s *tedb.Snapshot, stop int32, limit uint64) {
	tails, bandwidth := s.Tails(), s.Bandwidths()
	for len(t.queue) > 0 && t.queue[0].key <= limit {
		e := t.queue.pop()
		if e.key > t.distance[e.item] {
			continue
		}
		if e.item == t.problem.From {
			// No path goes through its own start, so nothing is reached by way of it.
			if e.item == stop {
				return
			}
			continue
		}
		if e.item != t.problem.To && !t.problem.Unpinned && !s.SID(e.item).IsValid() {
			continue
		}
		first, last := s.Into(e.item)
		for l := first; l < last; l++ {
			if bandwidth[l] < t.problem.Bandwidth {
				continue
			}
			tail, d := tails[l], e.key+t.weights[l]
			if d < t.distance[tail] {
				t.distance[tail], t.next[tail] = d, l
				t.queue.push(entry{key: d, item: tail})
			}
		}
	}
}

// follow appends the links from a settled node to the target.
func (t *tree) follow(s *tedb.Snapshot, from, to int32, path []int32) []int32 {
	for n := from; n != to; {
		l := t.next[n]
		path = append(path, l)
		_, n = s.Ends(l)
	}
	return path
}
