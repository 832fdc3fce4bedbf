package cats

import (
	"fmt"
	"net/netip"
)

// The ranges of a link's measurements. MaxLinkMetric are the 24 bits of RFC 8570 and RFC 5305, so that no path of 255
// links overflows a uint32. A link of MaxLossPPM loses everything.
const (
	MaxLinkMetric = 1<<24 - 1 // delay (µs), jitter (µs) and TE metric
	MaxLossPPM    = 1_000_000
)

// Check tells whether a node can stand in a topology: it has a name, and its SID, if any, is one. The error wraps
// ReasonMalformed.
func (n Node) Check() error {
	if _, err := ParseName("node", n.Name); err != nil {
		return fmt.Errorf("%w: %w", err, ReasonMalformed)
	}
	if n.SID.IsValid() && !IsSID(n.SID) {
		return fmt.Errorf("node %s: SID %s is not an IPv6 unicast address: %w", n.Name, n.SID, ReasonMalformed)
	}
	return nil
}

// IsSID tells whether an address can be an SRv6 segment: an IPv6 unicast address without a zone.
func IsSID(a netip.Addr) bool {
	return a.Is6() && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a.Zone() == ""
}

// Check tells whether a link by itself can stand in a topology; the error names it and wraps ReasonMalformed or
// ReasonRange. A delay of 0 is refused: it is how a delay that nobody measured would look, and every path of least delay
// would take it.
func (l Link) Check() error {
	switch {
	case l.From == l.To:
		return l.wrong(ReasonMalformed, "leads to itself")
	case l.DelayUS == 0:
		return l.wrong(ReasonRange, "has no delay: need 1 to %d µs", MaxLinkMetric)
	case l.DelayUS > MaxLinkMetric:
		return l.wrong(ReasonRange, "delay %d µs is above %d", l.DelayUS, MaxLinkMetric)
	case l.JitterUS > MaxLinkMetric:
		return l.wrong(ReasonRange, "jitter %d µs is above %d", l.JitterUS, MaxLinkMetric)
	case l.LossPPM > MaxLossPPM:
		return l.wrong(ReasonRange, "loss %d ppm is above %d", l.LossPPM, MaxLossPPM)
	case l.TEMetric > MaxLinkMetric:
		return l.wrong(ReasonRange, "TE metric %d is above %d", l.TEMetric, MaxLinkMetric)
	}
	return nil
}

func (l Link) wrong(r Reason, format string, args ...any) error {
	return fmt.Errorf("link %s: %s: %w", l, fmt.Sprintf(format, args...), r)
}

// String gives "IF-1 -> R1".
func (l Link) String() string { return l.From + " -> " + l.To }
