package cats

import (
	"net/netip"
	"slices"
	"time"
)

// ServiceReport is one service in an SCI report.
type ServiceReport struct {
	CSID     CSID
	Version  string
	Health   Health
	Metrics  Metrics
	Healthy  uint32 // instances by health behind this contact instance
	Degraded uint32
	Failing  uint32
	Unknown  uint32
	Affinity string // hint; the catalogue's affinity wins
}

// SCIReport is what a service contact instance tells its C-SMA (C-SMA section 4). The pair (Epoch, Sequence) orders
// reports; equal or lower pairs are discarded.
type SCIReport struct {
	CSCIID    CSCIID
	Site      string
	Epoch     uint64 // grows with each start of the SCI: max(stored+1, now in ms)
	Sequence  uint64
	Timestamp time.Time // the SCI's wall clock
	Interval  time.Duration
	Full      bool // carries every service; otherwise the changed ones
	Services  []ServiceReport
}

// UpdateKind is the kind of an update from a C-SMA or C-NMA to the C-PS (C-SMA sections 9.1 to 9.3).
type UpdateKind uint8

// The update kinds. FULL replaces every row of its source at once; DELTA applies only on base_seq equal to the last
// applied; REFRESH extends lifetimes; WITHDRAW removes rows.
const (
	UpdateFull UpdateKind = iota
	UpdateDelta
	UpdateRefresh
	UpdateWithdraw
)

// String gives FULL, DELTA, REFRESH or WITHDRAW.
func (k UpdateKind) String() string {
	return name([]string{"FULL", "DELTA", "REFRESH", "WITHDRAW"}, k)
}

// UpdateHeader is the envelope that metric and network updates share. (Epoch, Sequence) is the nonce of C-SMA section
// 8.3: Sequence grows within an epoch, the epoch over restarts.
type UpdateHeader struct {
	Source    string // name of the C-SMA or C-NMA; equals its certificate's
	Site      string
	Epoch     uint64
	Sequence  uint64
	Timestamp time.Time
	Kind      UpdateKind
	Base      uint64        // sequence that a DELTA, REFRESH or WITHDRAW builds on
	TTL       time.Duration // of every row
}

// Record is one CST row on the wire, from a C-SMA (C-SMA section 9).
type Record struct {
	CSID           CSID
	CSCIID         CSCIID
	Version        string
	Health         Health
	Reporting      ReportingState
	Warned         bool // accepted with a warning by validation
	Metrics        Metrics
	ReportEpoch    uint64
	ReportSequence uint64
	Age            time.Duration // since the C-SMA received the SCI's report, ms resolution
}

// MetricUpdate is what a C-SMA sends to the C-PS.
type MetricUpdate struct {
	UpdateHeader
	Records []Record
}

// Node is a node of the topology (TEDB).
type Node struct {
	Name string
	SID  netip.Addr // SRv6 End SID of a transit router; the zero Addr where the node has none
}

// Link is one direction of a link of the topology (TEDB).
type Link struct {
	From, To      string
	DelayUS       uint32
	JitterUS      uint32
	LossPPM       uint32
	BandwidthKbps uint32 // available
	TEMetric      uint32
	Age           time.Duration // since the values were measured or configured, ms resolution
}

// NetworkPath is an NST row that a C-NMA measured end to end rather than leaving it to be derived from the topology.
type NetworkPath struct {
	Headend   string
	Egress    string
	Color     uint32
	Reachable bool
	Metrics   PathMetrics
	Age       time.Duration // since it was measured, ms resolution
}

// NetworkUpdate is what a C-NMA sends to the C-PS: the topology with its measurements, or NST rows.
type NetworkUpdate struct {
	UpdateHeader
	Nodes []Node
	Links []Link
	Paths []NetworkPath
}

// ServiceRequest is what an ingress asks the C-PS for a pending flow (CP section 7, Table 2). It never carries
// application payload.
type ServiceRequest struct {
	Transaction       Transaction
	CSID              CSID // explicit identity; empty where only the address names the service
	Constraints       Constraints
	RequestGeneration Optional[uint16] // present where the client sent request metadata
	Key               FlowKey
	Ingress           string // equals the certificate's name
	Disposition       Disposition
	Remaining         time.Duration // until the pending deadline
}

// Reverse is the reverse half of a binding (CP section 7.2).
type Reverse struct {
	Service Tuple          // expected service-side tuple: instance locator to client
	Client  Tuple          // tuple delivered to the client: service address to client
	Restore netip.AddrPort // the client-visible source
	Path    Path           // egress to owner
}

