package forwarder

import (
	"container/heap"

	"github.com/margay-net/margay/cats"
)

// agenda orders records by when inspect has to look at them. A record knows its place, so that one which is removed
// early leaves nothing behind for the two hours of its idle time.
type agenda []*record

// nowhere is the place of a record that is not on the agenda.
const nowhere = -1

// Len, Less, Swap, Push and Pop are for container/heap.
func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].check < a[j].check }

// Swap is for container/heap.
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push is for container/heap.
func (a *agenda) Push(x any) {
	r := x.(*record)
	r.place = len(*a)
	*a = append(*a, r)
}

// Pop is for container/heap.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	r := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	r.place = nowhere
	return r
}

// put sets when r is looked at next; cats.Never takes it off.
func (a *agenda) put(r *record, at cats.Instant) {
	switch r.check = at; {
	case at == cats.Never && r.place == nowhere:
	case at == cats.Never:
		heap.Remove(a, r.place)
	case r.place == nowhere:
		heap.Push(a, r)
	default:
		heap.Fix(a, r.place)
	}
}

// next gives when the first record is due.
func (a agenda) next() cats.Instant {
	if len(a) == 0 {
		return cats.Never
	}
	return a[0].check
}
