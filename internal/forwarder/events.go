package forwarder

import (
	"net/netip"

	"github.com/margay-net/margay/cats"
)

// Events is what happened since the last Step. The shell may reuse it: a core keeps nothing that it points to, except
// what SteeringBatch and Attachments point to, which the shell must not change afterwards.
type Events struct {
	Attachments   []Attachment          // not nil: replaces the attachments, after a reload
	Results       []Result              // of Effects.Operations, in their order
	Provisioned   *ProvisionResult      // of Effects.Provision
	Session       Session               // what became of the session with the C-PS
	Steering      []*cats.SteeringBatch // messages of the C-PS in their order
	Announcements []Announcement
	Misses        []Miss
	Paths         []PathChange
	Usage         []Usage      // entries that changed since the last scan
	Scanned       cats.Instant // Usage is complete up to this instant; zero: there was no scan
}

// Reset empties e and keeps its memory.
func (e *Events) Reset() {
	*e = Events{
		Results:       e.Results[:0],
		Steering:      e.Steering[:0],
		Announcements: e.Announcements[:0],
		Misses:        e.Misses[:0],
		Paths:         e.Paths[:0],
		Usage:         e.Usage[:0],
	}
}

// Len counts what e holds, for a shell that bounds its batches.
func (e *Events) Len() int {
	return len(e.Results) + len(e.Steering) + len(e.Announcements) + len(e.Misses) + len(e.Paths) + len(e.Usage)
}

// Session is a change of the session with the C-PS.
type Session uint8

// The session changes. SessionUp starts a new session, also where the last one was never seen to end.
const (
	SessionUnchanged Session = iota
	SessionUp
	SessionDown
)

// TCPFlags are the flag octet of a TCP header.
type TCPFlags uint8

// The flags that matter here.
const (
	FIN TCPFlags = 1 << 0
	SYN TCPFlags = 1 << 1
	RST TCPFlags = 1 << 2
	ACK TCPFlags = 1 << 4
)

// Miss is a client packet that the data plane handed up because no binding covers it. Every Miss is answered once, now
// or in a later Step, by a Release or a Drop of its handle.
type Miss struct {
	Handle     uint64 // the shell's name for the packet
	Attachment string // where it came in; empty: outside every attachment
	Tuple      cats.Tuple
	Flags      TCPFlags // zero unless Tuple.Protocol is TCP
	Length     uint32   // octets that holding it takes
	Over       bool     // the data plane had a binding for it whose flow had ended
}

// Identity is the explicit service identity of a request; exactly one field is set.
type Identity struct {
	Name    cats.CSID
	Number  uint32     // the catalogue's stable number, counted from 1
	Address netip.Addr // the service that owns it
}

// IsZero tells whether there is no explicit identity.
func (i Identity) IsZero() bool { return i == Identity{} }

// Announcement is the metadata of a coming flow, announced over the authenticated API (Mode B `api`). It is answered
// by an AnnounceAnswer with the same Token.
type Announcement struct {
	Token       uint64
	By          string // role and name of the authenticated caller, for the audit
	Attachment  string // where the flow will come in; empty: the one whose source prefixes hold it best
	Tuple       cats.Tuple
	Identity    Identity // zero: only the address names the service
	Constraints cats.Constraints
	Generation  uint16 // request generation
}

// Result says what became of an Operation.
type Result struct {
	Operation uint64      // Operation.ID
	Reason    cats.Reason // ReasonNone: it is in force
	Detail    string      // for a person
}

// ProvisionResult says what became of Effects.Provision.
type ProvisionResult struct {
	Generation uint64
	Deliveries []cats.CSCIID // whose delivery rule is in place now
	Reason     cats.Reason   // why nothing was changed; ReasonNone: applied
	Detail     string        // for a person
}

// Usage is what the data plane counted for one half of a binding since it was installed.
type Usage struct {
	Transaction  cats.Transaction
	Half         cats.Half
	Forward      cats.Usage
	Reverse      cats.Usage
	LastSeen     cats.Instant // of the latest packet that refreshes, either direction; zero: none yet
	ForwardFlags TCPFlags     // OR of FIN and RST seen, client to instance
	ReverseFlags TCPFlags     // OR of FIN and RST seen, instance to client
}

// PathChange tells that the next hop of every path that begins with Segment was found or lost.
type PathChange struct {
	Segment netip.Addr
	Up      bool
	Detail  string // for a person
}
