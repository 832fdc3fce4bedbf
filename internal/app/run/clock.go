package run

import (
	"time"

	"github.com/margay-net/margay/cats"
)

// NewClock gives the clock that a shell feeds its core with: monotonic, and anchored to the wall clock now.
func NewClock() func() cats.Instant {
	start := time.Now()
	return func() cats.Instant { return cats.Instant(start.UnixNano()).Add(time.Since(start)) }
}
