package forwarder

import "github.com/margay-net/margay/cats"

// deadlines is a binary heap of what is due when. An entry that lost its meaning stays until it is due; its owner
// recognizes it then.
type deadlines[T any] []deadline[T]

type deadline[T any] struct {
	at   cats.Instant
	what T
}

func (d *deadlines[T]) add(at cats.Instant, what T) {
	*d = append(*d, deadline[T]{at, what})
	h := *d
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent].at <= h[i].at {
			return
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

// next gives when the earliest entry is due.
func (d deadlines[T]) next() cats.Instant {
	if len(d) == 0 {
		return cats.Never
	}
	return d[0].at
}

// take removes the earliest entry if it is due at now.
func (d *deadlines[T]) take(now cats.Instant) (due deadline[T], ok bool) {
	h := *d
	if len(h) == 0 || h[0].at > now {
		return due, false
	}
	due = h[0]
	last := len(h) - 1
	h[0] = h[last]
	h[last] = deadline[T]{}
	h = h[:last]
	*d = h
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(h) && h[child].at < h[least].at {
				least = child
			}
		}
		if least == i {
			return due, true
		}
		h[least], h[i] = h[i], h[least]
		i = least
	}
}
