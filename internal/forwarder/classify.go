package forwarder

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-net/margay/cats"
)

// key is a flow key without pointers: IPv4 addresses stand in their IPv6-mapped form, attachments as numbers that the
// core gives out.
type key struct {
	source, target         [16]byte
	sourcePort, targetPort uint16
	attachment             uint16
	protocol               cats.Protocol
}

// client is whom the admission limits count by: a client of one attachment.
type client struct {
	prefix     netip.Prefix
	attachment uint16
}

func (k *key) client() client {
	return client{cats.ClientOf(netip.AddrFrom16(k.source)), k.attachment}
}

func tupleKey(attachment uint16, t cats.Tuple) key {
	return key{
		source: t.Source.Addr().As16(), target: t.Target.Addr().As16(),
		sourcePort: t.Source.Port(), targetPort: t.Target.Port(),
		attachment: attachment, protocol: t.Protocol,
	}
}

// anyAttachment is the attachment number of service-side tuples.
const anyAttachment = 0

// numberOf gives the number of an attachment name; a name keeps its number as long as the core lives.
func (c *Core) numberOf(attachment string) uint16 {
	n, ok := c.numbers[attachment]
	if !ok {
		n = uint16(len(c.numbers) + 1)
		c.numbers[attachment] = n
	}
	return n
}

// checkTuple gives ReasonBadPacket for what cannot be a packet of a steered flow.
func checkTuple(t cats.Tuple) error {
	source, target := t.Source.Addr(), t.Target.Addr()
	switch {
	case t.Protocol != cats.TCP && t.Protocol != cats.UDP:
		return fmt.Errorf("protocol %d is neither tcp nor udp: %w", t.Protocol, cats.ReasonBadPacket)
	case !source.IsValid() || !target.IsValid() || source.Is4() != target.Is4():
		return fmt.Errorf("addresses %s and %s are not of one family: %w", source, target, cats.ReasonBadPacket)
	case source.Is4In6() || target.Is4In6():
		return fmt.Errorf("an IPv4-mapped IPv6 address on the wire: %w", cats.ReasonBadPacket)
	case t.Source.Port() == 0 || t.Target.Port() == 0:
		return fmt.Errorf("port 0 in %s: %w", t, cats.ReasonBadPacket)
	case source.IsUnspecified() || source.IsMulticast():
		return fmt.Errorf("the source %s is no host's address: %w", source, cats.ReasonBadPacket)
	case source.Zone() != "" || target.Zone() != "":
		return fmt.Errorf("a zone in a flow's address: %w", cats.ReasonBadPacket)
	}
	return nil
}

// serviceTable is what a Provision says of services, in a form to look up.
type serviceTable struct {
	rules    map[servicePort][]cats.ServiceRule // longest prefix first
	byNumber map[uint32]cats.CSID
}

type servicePort struct {
	protocol cats.Protocol
	port     uint16
}

func newServiceTable(rules []cats.ServiceRule) serviceTable {
	t := serviceTable{rules: make(map[servicePort][]cats.ServiceRule), byNumber: make(map[uint32]cats.CSID)}
	for _, r := range rules {
		p := servicePort{r.Protocol, r.Port}
		t.rules[p] = append(t.rules[p], r)
		t.byNumber[r.Number] = r.CSID
	}
	for _, list := range t.rules {
		slices.SortStableFunc(list, func(a, b cats.ServiceRule) int { return b.Prefix.Bits() - a.Prefix.Bits() })
	}
	return t
}

// service gives the CS-ID whose address a tuple goes to.
func (t *serviceTable) service(protocol cats.Protocol, target netip.AddrPort) (cats.CSID, bool) {
	for _, r := range t.rules[servicePort{protocol, target.Port()}] {
		if r.Prefix.Contains(target.Addr()) {
			return r.CSID, true
		}
	}
	return "", false
}

// owner gives the one service that owns an address, on any port: of several, the longest prefix, if it is one
// service's alone.
func (t *serviceTable) owner(address netip.Addr) (id cats.CSID, ok bool) {
	longest := -1
	for _, list := range t.rules {
		for _, r := range list {
			switch {
			case !r.Prefix.Contains(address) || r.Prefix.Bits() < longest:
			case r.Prefix.Bits() > longest:
				id, ok, longest = r.CSID, true, r.Prefix.Bits()
			case r.CSID != id:
				ok = false
			}
		}
	}
	return id, ok
}

// explicit resolves an explicit identity to a CS-ID. A name is left to the C-PS, which knows the catalogue.
func (t *serviceTable) explicit(i Identity, tuple cats.Tuple) (cats.CSID, error) {
	switch {
	case i.Name != "":
		return i.Name, nil
	case i.Number != 0:
		if id, ok := t.byNumber[i.Number]; ok {
			return id, nil
		}
		return "", fmt.Errorf("no service has the number %d: %w", i.Number, cats.ReasonUnknownService)
	}
	if id, ok := t.service(tuple.Protocol, netip.AddrPortFrom(i.Address, tuple.Target.Port())); ok {
		return id, nil
	}
	if id, ok := t.owner(i.Address); ok {
		return id, nil
	}
	return "", fmt.Errorf("no one service owns the address %s: %w", i.Address, cats.ReasonUnknownService)
}

// identify settles which service a tuple asks for, from its target address and from an explicit identity. The result
// is the explicit CS-ID, empty where only the address names the service. Two that disagree are never combined (CP
// section 6).
func (t *serviceTable) identify(tuple cats.Tuple, i Identity) (cats.CSID, error) {
	byAddress, known := t.service(tuple.Protocol, tuple.Target)
	if i.IsZero() {
		if !known {
			return "", fmt.Errorf("%s %s is no service address: %w", tuple.Protocol, tuple.Target, cats.ReasonUnknownService)
		}
		return "", nil
	}
	id, err := t.explicit(i, tuple)
	if err != nil {
		return "", err
	}
	if known && id != byAddress {
		return "", fmt.Errorf("the request names %s, but %s %s is an address of %s: %w",
			id, tuple.Protocol, tuple.Target, byAddress, cats.ReasonIdentityConflict)
	}
	return id, nil
}

// admits tells whether a client with this source address may come in at the named attachment.
func (c *Core) admits(attachment string, source netip.Addr) (*Attachment, bool) {
	a, ok := c.attachments[attachment]
	return a, ok && a.Contains(source)
}
