package cps

import (
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/selection"
)

// reasonCount is one more than the highest reason, so that an array can be indexed by a reason.
const reasonCount = int(cats.ReasonOperator) + 1

// Counters are totals since the core was made.
type Counters struct {
	Requests           uint64 // service requests
	Duplicates         uint64 // of them, repeats of a known transaction
	Joined             uint64 // of them, joined to the transaction of their key
	Selections         uint64
	PathRequests       uint64
	Admitted           uint64                   // flows that became ACTIVE
	Restored           uint64                   // flows rebuilt from a forwarder's record
	Refused            [reasonCount]uint64      // requests, by reason
	Ended              [reasonCount]uint64      // ACTIVE flows, by reason
	Stages             [selection.Stages]uint64 // candidates, by the stage that removed them; StageNone: ranked
	Updates            uint64                   // metric updates applied
	RejectedRecords    uint64                   // records left out of them
	Strays             uint64                   // reports on bindings that are not known
	RefusedTransitions uint64                   // of the flow state machine; above 0 is a mistake in this program
}

// Gauges are what the core holds now.
type Gauges struct {
	Flows         [cats.ReconnectRequired + 1]int // by state; ABSENT: only removals are outstanding
	Pending       int                             // transactions under way
	Debited       int                             // flows that hold slots
	CSTGeneration uint64
	NSTGeneration uint64
	Connected     int    // forwarders with a session
	Expected      int    // forwarders of the domain
	Open          bool   // requests are decided
	Fenced        string // why nothing is decided any more; empty: it is
}

// Counters gives the totals.
func (c *Core) Counters() Counters { return c.counters }

// Gauges gives what the core holds.
func (c *Core) Gauges() Gauges {
	g := Gauges{
		Flows: c.states, Pending: c.pending.Total(), Debited: c.ledger.Flows(),
		CSTGeneration: c.cst.Generation(), NSTGeneration: c.nst.Generation(),
		Expected: len(c.expected), Open: c.open, Fenced: c.whyFenced(),
	}
	for _, f := range c.forwarders {
		if f.connected {
			g.Connected++
		}
	}
	return g
}
