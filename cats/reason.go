package cats

import (
	"errors"
	"fmt"
)

// Reason is one of the closed list of reasons that API, logs, metrics and events share. It is an error, so that code
// wraps it with context and maps it once at its edge with errors.As.
type Reason uint8

// The closed list. ReasonNone is the absence of a reason.
const (
	ReasonNone Reason = iota

	// Refusals of a request.
	ReasonMalformed
	ReasonVersion
	ReasonUnknownType
	ReasonDuplicate
	ReasonIdentityConflict
	ReasonUnknownService
	ReasonUnauthorized
	ReasonNoCandidate
	ReasonNoPath
	ReasonCapabilityMismatch
	ReasonCommitFailed
	ReasonTimeout
	ReasonOverload
	ReasonStaleState

	// Packets.
	ReasonNoBinding
	ReasonUnknownSID
	ReasonBadContext
	ReasonStaleEpoch
	ReasonTTLExceeded
	ReasonTooBig
	ReasonBadPacket
	ReasonNoNeighbor
	ReasonTableFull
	ReasonHeldFull
	ReasonHeldExpired
	ReasonTupleInUse

	// Reports.
	ReasonRange
	ReasonRateOfChange
	ReasonFlapping
	ReasonSequence
	ReasonReplay
	ReasonConsistency
	ReasonOversize
	ReasonBadSignature
	ReasonRevoked
	ReasonPolicy

	// Removal of a binding. ReasonRevoked serves here too.
	ReasonIdle
	ReasonHard
	ReasonFinished
	ReasonInstanceFailed
	ReasonDrained
	ReasonSuperseded
	ReasonOperator

	reasonCount
)

var reasonNames = [reasonCount]string{
	"none", "malformed", "version", "unknown-type", "duplicate", "identity-conflict", "unknown-service", "unauthorized",
	"no-candidate", "no-path", "capability-mismatch", "commit-failed", "timeout", "overload", "stale-state",
	"no-binding", "unknown-sid", "bad-context", "stale-epoch", "ttl-exceeded", "too-big", "bad-packet", "no-neighbor",
	"table-full", "held-full", "held-expired", "tuple-in-use",
	"range", "rate-of-change", "flapping", "sequence", "replay", "consistency", "oversize", "bad-signature", "revoked",
	"policy",
	"idle", "hard", "finished", "instance-failed", "drained", "superseded", "operator",
}

// String gives the reason as it stands in API, logs, metrics and events.
func (r Reason) String() string {
	if r < reasonCount {
		return reasonNames[r]
	}
	return fmt.Sprintf("invalid(%d)", uint8(r))
}

// Error makes a Reason an error.
func (r Reason) Error() string { return r.String() }

// ReasonOf gives the reason that err wraps; ReasonNone where it wraps none.
func ReasonOf(err error) Reason {
	var r Reason
	if errors.As(err, &r) {
		return r
	}
	return ReasonNone
}

// ParseReason reads what String wrote.
func ParseReason(s string) (Reason, error) {
	for i, n := range reasonNames {
		if n == s {
			return Reason(i), nil
		}
	}
	return ReasonNone, fmt.Errorf("reason %q is not in the closed list", s)
}

// Reasons lists every reason but ReasonNone, in order; for metrics that pre-register their labels.
func Reasons() []Reason {
	all := make([]Reason, 0, reasonCount-1)
	for r := ReasonNone + 1; r < reasonCount; r++ {
		all = append(all, r)
	}
	return all
}
