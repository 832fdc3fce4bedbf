package cps

import (
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/admission"
)

// Config is what a core is for its whole life. Limits and Timing take their defaults where they are zero.
type Config struct {
	Shard         cats.Shard
	Epoch         cats.Epoch // of this owner of the shard, above every earlier one
	Fence         cats.Fence // that an earlier run has met; with one, nothing is decided and no forwarder is served
	RoutingDomain string     // of its path requests (CP section 7.1)
	Limits        Limits
	Timing        Timing
}

// Limits bound what the core holds.
type Limits struct {
	Pending     admission.Limits
	Joined      int // requests that wait for the transaction of another, each
	Generations int // request generations remembered
	Closed      int // closed transactions remembered, so that late messages change nothing
}

// DefaultLimits are those of an unconfigured C-PS.
func DefaultLimits() Limits {
	return Limits{
		Pending:     admission.Limits{Total: 10_000, PerTenant: 2_000, PerClient: 100},
		Joined:      8,
		Generations: 1 << 18,
		Closed:      1 << 16,
	}
}

// Timing are the core's times.
type Timing struct {
	Pending     time.Duration // longest life of a transaction before ACTIVE; the ingress may want less
	Commit      time.Duration // for one half
	Path        time.Duration // for one path computation
	Draining    time.Duration // both halves still pass
	Retry       time.Duration // of provisions and removals that were not answered
	Reconcile   time.Duration // longest wait for the forwarders after a start
	EgressPause time.Duration // an egress whose last commit failed is not selected
	Generation  time.Duration // a request generation is remembered
}

// DefaultTiming are the times of an unconfigured C-PS.
func DefaultTiming() Timing {
	return Timing{
		Pending: 2 * time.Second, Commit: 500 * time.Millisecond, Path: 500 * time.Millisecond,
		Draining: 5 * time.Second, Retry: time.Second, Reconcile: 3 * time.Second, EgressPause: 5 * time.Second,
		Generation: 120 * time.Second,
	}
}

func (c Config) withDefaults() Config {
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits()
	}
	if c.Timing == (Timing{}) {
		c.Timing = DefaultTiming()
	}
	return c
}
