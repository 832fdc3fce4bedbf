package cats

import "fmt"

// Optional is a value that may be absent; absent is not zero, and a hard bound on an absent value fails.
type Optional[T any] struct {
	Value   T
	Present bool
}

// Some gives a present value.
func Some[T any](v T) Optional[T] { return Optional[T]{Value: v, Present: true} }

// The ranges of the registered metric definitions (C-SMA section 4.2). GAS and price use the whole uint32.
const (
	MaxComputingTimeMS = 3_600_000
	MaxReputation      = 10
	MaxSecurityLevel   = 10
)

// Metrics are the service-oriented metrics of one service at one contact instance (C-SMA sections 4.2 and 5.1).
type Metrics struct {
	GAS             uint32             // Global Available Slots: concurrent requests
	InFlight        uint32             // slots in use when reported
	ComputingTimeMS uint32             // time to perform one request, ms, rounded up, 0..3,600,000
	Price           Optional[uint32]   // milli-units of currency per request
	Reputation      Optional[uint8]    // 0..10, higher is better
	SecurityLevel   Optional[uint8]    // 0..10, higher is stricter
	AcceptedTotal   Optional[uint64]   // monotone count of accepted requests
	FinishedTotal   Optional[uint64]   // monotone count of finished requests
	Extensions      map[string]float64 // further registered metrics by name; shed first under load
}

// CheckRange gives ReasonRange, wrapped with the field, when a value is outside its registered range.
func (m *Metrics) CheckRange() error {
	switch {
	case m.ComputingTimeMS > MaxComputingTimeMS:
		return fmt.Errorf("computing_time_ms %d above %d: %w", m.ComputingTimeMS, MaxComputingTimeMS, ReasonRange)
	case m.Reputation.Present && m.Reputation.Value > MaxReputation:
		return fmt.Errorf("reputation %d above %d: %w", m.Reputation.Value, MaxReputation, ReasonRange)
	case m.SecurityLevel.Present && m.SecurityLevel.Value > MaxSecurityLevel:
		return fmt.Errorf("security_level %d above %d: %w", m.SecurityLevel.Value, MaxSecurityLevel, ReasonRange)
	}
	for name, v := range m.Extensions {
		if v != v || v > 1e300 || v < -1e300 {
			return fmt.Errorf("extension %q is not a finite number: %w", name, ReasonRange)
		}
	}
	return nil
}

// Constraints are the optional network and computing constraints of a client request (CP section 6); a bound that is
// absent does not apply. Hard bounds remove candidates, Preferences only reorder equals.
type Constraints struct {
	Hard        Bounds
	Preferences Bounds
}

// IsZero tells whether no constraint at all was given.
func (c Constraints) IsZero() bool { return c == Constraints{} }

// Bounds is one set of limits on network and computing metrics.
type Bounds struct {
	MaxDelayUS         Optional[uint32] // one-way network delay, µs
	MaxJitterUS        Optional[uint32] // µs
	MinBandwidthKbps   Optional[uint32] // kbit/s
	MaxLossPPM         Optional[uint32] // parts per million
	MaxRealDelayUS     Optional[uint32] // computing time plus network delay, µs
	MinSlots           Optional[uint32] // slots
	MaxComputingTimeMS Optional[uint32] // ms
	MaxPrice           Optional[uint32] // milli-units of currency
	MinSecurity        Optional[uint8]  // 0..10
	MinReputation      Optional[uint8]  // 0..10
	TargetPrice        Optional[uint32] // milli-units of currency; a preference only
}
