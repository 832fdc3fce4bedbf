package simulation

import "time"

// chance is the one source of randomness of a run: splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
// Generators, 2014).
type chance uint64

func (c *chance) next() uint64 {
	*c += 0x9e3779b97f4a7c15
	z := uint64(*c)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below gives a number from 0 to n-1.
func (c *chance) below(n int) int { return int(c.next() % uint64(n)) }

// happens is true once in n times.
func (c *chance) happens(n int) bool { return c.below(n) == 0 }

// between gives a time from least to most.
func (c *chance) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.next()%uint64(most-least+1))
}
