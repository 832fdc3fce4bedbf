// Package catalogue holds what the domain's operator publishes: services, their deployments and the client attachments
// (the service context of CP section 5). A Catalogue is immutable and free of contradictions: New refuses a set of
// records that contradict one another and names every contradiction.
package catalogue

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/margay-net/margay/cats"
)

// ServiceState is the life of a service in the catalogue.
type ServiceState uint8

// The service states. A DRAFT is not yet intercepted; a DEPRECATED service keeps its flows and admits nothing new.
const (
	Draft ServiceState = iota
	Published
	Deprecated
	Withdrawn
)

// DeploymentState is the life of one instance of a service; only VALIDATED ones are candidates.
type DeploymentState uint8

// The deployment states.
const (
	Applied DeploymentState = iota
	Validating
	Validated
	Revoked
)

// GASMode tells what a service's reports mean by Global Available Slots.
type GASMode uint8

// Ceiling: the most concurrent requests, used ones included. Remaining: the ones still free.
const (
	Ceiling GASMode = iota
	Remaining
)

// Policy is the ranking of eligible candidates.
type Policy uint8

// Latency ranks by real delay (computing time plus network delay), Service by computing time and then slots, Network
// by network delay.
const (
	Latency Policy = iota
	Service
	Network
)

// TieBreak orders candidates that the policy finds equal.
type TieBreak uint8

// Spread shares flows over equals in proportion to their slots, so that flows do not herd between two reports. Strict
// takes more slots, lower price, higher reputation and security, lower TE metric, then byte order.
const (
	Spread TieBreak = iota
	Strict
)

var (
	serviceStateNames    = []string{"DRAFT", "PUBLISHED", "DEPRECATED", "WITHDRAWN"}
	deploymentStateNames = []string{"APPLIED", "VALIDATING", "VALIDATED", "REVOKED"}
	gasModeNames         = []string{"ceiling", "remaining"}
	policyNames          = []string{"latency", "service", "network"}
	tieBreakNames        = []string{"spread", "strict"}
)

func name[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("invalid(%d)", uint8(v))
}

func parse[T ~uint8](to *T, what string, names []string, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("%s %q: need one of %s", what, text, strings.Join(names, ", "))
	}
	*to = T(i)
	return nil
}

// String gives DRAFT, PUBLISHED, DEPRECATED or WITHDRAWN.
func (s ServiceState) String() string { return name(serviceStateNames, s) }

// String gives APPLIED, VALIDATING, VALIDATED or REVOKED.
func (s DeploymentState) String() string { return name(deploymentStateNames, s) }

// String gives "ceiling" or "remaining".
func (m GASMode) String() string { return name(gasModeNames, m) }

// String gives "latency", "service" or "network".
func (p Policy) String() string { return name(policyNames, p) }

// String gives "spread" or "strict".
func (t TieBreak) String() string { return name(tieBreakNames, t) }

// UnmarshalText reads what String wrote.
func (s *ServiceState) UnmarshalText(text []byte) error {
	return parse(s, "service state", serviceStateNames, text)
}

// UnmarshalText reads what String wrote.
func (s *DeploymentState) UnmarshalText(text []byte) error {
	return parse(s, "deployment state", deploymentStateNames, text)
}

// UnmarshalText reads what String wrote.
func (m *GASMode) UnmarshalText(text []byte) error { return parse(m, "GAS mode", gasModeNames, text) }

// UnmarshalText reads what String wrote.
func (p *Policy) UnmarshalText(text []byte) error { return parse(p, "policy", policyNames, text) }

// UnmarshalText reads what String wrote.
func (t *TieBreak) UnmarshalText(text []byte) error {
	return parse(t, "tie break", tieBreakNames, text)
}

// Address is where clients reach a service: packets to Prefix, Protocol and Port are intercepted (CP section 6).
type Address struct {
	Prefix   netip.Prefix
	Protocol cats.Protocol
	Port     uint16
}

// String gives "tcp 192.0.2.100/32:443".
func (a Address) String() string { return fmt.Sprintf("%s %s:%d", a.Protocol, a.Prefix, a.Port) }

// ServiceRecord is one service, wherever its instances are.
type ServiceRecord struct {
	CSID        cats.CSID
	Number      uint32 // stable, never given to another service; above 0
	Name        string // for people
	Version     string // the one that deployments must have
	State       ServiceState
	GASMode     GASMode
	Addresses   []Address
	Policy      Policy
	BandPercent uint8 // of the best value; candidates within it are equal; 0 to 100, 0: only the same value
	TieBreak    TieBreak
	Tenants     []string // that may use it
	// StrictReturn fails a flow without a computed return path; otherwise its return packets are encapsulated to the
	// ingress alone and follow ordinary routing there.
	StrictReturn bool
	Idle         time.Duration // after which a flow without packets ends; above 0
	Hard         time.Duration // longest life of a flow; zero: none
}

// EgressAttachment joins an egress forwarder and an instance; its SID is END.DX-like: it names the instance, not only
// the forwarder.
type EgressAttachment struct {
	Forwarder string
	SID       netip.Addr
}

// Deployment is one service at one service contact instance.
type Deployment struct {
	Site    string
	CSCIID  cats.CSCIID
	CSID    cats.CSID
	Version string
	State   DeploymentState
	Locator cats.Locator
	Egress  []EgressAttachment
}

// Attachment is a place where clients of one tenant come in (CP section 1.2).
type Attachment struct {
	Ingress string // forwarder
	Name    string
	Tenant  string
}

// Records is the content of a catalogue.
type Records struct {
	Services    []ServiceRecord
	Deployments []Deployment
	Attachments []Attachment
}