// Binding is the steering binding of one flow, forward and reverse in one record (CP section 7.2). Both forwarders hold
// all of it.
type Binding struct {
	Transaction   Transaction
	Shard         Shard
	Epoch         Epoch
	Version       uint32 // grows with each change, such as path repair
	Match         FlowKey
	CSID          CSID
	ServiceNumber uint32
	CSCIID        CSCIID
	Locator       Locator
	Attachment    netip.Addr // SID of the egress attachment
	Ingress       string     // the owner
	Egress        string
	Path          Path
	Reverse       Reverse
	Idle          time.Duration
	Hard          time.Duration // zero: none
	Slots         uint32        // debited
	CSTGeneration uint64
	NSTGeneration uint64
	PolicyVersion string
	Decided       Instant
}

// BindingResult is what a forwarder says of a binding.
type BindingResult uint8

// The binding results.
const (
	BindingInstalled BindingResult = iota
	BindingRefused
	BindingEnding // the ingress saw its end: idle, hard or finished
	BindingRemoved
	BindingCounters // a periodic report only
)

// BindingStatus is a forwarder's report on one half of a binding (CP section 7, Table 2). The half is named since a
// forwarder can be ingress and egress of one flow.
type BindingStatus struct {
	Transaction Transaction
	Forwarder   string // equals the certificate's name
	Half        Half
	Version     uint32
	Result      BindingResult
	Reason      Reason // of refusal, ending or removal
	Detail      string // for a person
	Forward     Usage
	Reverse     Usage
	PathUp      bool                    // the path that this half is the head of can be used
	Expires     Optional[time.Duration] // until it ends by idle or hard lifetime if no packet comes; absent: not known here
}

// Usage are the counters of one direction of a binding.
type Usage struct {
	Packets uint64
	Octets  uint64
}

// ServiceRule is a service address that an ingress intercepts.
type ServiceRule struct {
	Number   uint32 // the catalogue's stable number
	CSID     CSID
	Prefix   netip.Prefix
	Protocol Protocol
	Port     uint16
}

// Delivery is a service-side delivery rule of an egress attachment, provisioned before traffic is admitted (CP section
// 9).
type Delivery struct {
	CSCIID  CSCIID
	Locator Locator
	SID     netip.Addr
}

// Provision is everything static that one shard's C-PS core tells a forwarder; it replaces the previous one of its shard
// as a whole, and leaves those of other shards.
type Provision struct {
	Generation uint64 // grows with each change by one owner of the shard
	Shard      Shard
	Epoch      Epoch
	Services   []ServiceRule
	Deliveries []Delivery
}

// LayoutVersion numbers the layout of a forwarder's pinned maps. It grows whenever a key or value of them changes. An
// agent refuses pins of another layout, and a C-PS a forwarder of another one: what a binding holds has to fit the maps.
const LayoutVersion = 2

// ForwarderHello opens a forwarder's session with the C-PS.
type ForwarderHello struct {
	Name          string // equals the certificate's name
	BootID        string // kernel boot; pinned state never outlives it
	LayoutVersion uint32 // of the pinned maps; see LayoutVersion
	Capabilities  Capabilities
	ReturnSID     netip.Addr // segment that ends return paths here; the zero Addr if this forwarder is no ingress
	Attachments   []ClientAttachment
	Highest       []ShardEpoch  // highest epoch seen of each shard that ever commanded here, each shard once
	Bindings      []HeldBinding // every half that is held, of every shard, each once
}

// Obeyed gives the highest epoch of a shard that the forwarder has seen; the zero Epoch: none.
func (h *ForwarderHello) Obeyed(shard Shard) Epoch {
	for _, s := range h.Highest {
		if s.Shard == shard {
			return s.Epoch
		}
	}
	return Epoch{}
}

// ShardEpoch is the ownership of one shard.
type ShardEpoch struct {
	Shard Shard
	Epoch Epoch
}

// HeldBinding is one half of a binding as a forwarder holds it.
type HeldBinding struct {
	Half    Half
	State   FlowState // Active or Draining
	Reason  Reason    // why it is Draining
	Binding Binding   // the version that is in force, or is being put in force for the first time
}

// ClientAttachment is a provisioned place where clients come in (CP section 1.2).
type ClientAttachment struct {
	Name     string
	Tenant   string
	Prefixes []netip.Prefix // source addresses that may come in there; none: every one
}

// Admits tells whether a client with this source address may come in at a.
func (a *ClientAttachment) Admits(source netip.Addr) bool {
	return len(a.Prefixes) == 0 || slices.ContainsFunc(a.Prefixes, func(p netip.Prefix) bool { return p.Contains(source) })
}

// Equal tells whether a and b are the same place with the same prefixes in the same order.
func (a ClientAttachment) Equal(b ClientAttachment) bool {
	return a.Name == b.Name && a.Tenant == b.Tenant && slices.Equal(a.Prefixes, b.Prefixes)
}
