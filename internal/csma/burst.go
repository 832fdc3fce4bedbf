package csma

import (
	"time"

	"github.com/margay-net/margay/cats"
)

// Burst control (C-SMA section 7.3, docs/by-reference.md section 7): each SCI may cause so many messages to a C-PS at once,
// and then one in each burstEvery, which is also the longest that a critical row waits.
const (
	burstMessages = 10
	burstEvery    = time.Second
)

// The tokens that a critical row needs. An improvement leaves one, so that what gets worse is never behind what got
// better.
const (
	forWorsening = 1
	forImproving = 2
)

// bucket is the token bucket of one SCI toward one C-PS.
type bucket struct {
	empty   cats.Instant // when it had no token; since then one more each burstEvery
	message uint64       // the last that took one
}

// buckets has no bucket for an SCI that has all its tokens.
type buckets map[cats.CSCIID]bucket

// ready gives when an SCI has n tokens, at the latest burstEvery from now.
func (b buckets) ready(now cats.Instant, id cats.CSCIID, n int) cats.Instant {
	one, taken := b[id]
	if !taken {
		return now
	}
	return max(now, min(one.empty.Add(time.Duration(n)*burstEvery), now.Add(burstEvery)))
}

// take takes a token of an SCI for a message, if it has one. However many of its rows a message has, it takes one.
func (b buckets) take(now cats.Instant, id cats.CSCIID, message uint64) {
	one, taken := b[id]
	if taken && one.message == message {
		return
	}
	if full := now.Add(-burstMessages * burstEvery); !taken || one.empty < full {
		one.empty = full
	}
	if next := one.empty.Add(burstEvery); next <= now {
		b[id] = bucket{next, message}
	}
}
