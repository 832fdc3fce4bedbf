package cats

import "net/netip"

// ClientOf gives what a source address counts as where clients are limited: an IPv4 address is a client, and so is the
// /64 of an IPv6 address, of which one host can use any. All invalid addresses are one client, the zero Prefix.
func ClientOf(source netip.Addr) netip.Prefix {
	source = source.Unmap().WithZone("")
	bits := 64
	if source.Is4() {
		bits = 32
	}
	client, err := source.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return client
}

// Tally counts by key, and keeps no key whose count is 0, so that it is as small as what it counts. The zero Tally
// counts nothing yet.
type Tally[K comparable] struct{ counts map[K]int }

// Of gives the count of a key.
func (t *Tally[K]) Of(key K) int { return t.counts[key] }

// Add counts one more.
func (t *Tally[K]) Add(key K) {
	if t.counts == nil {
		t.counts = make(map[K]int)
	}
	t.counts[key]++
}

// Remove counts one less; it must have been added.
func (t *Tally[K]) Remove(key K) {
	if t.counts[key]--; t.counts[key] == 0 {
		delete(t.counts, key)
	}
}

// Len gives how many keys have a count.
func (t *Tally[K]) Len() int { return len(t.counts) }
