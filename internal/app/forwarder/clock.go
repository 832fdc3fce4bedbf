package forwarder

import (
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
)

// tick is how much earlier than the moment the data plane may say that it saw a packet.
const tick = 10 * time.Millisecond

// clock is CLOCK_MONOTONIC, which the data plane uses too, anchored to the wall clock when it was made.
type clock struct{ anchor int64 }

func newClock() clock { return clock{time.Now().UnixNano() - datapath.Monotonic()} }

func (c clock) now() cats.Instant { return c.at(datapath.Monotonic()) }

// at gives the instant of a monotonic time of the data plane; zero stays zero.
func (c clock) at(monotonic int64) cats.Instant {
	if monotonic == 0 {
		return 0
	}
	return cats.Instant(c.anchor + monotonic)
}
