package kernel

import (
	"fmt"
	"net/netip"
)

// MAC is an Ethernet address, comparable.
type MAC [6]byte

// String gives the usual colon form.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// HopState tells whether packets can be sent over a Hop.
type HopState uint8

// The states of a Hop. The zero value is HopNoRoute.
const (
	HopNoRoute    HopState = iota // no usable route; see Hop.Detail
	HopLocal                      // the destination is this host's own address
	HopDown                       // there is a route, but its interface has no carrier
	HopUnresolved                 // interface and gateway are known, the neighbour's MAC is not; the kernel is being asked
	HopResolved                   // complete
)

var hopStateNames = []string{"no-route", "local", "down", "unresolved", "resolved"}

// String gives the state in lower case.
func (s HopState) String() string {
	if int(s) < len(hopStateNames) {
		return hopStateNames[s]
	}
	return fmt.Sprintf("invalid(%d)", uint8(s))
}

// Hop is the next hop toward a destination as the kernel would choose it.
type Hop struct {
	Destination netip.Addr // what was asked for
	State       HopState
	Index       int        // of the outgoing interface; from HopDown on
	Interface   string     // its name; from HopDown on
	Gateway     netip.Addr // neighbour that takes the packet; Destination itself where that is on the link; from HopDown on
	Source      MAC        // of the outgoing interface; from HopDown on
	Neighbor    MAC        // of the gateway; only when HopResolved
	MTU         int        // of the route or the interface, whichever is less, octets; from HopDown on
	Detail      string     // for a person: why there is no route
}

// Resolved tells whether a packet can be addressed and sent.
func (h Hop) Resolved() bool { return h.State == HopResolved }

// String gives one line for logs.
func (h Hop) String() string {
	switch h.State {
	case HopNoRoute, HopLocal:
		return fmt.Sprintf("%s %s (%s)", h.Destination, h.State, h.Detail)
	case HopResolved:
		return fmt.Sprintf("%s via %s dev %s lladdr %s mtu %d", h.Destination, h.Gateway, h.Interface, h.Neighbor, h.MTU)
	}
	return fmt.Sprintf("%s via %s dev %s %s", h.Destination, h.Gateway, h.Interface, h.State)
}
