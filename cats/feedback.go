package cats

// FeedbackKind is what the C-PS says to a C-SMA or C-NMA.
type FeedbackKind uint8

// The kinds of feedback.
const (
	FeedbackHello    FeedbackKind = iota // opens the session: Epoch and Sequence of the last applied update, zero: none
	FeedbackApplied                      // Epoch and Sequence of the update; RowRefusals: rows of it that were not taken
	FeedbackRefused                      // Epoch and Sequence of the update, which changed nothing; Reason, Detail
	FeedbackNeedFull                     // the next update has to be FULL; Epoch and Sequence of the last applied one
	FeedbackQuery                        // wants current values of CSIDs; none: of all, as FULL
	FeedbackPolicy                       // wants Policy at the C-SMA; never to a C-NMA
)

// String gives HELLO, APPLIED, REFUSED, NEED_FULL, QUERY or POLICY.
func (k FeedbackKind) String() string {
	return name([]string{"HELLO", "APPLIED", "REFUSED", "NEED_FULL", "QUERY", "POLICY"}, k)
}

// Feedback is one message of the C-PS to a C-SMA or C-NMA (C-SMA sections 8.3 and 9.3).
type Feedback struct {
	Kind        FeedbackKind
	Epoch       uint64
	Sequence    uint64
	Reason      Reason
	Detail      string // for a person
	CSIDs       []CSID
	RowRefusals []RowRefusal
	Policy      PolicyUpdate
}

// RowRefusal is a row that the C-PS did not take while the rest of its update was applied.
type RowRefusal struct {
	CSID   CSID
	CSCIID CSCIID
	Reason Reason
}

// PolicyUpdate is a policy that the C-PS wants at a C-SMA (C-SMA section 7); the local operator's rule wins over it.
type PolicyUpdate struct {
	Generation uint64
	Document   string // in the YAML form of the C-SMA's own policy file
}

// PolicyResult is what became of a PolicyUpdate.
type PolicyResult struct {
	Generation uint64
	Reason     Reason // why it was refused; ReasonNone: applied
	Detail     string // the place and the error, for a person
}

// Disposal is what became of an SCI's report (C-SMA section 4.2).
type Disposal uint8

// What can become of a report. A quarantined one proves liveness, but its values are kept aside.
const (
	ReportAccepted Disposal = iota
	ReportQuarantined
	ReportRefused
)

// String gives accepted, quarantined or refused.
func (d Disposal) String() string { return name([]string{"accepted", "quarantined", "refused"}, d) }

// ReportVerdict is the C-SMA's answer to one report of an SCI.
type ReportVerdict struct {
	Epoch    uint64
	Sequence uint64
	Disposal Disposal
	Reason   Reason // of quarantine or refusal, or the warning
	Detail   string // the field and value, for a person
}

// AuthAlgorithm is how an update is sealed (C-SMA section 8.3).
type AuthAlgorithm uint8

// The algorithms. AuthNone: not sealed.
const (
	AuthNone AuthAlgorithm = iota
	AuthEd25519
	AuthHMACSHA256
)

// String gives none, ed25519 or hmac-sha256.
func (a AuthAlgorithm) String() string {
	return name([]string{"none", "ed25519", "hmac-sha256"}, a)
}

// Auth is the signature or message authentication code of an update.
type Auth struct {
	Algorithm AuthAlgorithm
	KeyID     string // name of the key at the receiver
	Value     []byte
}
