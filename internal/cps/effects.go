package cps

import (
	"net/netip"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/selection"
)

// Effects are what a Step wants done, to be carried out in the order of the fields. Step empties them first and keeps
// nothing that they point to; the slices' own memory is used again by the next Step.
type Effects struct {
	Fence         cats.Fence // not zero: to be kept on disk before anything else, so that no restart forgets it
	Audit         []Audit
	Closes        []SessionClose
	Steering      []Steering
	SourceReplies []SourceReply
	Explanations  []Explanation
	Refused       []RefusedFlow // for the log: the ingress learns it by Steering
}

func (e *Effects) reset() {
	*e = Effects{
		Audit: e.Audit[:0], Closes: e.Closes[:0], Steering: e.Steering[:0],
		SourceReplies: e.SourceReplies[:0], Explanations: e.Explanations[:0], Refused: e.Refused[:0],
	}
}

// Audit is a record for the audit log: something that an operator must be able to find later.
type Audit struct {
	Event       string // what happened, such as "request-refused"
	Subject     string // who or what caused it: the name of a peer
	Reason      cats.Reason
	Transaction cats.Transaction // zero where there is none
	Detail      string
}

// RefusedFlow is a service request that was refused, and why.
type RefusedFlow struct {
	Transaction cats.Transaction
	Ingress     string
	Key         cats.FlowKey
	Reason      cats.Reason
	Stage       string // with ReasonNoCandidate: the filter that left nothing
	Detail      string
}

// SessionClose ends the session of a forwarder that may not be served, with the reason for its operator.
type SessionClose struct {
	Forwarder string
	Session   uint64
	Reason    cats.Reason
	Detail    string
}

// Steering is one message to one forwarder's session. It is lost if that session is over.
type Steering struct {
	Forwarder string
	Session   uint64
	Batch     cats.SteeringBatch
}

// SourceReply answers a C-SMA (C-SMA sections 8.3 and 9.3).
type SourceReply struct {
	Source   string
	Session  uint64
	Kind     SourceReplyKind
	Epoch    uint64 // last applied of the source, 0 if nothing was; with SourceRefused that of the update
	Sequence uint64 // likewise
	Reason   cats.Reason
	Detail   string
	Rejected []RejectedRecord // rows of an accepted update that were left out
}

// SourceReplyKind is the kind of a reply to a C-SMA.
type SourceReplyKind uint8

// SourceHello opens a session and tells what survived here; SourceAck acknowledges an update, also one seen before;
// SourceNeedFull asks for a FULL update; SourceRefused says that an update was not taken.
const (
	SourceHello SourceReplyKind = iota
	SourceAck
	SourceNeedFull
	SourceRefused
)

// RejectedRecord is a row that its source may not report, or whose values are out of range.
type RejectedRecord struct {
	CSID   cats.CSID
	CSCIID cats.CSCIID
	Reason cats.Reason
	Detail string
}

// Explanation is a decision with everything that led to it, for a person (margay explain).
type Explanation struct {
	ID       uint64
	Request  cats.ServiceRequest
	Refusal  cats.Reason // ReasonNone: it would be admitted
	Stage    string      // with ReasonNoCandidate: the first filter that left nothing
	Detail   string
	CSID     cats.CSID // resolved
	Resolved string    // by: "explicit", "address" or "both"
	Policy   catalogue.Policy
	Version  string // of the policy
	Band     uint64 // width of equality of the policy's first key, µs
	Slots    uint32 // that the flow needs

	Candidates []ExplainedCandidate // by rank, then the removed ones by stage
	Chosen     *ExplainedCandidate  // the first of Candidates; nil: none

	PathRequest cats.PathRequest // zero without Chosen
	Path        cats.PathReply
	ReturnPath  cats.PathReply
	ReturnTo    netip.Addr // set where there is no return path: packets are encapsulated to the owner alone

	Before    cats.Tuple // packet as the client sends it
	After     cats.Tuple // as the ingress sends it
	Answer    cats.Tuple // packet as the instance answers
	Delivered cats.Tuple // as the client gets it

	CSTGeneration uint64
	NSTGeneration uint64
}

// ExplainedCandidate is one deployment by one egress and one path color, with the facts that were judged.
type ExplainedCandidate struct {
	CSCIID     cats.CSCIID
	Site       string
	State      catalogue.DeploymentState
	Locator    cats.Locator
	Egress     string
	Attachment netip.Addr // SID
	Color      uint32

	Stage selection.Stage // that removed it; StageNone: it was ranked
	Why   string          // what failed it, for a person
	Rank  int             // 1 is the chosen one; 0 where removed
	Equal bool            // within the band of the best
	Value uint64          // of the policy's first key, µs; only where ranked

	RealDelayUS    uint64 // computing time plus network delay; 0 where one of them is unknown
	EffectiveSlots uint32 // reported less debited
	DebitedSlots   uint64
	Report         *ReportView  // nil: nothing was reported
	Path           *PathRowView // nil: no path is known
}
