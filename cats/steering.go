package cats

// Half is the part of a binding that one forwarder carries out. Each half holds both directions there: the ingress half
// rewrites and encapsulates forward and restores the source in reverse, the egress half delivers forward and
// encapsulates in reverse.
type Half uint8

// The halves of a binding.
const (
	IngressHalf Half = iota
	EgressHalf
)

// String gives "ingress" or "egress".
func (h Half) String() string { return name([]string{"ingress", "egress"}, h) }

// Install orders one half of a binding into a forwarder. The egress half is committed first (CP sections 7.2 and 8.4).
// Sent again for a transaction with a higher Version it replaces the binding; with the same one it is answered again.
type Install struct {
	Half    Half
	Binding Binding
}

// Drain marks one half of a binding as DRAINING: packets still pass and refresh nothing (CP section 10).
type Drain struct {
	Transaction Transaction
	Shard       Shard
	Epoch       Epoch
	Half        Half
	Reason      Reason
}

// Remove takes one half of a binding out of a forwarder. It is idempotent: an unknown transaction is answered as
// removed.
type Remove struct {
	Transaction Transaction
	Shard       Shard
	Epoch       Epoch
	Half        Half
	Reason      Reason
}

// Refuse ends a pending flow at the ingress without a binding (CP section 11).
type Refuse struct {
	Transaction Transaction
	Shard       Shard
	Epoch       Epoch
	Reason      Reason
	Stage       string // with ReasonNoCandidate: the first filter that left nothing
	Detail      string // for a person
}

// SteeringBatch is one message of the C-PS to a forwarder; its parts are carried out in the order of the fields.
type SteeringBatch struct {
	Provision *Provision // nil: unchanged
	Removes   []Remove
	Drains    []Drain
	Installs  []Install
	Refusals  []Refuse
}

// IsEmpty tells whether there is nothing to send.
func (b *SteeringBatch) IsEmpty() bool {
	return b.Provision == nil && len(b.Removes)+len(b.Drains)+len(b.Installs)+len(b.Refusals) == 0
}

// Provisioned is a forwarder's acknowledgement of a Provision. Deliveries lists the contact instances of that Provision
// whose delivery rule is in place; only these admit traffic (CP section 9).
type Provisioned struct {
	Forwarder  string
	Shard      Shard
	Generation uint64
	Deliveries []CSCIID
	Reason     Reason // why the whole was refused; ReasonNone: applied
	Detail     string
}

// ForwarderBatch is one message of a forwarder to the C-PS. Hello is set in the first of a session, and only there.
type ForwarderBatch struct {
	Hello       *ForwarderHello
	Attachments []ClientAttachment // not nil: replaces those of the hello
	Provisioned []Provisioned      // each shard at most once
	Statuses    []BindingStatus
	Requests    []ServiceRequest
}

// IsEmpty tells whether there is nothing to send.
func (b *ForwarderBatch) IsEmpty() bool {
	return b.Hello == nil && b.Attachments == nil && len(b.Provisioned)+len(b.Statuses)+len(b.Requests) == 0
}
