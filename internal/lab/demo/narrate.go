package demo

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/lab/capture"
)

// narrate goes through the seven steps of section 14 with what was seen at each.
func (s *stage) narrate(announced string, w *wire, c *conversation, row *api.BindingRow, before, after calls) {
	sent, _ := find(w.client.Packets(), cats.Tuple{Protocol: cats.TCP, Source: clientEnd, Target: service}, true)
	s.narrateDecision(announced, sent, c, row.GetBinding(), before)
	s.narratePackets(w, sent, row.GetBinding())

	s.step(7, "Later packets use the binding; the C-PS and the PCE hear nothing of them.")
	s.draft("second request answered by", "B", c.second.greeting.Instance)
	s.draft("requests to the C-PS, to the PCE", "0, 0",
		fmt.Sprintf("%d, %d", after.serviceRequests-c.between.serviceRequests, after.pathRequests-c.between.pathRequests))
	s.expect("packets of the flow at instance A", "0", fmt.Sprint(count(w.a.Packets(), func(p *capture.Packet) bool { return p.Tuple.Source == clientEnd })))
	s.note("%d packets came to B, %d of them after the second request", count(w.b.Packets(), func(p *capture.Packet) bool { return p.Tuple == toInstance }),
		count(w.b.Packets(), func(p *capture.Packet) bool { return p.Tuple == toInstance && p.At.After(c.second.asked) }))
}

// narrateDecision is from the first packet to the binding.
func (s *stage) narrateDecision(announced string, sent capture.Packet, c *conversation, b *api.Binding, before calls) {
	path := b.GetForward().GetPath()

	s.step(1, "IF-1 gets the packet, reads the request metadata, finds no binding, holds the packet, asks the C-PS.")
	s.note("%s", prompt(requestVerb))
	s.note("%s", strings.TrimSpace(announced))
	s.draft("client-facing packet", "192.0.2.10:51000 -> 192.0.2.100:443", flow(sent))
	s.draft("packets held, requests to the C-PS", "1, 1", fmt.Sprintf("%d, %d", c.between.held-before.held, c.between.serviceRequests-before.serviceRequests))

	s.step(2, "The C-PS resolves S1, filters, joins with the NST, selects.")
	s.draft("service, egress", "S1, EF-2", b.GetCsId()+", "+b.GetEgress())
	s.draft("instance that answered", "B", c.first.greeting.Instance)

	s.step(3, "The C-PS asks its PCE for a path from IF-1 to EF-2 within the bound.")
	s.draft("headend, endpoint", "IF-1, EF-2", ends(path))
	s.expect("delay within the bound", "at most "+maxDelay, bounded(path))
	s.expect("end of the segment list", "attachment of B at EF-2", s.attachment(segments(path.GetSegments())))
	s.note("nodes %s", strings.Join(path.GetNodes(), " > "))
	s.expect("path computations, forward and return", "2", fmt.Sprint(c.between.pathRequests-before.pathRequests))

	s.step(4, "The C-PS sends the binding: match, destination replacement, path, delivery at EF-2.")
	s.draft("match", "192.0.2.10:51000 -> 192.0.2.100:443", endpoints(b.GetMatch().GetTuple()))
	s.draft("replace the destination by", "198.51.100.21:443", endpoint(b.GetForward().GetLocator().GetAddress(), b.GetForward().GetLocator().GetPort()))
}

// narratePackets is what became of the first packet and of the answer to it.
func (s *stage) narratePackets(w *wire, sent capture.Packet, b *api.Binding) {
	delivered, _ := find(w.client.Packets(), cats.Tuple{Protocol: cats.TCP, Source: service, Target: clientEnd}, false)
	steered, returned := first(w.core(toInstance)), first(w.core(toClient))
	arrived, _ := find(w.b.Packets(), toInstance, false)
	answered, _ := find(w.b.Packets(), toClient, true)
	path, back := segments(b.GetForward().GetPath().GetSegments()), segments(b.GetReverse().GetPath().GetSegments())

	s.step(5, "IF-1 commits both directions, rewrites the held packet, encapsulates it, sends it toward EF-2.")
	s.draft("packet after ingress steering", "192.0.2.10:51000 -> 198.51.100.21:443", flow(steered))
	s.draft("checksums of the rewritten packet", "valid", checksums(steered))
	s.expect("outer header: the binding's segments", path, outer(steered))
	s.expect("TTL of the rewritten packet", fmt.Sprint(sent.TTL-1), fmt.Sprint(steered.TTL))

	s.step(6, "EF-2 removes the encapsulation and delivers to B; the answer's source is restored.")
	s.draft("packet at the instance", "192.0.2.10:51000 -> 198.51.100.21:443", flow(arrived)+encapsulated(arrived))
	s.expect("checksums, TTL at the instance", fmt.Sprintf("valid, %d", sent.TTL-2), fmt.Sprintf("%s, %d", checksums(arrived), arrived.TTL))
	s.draft("return before reverse processing", "198.51.100.21:443 -> 192.0.2.10:51000", flow(answered))
	s.expect("the same between EF-2 and IF-1", flow(answered), flow(returned))
	s.expect("its outer header: the binding's segments", back, outer(returned))
	s.draft("packet delivered to the client", "192.0.2.100:443 -> 192.0.2.10:51000", flow(delivered)+encapsulated(delivered))
	s.expect("its checksums", "valid", checksums(delivered))
}

// ends names the first and the last node of a path.
func ends(p *api.Path) string {
	nodes := p.GetNodes()
	if len(nodes) == 0 {
		return "none"
	}
	return nodes[0] + ", " + nodes[len(nodes)-1]
}

// bounded says that a path keeps the example's bound, or what its delay is.
func bounded(p *api.Path) string {
	delay := time.Duration(p.GetDelayUs()) * time.Microsecond
	if most, err := time.ParseDuration(maxDelay); err == nil && delay <= most && delay > 0 {
		return "at most " + maxDelay
	}
	return delay.String()
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
