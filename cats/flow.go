package cats

import (
	"fmt"
	"net/netip"
)

// Protocol is an IP protocol number that a service can be reached over.
type Protocol uint8

// The transport protocols of services.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// String gives "tcp", "udp" or the number.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("%d", uint8(p))
}

// ParseProtocol reads "tcp" or "udp".
func ParseProtocol(s string) (Protocol, error) {
	switch s {
	case "tcp":
		return TCP, nil
	case "udp":
		return UDP, nil
	}
	return 0, fmt.Errorf("protocol %q: need tcp or udp", s)
}

// Tuple is the five-tuple of one direction of a flow.
type Tuple struct {
	Protocol Protocol
	Source   netip.AddrPort
	Target   netip.AddrPort
}

// Reverse gives the tuple of the other direction.
func (t Tuple) Reverse() Tuple {
	return Tuple{Protocol: t.Protocol, Source: t.Target, Target: t.Source}
}

// String gives "tcp 192.0.2.10:51000 -> 192.0.2.100:443".
func (t Tuple) String() string { return fmt.Sprintf("%s %s -> %s", t.Protocol, t.Source, t.Target) }

// FlowKey is what an ingress matches a flow by: the client attachment it came in on, that attachment's tenant, and the
// client-side tuple (CP sections 8.1 and 8.5).
type FlowKey struct {
	Attachment string
	Tenant     string
	Tuple      Tuple
}

// String gives "client-1/default tcp a -> b".
func (k FlowKey) String() string { return k.Attachment + "/" + k.Tenant + " " + k.Tuple.String() }

// Locator is where an instance is reached on the network; it comes from the catalogue, never from a CSCI-ID.
type Locator struct {
	Protocol Protocol
	Address  netip.AddrPort
}

// String gives "tcp 198.51.100.21:443".
func (l Locator) String() string { return l.Protocol.String() + " " + l.Address.String() }
