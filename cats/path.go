package cats

import (
	"net/netip"
	"time"
)

// Encapsulation is a way to carry a packet over the path (CP section 8.4); values are bits, so that a set of them is
// an OR.
type Encapsulation uint8

// The encapsulations.
const (
	EncapNone   Encapsulation = 1 << iota // plain IP forwarding
	EncapSRv6                             // RFC 8986 H.Encaps, reduced where there is one segment
	EncapIPIP                             // IP in IP
	EncapVXLAN                            // RFC 7348
	EncapSRMPLS                           // RFC 8660
)

// Capabilities are what a forwarder can do; a path beyond them is a path failure (CP sections 8.3 and 9).
type Capabilities struct {
	Encapsulations Encapsulation // set of supported ones
	MaxSegments    uint8         // deepest SRv6 segment list that can be pushed
}

// PathStatus is the outcome of a path computation.
type PathStatus uint8

// The outcomes.
const (
	PathFound PathStatus = iota
	PathNone
)

// PathKind is the form of a path that a headend can activate (CP section 8.3).
type PathKind uint8

// The path kinds.
const (
	PathSRv6 PathKind = iota
	PathSRMPLS
	PathTunnel
	PathNative
)

// PathMetrics are the sums and extremes along a path.
type PathMetrics struct {
	DelayUS       uint32 // sum of one-way link delays, µs
	JitterUS      uint32 // sum, µs
	LossPPM       uint32 // combined, parts per million
	BandwidthKbps uint32 // least available on any link, kbit/s
	TEMetric      uint32 // sum
	Hops          uint8  // links
}

// PathRequest asks the PCE for one path after the destination is selected (CP section 7.1).
type PathRequest struct {
	Transaction   Transaction
	Headend       string       // ingress forwarder, or egress for a return path
	Endpoint      netip.Addr   // segment that ends the path: egress attachment SID or the owner's return SID
	Egress        string       // node that owns Endpoint
	Attachment    string       // CSCI-ID of the egress attachment; empty on a return path
	Domain        string       // routing domain
	Color         uint32       // RFC 9256; 0 is the default topology
	Policy        string       // path policy name; empty: least delay
	Bounds        Bounds       // network bounds that still apply; computing bounds are never sent
	Capabilities  Capabilities // the headend's
	CSTGeneration uint64       // of the decision; echoed
	NSTGeneration uint64       // of the decision; echoed
	Deadline      Instant
	Affinity      LinkAffinity // links to include and exclude
	DisjointFrom  Transaction  // whose path it shall not share; zero: none
	Disjointness  Disjointness // what it shall not share with it
	Protection    bool         // wants links that are protected against failure
}

// LinkAffinity are administrative groups of links (RFC 5305, RFC 5440), each a set of 32 bits; a zero set asks nothing.
type LinkAffinity struct {
	IncludeAny uint32 // a link is in at least one of these
	IncludeAll uint32 // a link is in all of these
	ExcludeAny uint32 // a link is in none of these
}

// Disjointness is what a path shall not share with another one (CP section 7.1).
type Disjointness uint8

// The degrees of disjointness.
const (
	DisjointNone Disjointness = iota
	DisjointLinks
	DisjointNodes // but the ends
)

// PathReply is the PCE's answer (CP sections 7 and 8.3).
type PathReply struct {
	Transaction    Transaction
	Status         PathStatus
	Kind           PathKind
	Segments       []netip.Addr // SRv6 SIDs in travel order, Endpoint last
	Labels         []uint32     // SR-MPLS labels, top of stack first
	Nodes          []string     // node names in travel order, headend first; for explain and the dashboard
	Handle         string       // policy or tunnel reference where Kind has no list
	Endpoint       netip.Addr
	Egress         string
	Metrics        PathMetrics
	CSTGeneration  uint64
	NSTGeneration  uint64
	TEDBGeneration uint64
	Reason         Reason // why there is no path
	Detail         string // for a person: which bound failed, or what is missing
}

// Path is an activated path of a binding.
type Path struct {
	Kind       PathKind
	Segments   []netip.Addr // SRv6 SIDs in travel order
	Labels     []uint32     // SR-MPLS labels, top of stack first
	Handle     string       // policy, tunnel or native reference where Kind has no list
	Nodes      []string     // node names in travel order
	Generation uint64       // TEDB generation that it was computed on
	DelayUS    uint32
}

// NSTRow is the network view of one (headend, egress, color) (CP section 5, Table 1).
type NSTRow struct {
	Headend    string
	Egress     string
	Color      uint32
	Reachable  bool
	Metrics    PathMetrics
	Source     string        // the C-NMA that it derives from
	Generation uint64        // of the TEDB that it was derived from
	Measured   Instant       // when the source measured it
	TTL        time.Duration // VALID until Measured+TTL, STALE for one more, then EXPIRED
}
