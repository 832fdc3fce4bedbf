package forwarder

import (
	"time"

	"github.com/margay-net/margay/cats"
)

// Effects is what a shell has to do after a Step, in the order of the fields. The core fills it anew at each Step, so a
// shell copies what it keeps; Send alone is handed over and never touched again.
type Effects struct {
	Journal    []JournalEntry  // append; then, if NeedsSync, fsync
	Operations []Operation     // carry out in order; answer each with a Result
	Provision  *cats.Provision // of all shards as one; apply all or nothing; answer with Events.Provisioned
	Announced  []AnnouncedFlow // hand packets of these flows up, or no longer
	HoldDowns  []HoldDown      // drop packets of these keys in the data plane for a while
	Releases   []Release
	Drops      []Drop
	Send       cats.ForwarderBatch // to the C-PS; empty: nothing
	Answers    []AnnounceAnswer
	Audit      []Audit
	Stats      Stats
}

func (e *Effects) reset() {
	*e = Effects{
		Journal:    e.Journal[:0],
		Operations: e.Operations[:0],
		Announced:  e.Announced[:0],
		HoldDowns:  e.HoldDowns[:0],
		Releases:   e.Releases[:0],
		Drops:      e.Drops[:0],
		Answers:    e.Answers[:0],
		Audit:      e.Audit[:0],
	}
}

// NeedsSync tells whether Journal holds an entry that must survive a power failure: a higher epoch.
func (e *Effects) NeedsSync() bool {
	for i := range e.Journal {
		if e.Journal[i].Kind == JournalEpoch {
			return true
		}
	}
	return false
}

// JournalKind tells what a journal entry changes.
type JournalKind uint8

// The journal entry kinds.
const (
	JournalPut       JournalKind = iota // Record is new or changed
	JournalRemove                       // the record of Record.Half and Record.Binding.Transaction is gone
	JournalEpoch                        // Epoch is the highest seen for Shard
	JournalProvision                    // Provision is in force for Shard; nil: none is
)

// JournalEntry is one thing to persist. Only the fields that Kind names are set.
type JournalEntry struct {
	Kind      JournalKind
	Record    Record
	Shard     cats.Shard
	Epoch     cats.Epoch
	Provision *cats.Provision
}

// Record is one half of a binding as a forwarder keeps it.
type Record struct {
	Half     cats.Half
	Binding  cats.Binding
	Draining bool
	Reason   cats.Reason // why it drains
}

// Restored is what a core starts from: what the journal holds of the same kernel boot, and the epochs of any boot.
type Restored struct {
	Records    []Record
	Epochs     map[cats.Shard]cats.Epoch
	Provisions []*cats.Provision // in force in the data plane, at most one of each shard, by shard
}

// Rules gives the provisions of all shards as one: what the data plane has to have.
func (r *Restored) Rules() *cats.Provision { return together(byShard(r.Provisions)) }

// OperationKind tells what to do to one half of a binding in the data plane.
type OperationKind uint8

// The operations. Install also replaces what an earlier version installed.
const (
	OperationInstall OperationKind = iota
	OperationDrain
	OperationRemove
)

// String gives "install", "drain" or "remove".
func (k OperationKind) String() string {
	switch k {
	case OperationInstall:
		return "install"
	case OperationDrain:
		return "drain"
	case OperationRemove:
		return "remove"
	}
	return "invalid"
}

// Operation is one change of the data plane. Removing what is not there succeeds.
type Operation struct {
	ID       uint64 // for its Result; grows by one
	Kind     OperationKind
	Half     cats.Half
	Binding  cats.Binding
	Draining bool // the half is draining, also after an Install of a newer version
}

// AnnouncedFlow asks that packets of a flow to no service address are handed up for a while.
type AnnouncedFlow struct {
	Key cats.FlowKey
	For time.Duration // zero: no longer
}

// HoldDown asks the data plane to drop packets of a failed key by itself, so that a sender without a candidate costs
// one request a second.
type HoldDown struct {
	Key    cats.FlowKey
	For    time.Duration
	Reason cats.Reason
}

// Release lets a held packet go: both directions of its binding are in force here (CP section 8.4).
type Release struct {
	Handle      uint64
	Transaction cats.Transaction
}

// Drop ends a packet, counted by its reason.
type Drop struct {
	Handle uint64
	Reason cats.Reason
}

// AnnounceAnswer answers an Announcement.
type AnnounceAnswer struct {
	Token  uint64
	Reason cats.Reason   // ReasonNone: kept
	Detail string        // for a person
	CSID   cats.CSID     // what the announced flow resolves to here
	For    time.Duration // how long it is kept
}

// Audit is something that an operator may have to account for.
type Audit struct {
	Event       string // what happened: "epoch-raised", "order-refused", "announce-refused", "provision-applied", …
	Reason      cats.Reason
	By          string // the peer or caller behind it
	Transaction cats.Transaction
	Detail      string // for a person
}

// Stats are the gauges and totals of a core. Totals count from the start of the core.
type Stats struct {
	Pending       int // flows that wait for a decision or its commit
	HeldPackets   int
	HeldOctets    int
	IngressHalves int // bindings in force, draining ones included
	EgressHalves  int
	Draining      int
	HeldDown      int // keys in hold-down
	Announcements int // waiting for their flow

	Requests       uint64 // service requests: one per flow
	Joined         uint64 // further packets that joined a pending flow
	Retransmits    uint64 // SYNs of a pending flow that were counted and not held again
	Refusals       uint64 // pending flows that the C-PS refused
	Timeouts       uint64 // pending flows whose deadline passed
	Installed      uint64 // halves that the data plane confirmed
	LateInstalls   uint64 // ingress bindings of a closed transaction, refused
	StaleOrders    uint64 // orders and provisions of an older epoch, refused
	InstallsFailed uint64 // halves that the data plane refused
	Removed        uint64 // halves taken out
	AnnounceUsed   uint64 // announcements that met their flow
	AnnounceLost   uint64 // announcements whose flow never came
	HoldDownsLost  uint64 // failed keys that are not held down: too many are
	RemovalsLost   uint64 // removals that the C-PS will not be told of: too many waited for its session
}
