package demo

import (
	"fmt"
	"net/netip"
	"strings"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/lab/capture"
)

// narrate goes through the seven steps of section 14 with what was seen at each.
func (s *stage) narrate(announced string, w *wire, c *conversation, row *api.BindingRow, before, after calls) {
	b := row.GetBinding()
	sent, _ := find(w.client.Packets(), cats.Tuple{Protocol: cats.TCP, Source: client, Target: service}, true)
	delivered, _ := find(w.client.Packets(), cats.Tuple{Protocol: cats.TCP, Source: service, Target: client}, false)
	steered, returned := first(w.core(toInstance)), first(w.core(toClient))
	arrived, _ := find(w.b.Packets(), toInstance, false)
	answered, _ := find(w.b.Packets(), toClient, true)
	path, back := segments(b.GetForward().GetPath().GetSegments()), segments(b.GetReverse().GetPath().GetSegments())

	s.step(1, "IF-1 gets the packet, reads the request metadata, finds no binding, holds the packet, asks the C-PS.")
	s.note("$ margay request …: %s", strings.TrimSpace(announced))
	s.compare("client-facing packet", "192.0.2.10:51000 -> 192.0.2.100:443", flow(sent))
	s.compare("packets held, requests to the C-PS", "1, 1", fmt.Sprintf("%d, %d", c.between.held-before.held, c.between.serviceRequests-before.serviceRequests))

	s.step(2, "The C-PS resolves S1, filters, joins with the NST, selects.")
	s.compare("service, egress", "S1, EF-2", b.GetCsId()+", "+b.GetEgress())
	s.compare("instance", "B", c.first.greeting.Instance)

	s.step(3, "The C-PS asks its PCE for a path IF-1 to EF-2 within the bound that remains.")
	s.compare("headend, end of the list", "IF-1, attachment of B at EF-2", b.GetOwner()+", "+s.attachment(path))
	s.note("nodes %s, delay %g ms of at most %s", strings.Join(b.GetForward().GetPath().GetNodes(), " > "),
		float64(b.GetForward().GetPath().GetDelayUs())/1000, maxDelay)
	s.compare("path computations (forward, return)", "2", fmt.Sprint(c.between.pathRequests-before.pathRequests))

	s.step(4, "The C-PS sends the binding: match, destination replacement, path, delivery at EF-2.")
	s.compare("match", flow(sent), endpoints(b.GetMatch().GetTuple()))
	s.compare("replace the destination by", "198.51.100.21:443", endpoint(b.GetForward().GetLocator().GetAddress(), b.GetForward().GetLocator().GetPort()))

	s.step(5, "IF-1 commits both directions, rewrites the held packet, encapsulates it, sends it toward EF-2.")
	s.compare("packet after ingress steering", "192.0.2.10:51000 -> 198.51.100.21:443", flow(steered))
	s.compare("outer header: segments", path, outer(steered))
	s.compare("checksums of the rewritten packet", "valid", checksums(steered))
	s.compare("TTL of the rewritten packet", fmt.Sprint(sent.TTL-1), fmt.Sprint(steered.TTL))

	s.step(6, "EF-2 removes the encapsulation and delivers to B; the answer's source is restored.")
	s.compare("packet at the instance", "192.0.2.10:51000 -> 198.51.100.21:443", flow(arrived)+encapsulated(arrived))
	s.compare("checksums, TTL at the instance", fmt.Sprintf("valid, %d", sent.TTL-2), fmt.Sprintf("%s, %d", checksums(arrived), arrived.TTL))
	s.compare("answer before reverse processing", "198.51.100.21:443 -> 192.0.2.10:51000", flow(answered))
	s.compare("answer between EF-2 and IF-1", "198.51.100.21:443 -> 192.0.2.10:51000", flow(returned))
	s.compare("its segments", back, outer(returned))
	s.compare("packet delivered to the client", "192.0.2.100:443 -> 192.0.2.10:51000", flow(delivered)+encapsulated(delivered))
	s.compare("its checksums", "valid", checksums(delivered))

	s.step(7, "Later packets use the binding; the C-PS and the PCE hear nothing of them.")
	later := c.second.asked
	s.compare("second request answered by", c.first.greeting.Instance, c.second.greeting.Instance)
	s.compare("requests to the C-PS, to the PCE", "0, 0",
		fmt.Sprintf("%d, %d", after.serviceRequests-c.between.serviceRequests, after.pathRequests-c.between.pathRequests))
	s.compare("packets of the flow at instance A", "0", fmt.Sprint(count(w.a.Packets(), func(p *capture.Packet) bool { return p.Tuple.Source == client })))
	s.note("%d packets came to B, %d of them after the second request", count(w.b.Packets(), func(p *capture.Packet) bool { return p.Tuple == toInstance }),
		count(w.b.Packets(), func(p *capture.Packet) bool { return p.Tuple == toInstance && p.At.After(later) }))
}

func first(packets []capture.Packet) capture.Packet {
	if len(packets) == 0 {
		return capture.Packet{}
	}
	return packets[0]
}

func flow(p capture.Packet) string { return p.Tuple.Source.String() + " -> " + p.Tuple.Target.String() }

func outer(p capture.Packet) string {
	if p.Outer == nil {
		return "none"
	}
	return list(p.Outer.Path())
}

// encapsulated marks a packet that should have none.
func encapsulated(p capture.Packet) string {
	if p.Outer == nil {
		return ""
	}
	return " in " + outer(p)
}

func checksums(p capture.Packet) string {
	if p.Checksums != nil {
		return p.Checksums.Error()
	}
	return "valid"
}

func segments(octets [][]byte) string {
	var all []netip.Addr
	for _, o := range octets {
		a, _ := netip.AddrFromSlice(o)
		all = append(all, a)
	}
	return list(all)
}

func list(addresses []netip.Addr) string {
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.String()
	}
	return strings.Join(texts, ",")
}

func endpoint(address []byte, port uint32) string {
	a, _ := netip.AddrFromSlice(address)
	return netip.AddrPortFrom(a, uint16(port)).String()
}

func endpoints(t *api.Tuple) string {
	return endpoint(t.GetSource().GetAddress(), t.GetSource().GetPort()) + " -> " + endpoint(t.GetTarget().GetAddress(), t.GetTarget().GetPort())
}

// attachment names the egress attachment that a segment list ends at, by the lab's topology.
func (s *stage) attachment(path string) string {
	last := path[strings.LastIndexByte(path, ',')+1:]
	for _, d := range s.lab.Topology().Deployments {
		if d.SID.String() == last {
			return fmt.Sprintf("attachment of %s at %s", d.Instance, d.Egress)
		}
	}
	return "unknown segment " + last
}
