package forwarder

import (
	"time"

	"github.com/margay-net/margay/cats"
)

// A removal is final: an order to install that comes later for the same half was overtaken by it, and must not leave
// behind a half that its owner has given up.
const (
	removedLife = 10 * time.Second // longer than any order is under way
	removedMost = 1 << 16          // halves remembered
)

// removals remembers the halves that were ordered out.
type removals struct {
	halves map[identity]struct{}
	due    deadlines[identity] // one for each of halves
}

// add remembers a half, an order that is repeated no longer than the first; beyond removedMost it does not, and the next
// Hello settles what is left behind.
func (m *removals) add(now cats.Instant, id identity) {
	if m.has(id) || len(m.halves) >= removedMost {
		return
	}
	m.halves[id] = struct{}{}
	m.due.add(now.Add(removedLife), id)
}

func (m *removals) has(id identity) bool {
	_, known := m.halves[id]
	return known
}

// expire forgets what is old enough. It asks for no Step of its own.
func (m *removals) expire(now cats.Instant) {
	for {
		due, ok := m.due.take(now)
		if !ok {
			return
		}
		delete(m.halves, due.what)
	}
}
