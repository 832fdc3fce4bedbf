package csma

import "github.com/margay-net/margay/cats"

// Report is an SCI report with the authenticated name of the agent that sent it.
type Report struct {
	Agent string
	cats.SCIReport
}

// SessionKind is what happened on the session with a C-PS.
type SessionKind uint8

// The session events. SessionOpened is the C-PS's greeting, SessionNeedFull its request for everything.
const (
	SessionOpened SessionKind = iota
	SessionClosed
	SessionApplied
	SessionRefused
	SessionNeedFull
)

// Session is an event of the session with one C-PS. Epoch and Sequence are the last that the C-PS has applied from this
// C-SMA with SessionOpened (zeros: nothing), and the update meant with SessionApplied and SessionRefused.
type Session struct {
	CPS      string
	Kind     SessionKind
	Epoch    uint64
	Sequence uint64
}

// Events are what happened since the last Step; they are taken in the order of the fields.
type Events struct {
	Config   *Config // replaces the configuration; nil: unchanged; must pass Config.Check
	Sessions []Session
	Reports  []Report
}

// Outgoing is an update for one C-PS. Its Timestamp is set by who sends it.
type Outgoing struct {
	CPS    string
	Update cats.MetricUpdate
}

// Change is a transition of a row of the cache, for the log.
type Change struct {
	CSCIID                   cats.CSCIID
	CSID                     cats.CSID
	ReportingFrom, Reporting cats.ReportingState
	HealthFrom, Health       cats.Health
	Evicted                  bool // the row left the cache to make room for another
}

// Effects are what a Step wants done, in this order. The slices are reused: carry them out before the next Step.
type Effects struct {
	Epoch    uint64     // store it before sending anything; 0: unchanged
	Updates  []Outgoing // each C-PS's in order of sequence
	Outcomes []error    // of Events.Reports, index by index: nil for accepted, else a cats.Reason with its context
	Changes  []Change
}

// Reset empties e and keeps its memory.
func (e *Effects) Reset() {
	clear(e.Updates) // drops the records, which are not reused
	e.Epoch, e.Updates, e.Outcomes, e.Changes = 0, e.Updates[:0], e.Outcomes[:0], e.Changes[:0]
}
