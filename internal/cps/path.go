package cps

import (
	"net/netip"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/selection"
)

// requestPaths asks the PCE for the forward path and then for the return path of a decided flow, and joins the replies
// with the decision (CP section 8.3).
func (c *Core) requestPaths(r *record, service *catalogue.ServiceRecord, chosen *selection.Candidate) *refusal {
	routes, refused := c.paths(c.pathRequest(r, chosen), service)
	if refused != nil {
		return refused
	}
	b := &r.binding
	b.Shard, b.Epoch, b.Version = c.config.Shard, c.config.Epoch, 1
	b.Path = activated(&routes.forward)
	b.Reverse = reverse(b.Match.Tuple, b.Locator)
	b.Reverse.Path = routes.back()
	b.Idle, b.Hard = service.Idle, service.Hard
	return nil
}

// reverse is the reverse half of a flow that is translated to a locator (CP section 8.6).
func reverse(client cats.Tuple, l cats.Locator) cats.Reverse {
	return cats.Reverse{
		Service: cats.Tuple{Protocol: l.Protocol, Source: l.Address, Target: client.Source},
		Client:  client.Reverse(),
		Restore: client.Target,
	}
}

// pathRequest forms the request for the forward path; it exists only once the destination is selected. Of the bounds,
// only what the PCE can judge goes with it: the bound on real delay leaves what computing does not take.
func (c *Core) pathRequest(r *record, chosen *selection.Candidate) *cats.PathRequest {
	hard := &r.request.Constraints.Hard
	bounds := cats.Bounds{
		MaxDelayUS: hard.MaxDelayUS, MaxJitterUS: hard.MaxJitterUS,
		MinBandwidthKbps: hard.MinBandwidthKbps, MaxLossPPM: hard.MaxLossPPM,
	}
	if hard.MaxRealDelayUS.Present {
		left := uint64(hard.MaxRealDelayUS.Value) - min(uint64(hard.MaxRealDelayUS.Value), uint64(chosen.Report.Metrics.ComputingTimeMS)*1000)
		if !bounds.MaxDelayUS.Present || left < uint64(bounds.MaxDelayUS.Value) {
			bounds.MaxDelayUS = cats.Some(uint32(left))
		}
	}
	b := &r.binding
	return &cats.PathRequest{
		Transaction: b.Transaction, Headend: b.Ingress, Endpoint: b.Attachment, Egress: b.Egress,
		Attachment: string(b.CSCIID), Domain: c.config.RoutingDomain, Color: chosen.Color, Bounds: bounds,
		Capabilities:  c.forwarder(b.Ingress).hello.Capabilities,
		CSTGeneration: b.CSTGeneration, NSTGeneration: b.NSTGeneration,
		Deadline: min(r.expires, c.now.Add(c.config.Timing.Path)),
	}
}

// returnRequest forms the request for the return path of the same transaction: from the egress to the owner. The
// client's bounds are about the way to the service.
func (c *Core) returnRequest(forward *cats.PathRequest) *cats.PathRequest {
	q := *forward
	q.Headend, q.Egress = forward.Egress, forward.Headend
	q.Endpoint = c.forwarder(forward.Headend).hello.ReturnSID
	q.Attachment, q.Bounds = "", cats.Bounds{}
	q.Capabilities = c.forwarder(forward.Egress).hello.Capabilities
	return &q
}

// routes are the answers to the two path requests of a flow.
type routes struct {
	request  cats.PathRequest // forward
	forward  cats.PathReply
	reverse  cats.PathReply
	returnTo netip.Addr // set where there is no return path: packets are encapsulated to the owner alone
}

// back gives the return path.
func (r *routes) back() cats.Path {
	if r.returnTo.IsValid() {
		return cats.Path{Kind: cats.PathSRv6, Segments: []netip.Addr{r.returnTo}}
	}
	return activated(&r.reverse)
}

// paths asks for the forward and the return path, and tells why the flow cannot have them.
func (c *Core) paths(q *cats.PathRequest, service *catalogue.ServiceRecord) (routes, *refusal) {
	found := routes{request: *q}
	var refused *refusal
	if found.forward, refused = c.computePath(q); refused != nil {
		return found, refused
	}
	q = c.returnRequest(q)
	if !q.Endpoint.IsValid() {
		return found, refuse(cats.ReasonCapabilityMismatch, "ingress %s has no segment that ends return paths", q.Egress)
	}
	found.reverse, refused = c.computePath(q)
	switch {
	case refused == nil:
		return found, nil
	case refused.reason != cats.ReasonStaleState && !service.StrictReturn: // none that can be used
		found.returnTo = q.Endpoint
		return found, nil
	}
	refused.detail = "return path: " + refused.detail
	return found, refused
}

func activated(p *cats.PathReply) cats.Path {
	return cats.Path{Kind: p.Kind, Segments: p.Segments, Nodes: p.Nodes, Generation: p.TEDBGeneration, DelayUS: p.Metrics.DelayUS}
}

// computePath asks the embedded PCE and verifies what it answers.
func (c *Core) computePath(q *cats.PathRequest) (cats.PathReply, *refusal) {
	if c.pce == nil {
		return cats.PathReply{}, refuse(cats.ReasonNoPath, "no topology is known")
	}
	c.counters.PathRequests++
	reply := c.pce.Compute(*q)
	return reply, verify(q, &reply)
}

// verify holds a path reply against its request: it belongs to the same transaction, endpoint and generations, it is
// there, its headend can activate it, and it keeps every bound (CP section 8.3). A reply never changes the selection.
func verify(q *cats.PathRequest, p *cats.PathReply) *refusal {
	switch {
	case p.Transaction != q.Transaction:
		return refuse(cats.ReasonStaleState, "the path reply belongs to transaction %s", p.Transaction)
	case p.CSTGeneration != q.CSTGeneration || p.NSTGeneration != q.NSTGeneration:
		return refuse(cats.ReasonStaleState, "the path reply is for CST %d and NST %d, the decision was on %d and %d",
			p.CSTGeneration, p.NSTGeneration, q.CSTGeneration, q.NSTGeneration)
	case p.Endpoint != q.Endpoint || p.Egress != q.Egress:
		return refuse(cats.ReasonStaleState, "the path reply ends at %s of %s, wanted is %s of %s", p.Endpoint, p.Egress, q.Endpoint, q.Egress)
	case p.Status != cats.PathFound && p.Reason == cats.ReasonCapabilityMismatch:
		return refuse(p.Reason, "from %s to %s: %s", q.Headend, q.Egress, p.Detail)
	case p.Status != cats.PathFound:
		return refuse(cats.ReasonNoPath, "from %s to %s: %s", q.Headend, q.Egress, p.Detail)
	case p.Kind != cats.PathSRv6 || q.Capabilities.Encapsulations&cats.EncapSRv6 == 0:
		return refuse(cats.ReasonCapabilityMismatch, "headend %s cannot activate this kind of path", q.Headend)
	case len(p.Segments) > int(q.Capabilities.MaxSegments):
		return refuse(cats.ReasonCapabilityMismatch, "the path has %d segments, headend %s pushes at most %d", len(p.Segments), q.Headend, q.Capabilities.MaxSegments)
	case len(p.Segments) == 0 || p.Segments[len(p.Segments)-1] != q.Endpoint:
		return refuse(cats.ReasonStaleState, "the segment list %v does not end at %s", p.Segments, q.Endpoint)
	}
	if broken := selection.BrokenPath(&q.Bounds, &p.Metrics); broken != "" {
		return refuse(cats.ReasonNoPath, "from %s to %s: %s", q.Headend, q.Egress, broken)
	}
	return nil
}
