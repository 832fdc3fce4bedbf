package forwarder

import "container/list"

// ids gives out numbers from 1 to below end. A number that came back is given out again as late as possible.
type ids struct {
	end   uint32
	next  uint32 // never given out so far
	taken map[uint32]bool
	freed list.List // of uint32, oldest first
}

func newIDs(end uint32) *ids { return &ids{end: end, next: 1, taken: make(map[uint32]bool)} }

// claim takes a number that is in use already.
func (i *ids) claim(id uint32) { i.taken[id] = true }

// get gives a free number; false if there is none.
func (i *ids) get() (uint32, bool) {
	for i.next < i.end {
		id := i.next
		i.next++
		if !i.taken[id] {
			i.taken[id] = true
			return id, true
		}
	}
	if front := i.freed.Front(); front != nil {
		id := i.freed.Remove(front).(uint32)
		i.taken[id] = true
		return id, true
	}
	return 0, false
}

// put gives a number back.
func (i *ids) put(id uint32) {
	delete(i.taken, id)
	if id < i.next { // else get will come to it
		i.freed.PushBack(id)
	}
}
