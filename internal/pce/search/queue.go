package search

// entry is a node or label in a queue, with what it is ordered by.
type entry struct {
	key  uint64
	item int32
}

// queue is a heap with four children a node: fewer levels, and the four keys compared lie together.
type queue []entry

func (q *queue) push(e entry) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if h[up].key <= e.key {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
	*q = h
}

func (q *queue) pop() entry {
	h := *q
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h)); c++ {
			if h[c].key < h[least].key {
				least = c
			}
		}
		if h[least].key >= last.key {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = last
	return top
}
