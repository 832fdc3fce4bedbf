package capture

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/margay-net/margay/cats"
)

// Flow picks the packets of a flow, of both directions, by one or both of its ends. It looks at inner packets, so that one
// Flow picks them before, in and behind an encapsulation; by the client's end alone also on both sides of a forwarder
// that rewrites the other.
type Flow struct {
	protocol cats.Protocol // 0: any
	ends     []flowEnd     // 1 or 2
}

type flowEnd struct {
	addr netip.Addr
	port uint16 // 0: any
}

const flowForm = "need a flow such as \"udp 192.0.2.10:51000\" or \"tcp 192.0.2.10 192.0.2.100:443\": tcp or udp or neither, and one or two addresses with or without a port"

// ParseFlow reads "[tcp|udp] ADDRESS[:PORT] [ADDRESS[:PORT]]"; an IPv6 address with a port is in brackets.
func ParseFlow(s string) (*Flow, error) {
	f := &Flow{}
	words := strings.Fields(s)
	if len(words) > 0 {
		if p, err := cats.ParseProtocol(strings.ToLower(words[0])); err == nil {
			f.protocol, words = p, words[1:]
		}
	}
	if len(words) < 1 || len(words) > 2 {
		return nil, fmt.Errorf("flow %q: %s", s, flowForm)
	}
	for _, w := range words {
		e, err := parseEnd(w)
		if err != nil {
			return nil, fmt.Errorf("flow %q: %w; %s", s, err, flowForm)
		}
		f.ends = append(f.ends, e)
	}
	return f, nil
}

func parseEnd(s string) (flowEnd, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return flowEnd{addr: a.Unmap()}, nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return flowEnd{}, fmt.Errorf("%q is neither an address nor one with a port", s)
	}
	return flowEnd{a.Addr().Unmap(), a.Port()}, nil
}

// Match tells whether a packet is of the flow.
func (f *Flow) Match(p *Packet) bool {
	if f.protocol != 0 && f.protocol != p.Tuple.Protocol {
		return false
	}
	source, target := p.Tuple.Source, p.Tuple.Target
	one := f.ends[0]
	if len(f.ends) == 1 {
		return one.is(source) || one.is(target)
	}
	other := f.ends[1]
	return one.is(source) && other.is(target) || one.is(target) && other.is(source)
}

func (e flowEnd) is(a netip.AddrPort) bool {
	return e.addr == a.Addr() && (e.port == 0 || e.port == a.Port())
}
