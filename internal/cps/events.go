package cps

import (
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// Events are what happened since the last Step. Slices keep the order of arrival; the fields are taken in the order
// they have here. Everything has been authenticated by the shell: a Name is the peer's certificate name.
type Events struct {
	Domain     *Domain   // nil: unchanged
	Paths      *PathView // nil: unchanged
	Sources    []SourceEvent
	Forwarders []ForwarderEvent
	Explains   []ExplainRequest
}

// Domain is what the operator provisions; it replaces the previous one as a whole.
type Domain struct {
	Catalogue  *catalogue.Catalogue
	Forwarders []string // the names that are authorized; all of them are waited for after a start
	Sources    []Source
}

// Source is a C-SMA and what it may report on (CP section 12).
type Source struct {
	Name     string
	Site     string
	Services []cats.CSID
}

// PathComputer answers path requests on one topology. It must not change while a core uses it.
type PathComputer interface {
	Compute(cats.PathRequest) cats.PathReply
}

// PathView is the network side of the selection state: the rows that the NST takes, and the PCE on the topology that
// they were derived from. A view of a lower Generation than the one in use is ignored.
type PathView struct {
	Generation uint64 // grows with each change of content, not with a later measurement of it; becomes the NST generation
	Rows       []cats.NSTRow
	PCE        PathComputer
}

// SourceEvent is something that happened on the session of one C-SMA. Exactly one of Opened, Closed and Update is set.
type SourceEvent struct {
	Name    string
	Session uint64 // numbered by the shell; a higher one replaces a lower one of the same name
	Opened  bool
	Closed  bool
	Update  *cats.MetricUpdate
}

// ForwarderEvent is something that happened on the session of one forwarder: its end, or a message. The message with
// Hello opens the session.
type ForwarderEvent struct {
	Name    string
	Session uint64 // numbered by the shell; a higher one replaces a lower one of the same name
	Closed  bool
	Batch   cats.ForwarderBatch
}

// ExplainRequest asks what the core would decide now for a flow, without deciding it.
type ExplainRequest struct {
	ID      uint64 // given back in the Explanation
	Request cats.ServiceRequest
}
