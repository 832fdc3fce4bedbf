package cps

import (
	"container/heap"

	"github.com/margay-net/margay/cats"
)

// agenda holds what is due when. Entries are never taken out early: one is current only if its owner still has the
// instant as its deadline.
type agenda struct{ items items }

type item struct {
	at        cats.Instant
	record    *record    // or
	forwarder *forwarder // whose deadline it was
}

type items []item

func (q items) Len() int           { return len(q) }
func (q items) Less(i, j int) bool { return q[i].at < q[j].at }
func (q items) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *items) Push(x any)        { *q = append(*q, x.(item)) }
func (q *items) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = item{}
	*q = old[:len(old)-1]
	return last
}

func (i item) current() bool {
	if i.record != nil {
		return i.record.deadline == i.at
	}
	return i.forwarder.deadline == i.at
}

func (a *agenda) add(i item) { heap.Push(&a.items, i) }

// due takes out the first current entry that is due.
func (a *agenda) due(now cats.Instant) (item, bool) {
	for len(a.items) > 0 && a.items[0].at <= now {
		i := heap.Pop(&a.items).(item)
		if i.current() {
			return i, true
		}
	}
	return item{}, false
}

// next is the instant of the first current entry.
func (a *agenda) next() cats.Instant {
	for len(a.items) > 0 {
		if a.items[0].current() {
			return a.items[0].at
		}
		heap.Pop(&a.items)
	}
	return cats.Never
}

// until sets the deadline of a flow, in place of its last one; cats.Never: none.
func (c *Core) until(r *record, at cats.Instant) {
	if r.deadline = at; at != cats.Never {
		c.agenda.add(item{at: at, record: r})
	}
}

// expire carries out what is due.
func (c *Core) expire() {
	for {
		i, ok := c.agenda.due(c.now)
		switch {
		case !ok:
			return
		case i.record != nil:
			i.record.deadline = cats.Never
			c.deadline(i.record)
		default:
			i.forwarder.deadline = cats.Never
			c.retryProvision(i.forwarder)
		}
	}
}
