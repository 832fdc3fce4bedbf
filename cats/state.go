package cats

import "fmt"

// Health is the operational state of a service contact instance (C-SMA section 5.3).
type Health uint8

// The health states. The zero value is HealthUnknown: nothing observed yet.
const (
	HealthUnknown Health = iota
	Healthy
	Degraded
	Unhealthy
)

// ReportingState is the reliability of an SCI as a source of reports, apart from the health of what it reports on
// (C-SMA section 5.3).
type ReportingState uint8

// The reporting states. ReportingActive: discovered, no valid report yet.
const (
	ReportingActive ReportingState = iota
	ReportingHealthy
	ReportingStale
	ReportingFailed
)

// Validity is the soft state of a CST or NST row: valid until its ttl, stale until ttl and grace, then expired; or
// withdrawn by its source (CP sections 5 and 13.1).
type Validity uint8

// The validity states.
const (
	Valid Validity = iota
	Stale
	Expired
	Withdrawn
)

// FlowState is a state of the centralized flow state machine (CP section 10, Figure 3).
type FlowState uint8

// The eight flow states.
const (
	Absent FlowState = iota
	Pending
	DestinationSelected
	BindingReady
	Active
	Draining
	Failed
	ReconnectRequired
)

// Disposition tells what an ingress did with the packet that caused a service request (CP section 7, Table 2).
type Disposition uint8

// Held: the packet itself is buffered. Retained: enough of it to send it again.
const (
	Held Disposition = iota
	Retained
)

var (
	healthNames      = []string{"UNKNOWN", "HEALTHY", "DEGRADED", "UNHEALTHY"}
	reportingNames   = []string{"ACTIVE", "HEALTHY", "STALE", "FAILED"}
	validityNames    = []string{"VALID", "STALE", "EXPIRED", "WITHDRAWN"}
	flowStateNames   = []string{"ABSENT", "PENDING", "DESTINATION_SELECTED", "BINDING_READY", "ACTIVE", "DRAINING", "FAILED", "RECONNECT_REQUIRED"}
	dispositionNames = []string{"HELD", "RETAINED"}
)

func name[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("invalid(%d)", v)
}

// String gives the name that the drafts use.
func (h Health) String() string { return name(healthNames, h) }

// String gives the name that the drafts use.
func (r ReportingState) String() string { return name(reportingNames, r) }

// String gives VALID, STALE, EXPIRED or WITHDRAWN.
func (v Validity) String() string { return name(validityNames, v) }

// String gives the name that Figure 3 uses.
func (s FlowState) String() string { return name(flowStateNames, s) }

// String gives HELD or RETAINED.
func (d Disposition) String() string { return name(dispositionNames, d) }
