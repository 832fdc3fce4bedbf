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
	until map[identity]cats.Instant
	due   deadlines[identity]
}

// add remembers a half; beyond removedMost it does not, and the next Hello settles what is left behind.
func (m *removals) add(now cats.Instant, id identity) {
	if _, known := m.until[id]; !known && len(m.until) >= removedMost {
		return
	}
	m.until[id] = now.Add(removedLife)
	m.due.add(m.until[id], id)
}

func (m *removals) has(id identity) bool {
	_, known := m.until[id]
	return known
}

// expire forgets what is old enough. It asks for no Step of its own.
func (m *removals) expire(now cats.Instant) {
	for {
		due, ok := m.due.take(now)
		if !ok {
			return
		}
		if m.until[due.what] <= now {
			delete(m.until, due.what)
		}
	}
}
