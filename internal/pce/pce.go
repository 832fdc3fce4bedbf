// Package pce is path computation (CP sections 4.2, 7.1 and 8.3): it answers path requests with SRv6 segment lists that
// meet every bound, and derives the NST. It sees the network alone: no service, no computing metric, no packet.
package pce

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/pce/search"
	"github.com/margay-net/margay/internal/pce/segments"
	"github.com/margay-net/margay/internal/pce/tedb"
)

// The path policies that a request can name; an empty one is LeastDelay.
const (
	LeastDelay    = "least-delay"
	LeastTEMetric = "least-te-metric"
)

// Snapshot computes on one immutable topology of one routing domain. It keeps the memory of its searches, so that it
// serves one goroutine at a time; no answer depends on that memory.
type Snapshot struct {
	domain   string
	topology *tedb.Snapshot
	work     *search.Workspace
}

// Build makes a snapshot of what all the sources say together, or an error that names every node or link at fault.
func Build(domain string, generation uint64, sources ...tedb.Source) (*Snapshot, error) {
	t, err := tedb.Build(generation, sources...)
	if err != nil {
		return nil, err
	}
	return &Snapshot{domain: domain, topology: t, work: new(search.Workspace)}, nil
}

// Refreshed gives a snapshot of the same topology and generation in which the source was confirmed at measured for ttl, or
// nil where the snapshot has no such source. Either may be used while another goroutine uses the other.
func (s *Snapshot) Refreshed(source string, measured cats.Instant, ttl time.Duration) *Snapshot {
	t := s.topology.Refreshed(source, measured, ttl)
	if t == nil {
		return nil
	}
	return &Snapshot{domain: s.domain, topology: t, work: new(search.Workspace)}
}

// Generation gives the TEDB generation.
func (s *Snapshot) Generation() uint64 { return s.topology.Generation() }

// Compute answers a path request. The reply echoes the transaction, endpoint, egress and generations of the decision. A
// path meets every bound, is the best that does by the request's policy, and fits the headend's capabilities; where the
// best does not fit and another one does, that is the path. Otherwise the reply has the reason and a detail for a person:
//   - ReasonMalformed: the request lacks what section 7.1 demands, or carries what a path computation cannot judge;
//   - ReasonNoPath: an end is unknown, nothing meets the bounds, or the topology does not tell whether a constraint holds;
//     the detail says what is missing;
//   - ReasonCapabilityMismatch: paths meet the bounds, and the headend can activate none of them;
//   - ReasonOverload: the search spent its budget; a path may exist.
//
// The deadline is the caller's to hold: Compute takes no clock.
func (s *Snapshot) Compute(r cats.PathRequest) cats.PathReply {
	reply := cats.PathReply{
		Transaction:    r.Transaction,
		Status:         cats.PathNone,
		Kind:           cats.PathSRv6,
		Endpoint:       r.Endpoint,
		Egress:         r.Egress,
		CSTGeneration:  r.CSTGeneration,
		NSTGeneration:  r.NSTGeneration,
		TEDBGeneration: s.Generation(),
	}
	links, err := s.compute(&r, &reply)
	if err != nil {
		reply.Reason = cmp.Or(cats.ReasonOf(err), cats.ReasonNoPath)
		reply.Detail = strings.TrimSuffix(err.Error(), ": "+reply.Reason.String())
		return reply
	}
	reply.Status, reply.Metrics = cats.PathFound, s.topology.Measure(links)
	return reply
}

// compute fills in the nodes and segments of a reply and gives the links.
func (s *Snapshot) compute(r *cats.PathRequest, reply *cats.PathReply) ([]int32, error) {
	p, err := s.problem(r)
	if err != nil {
		return nil, err
	}
	most, err := segments.Most(r.Headend, r.Capabilities)
	if err != nil {
		return nil, err
	}
	links, err := s.work.Find(s.topology, p)
	if err == nil && segments.Count(len(links)) > most {
		p.Max[tedb.Hops] = cats.Some(uint32(most))
		links, err = s.work.Find(s.topology, p)
	}
	if err != nil {
		return nil, s.diagnose(p, err)
	}
	nodes := s.nodes(p.From, links)
	reply.Segments, err = segments.SRv6(nodes, r.Endpoint, most)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		reply.Nodes = append(reply.Nodes, n.Name)
	}
	return links, nil
}

// nodes gives the nodes of a path in travel order.
func (s *Snapshot) nodes(from int32, links []int32) []cats.Node {
	nodes := make([]cats.Node, 0, len(links)+1)
	nodes = append(nodes, cats.Node{Name: s.topology.Name(from), SID: s.topology.SID(from)})
	for _, l := range links {
		_, n := s.topology.Ends(l)
		nodes = append(nodes, cats.Node{Name: s.topology.Name(n), SID: s.topology.SID(n)})
	}
	return nodes
}

// problem checks a request and turns it into what is searched for.
func (s *Snapshot) problem(r *cats.PathRequest) (search.Problem, error) {
	var p search.Problem
	if err := s.check(r); err != nil {
		return p, err
	}
	var found bool
	if p.From, found = s.topology.Lookup(r.Headend); !found {
		return p, fmt.Errorf("headend %q is not in the topology: %w", r.Headend, cats.ReasonNoPath)
	}
	if p.To, found = s.topology.Lookup(r.Egress); !found {
		return p, fmt.Errorf("egress %q is not in the topology: %w", r.Egress, cats.ReasonNoPath)
	}
	switch r.Policy {
	case "", LeastDelay:
		p.Rank = tedb.Delay
	case LeastTEMetric:
		p.Rank = tedb.TEMetric
	default:
		return p, fmt.Errorf("path policy %q is unknown: need %s or %s: %w", r.Policy, LeastDelay, LeastTEMetric,
			cats.ReasonMalformed)
	}
	p.Max[tedb.Delay] = r.Bounds.MaxDelayUS
	p.Max[tedb.Jitter] = r.Bounds.MaxJitterUS
	p.Max[tedb.Loss] = r.Bounds.MaxLossPPM
	if r.Bounds.MinBandwidthKbps.Present {
		p.Bandwidth = r.Bounds.MinBandwidthKbps.Value
	}
	return p, nil
}

// check holds a request to what CP section 7.1 demands: it names the transaction, both ends and the routing context, and
// asks for nothing that only the CST could tell.
func (s *Snapshot) check(r *cats.PathRequest) error {
	malformed := func(format string, args ...any) error {
		return fmt.Errorf("path request "+format+": %w", append(args, cats.ReasonMalformed)...)
	}
	switch {
	case r.Transaction.IsZero():
		return malformed("has no transaction")
	case r.Headend == "":
		return malformed("names no headend")
	case r.Egress == "":
		return malformed("names no egress")
	case !cats.IsSID(r.Endpoint):
		return malformed("has endpoint %s, which is not an IPv6 unicast address", r.Endpoint)
	case r.Domain == "":
		return malformed("names no routing domain")
	case r.Domain != s.domain:
		return fmt.Errorf("routing domain %q is unknown: this is %q: %w", r.Domain, s.domain, cats.ReasonNoPath)
	case r.Color != 0:
		return fmt.Errorf("color %d is unknown: only the default topology, color 0, is there: %w", r.Color, cats.ReasonNoPath)
	}
	network := cats.Bounds{
		MaxDelayUS:       r.Bounds.MaxDelayUS,
		MaxJitterUS:      r.Bounds.MaxJitterUS,
		MinBandwidthKbps: r.Bounds.MinBandwidthKbps,
		MaxLossPPM:       r.Bounds.MaxLossPPM,
	}
	if r.Bounds != network {
		return malformed("carries a bound on computing or real delay, which only the service's metrics could tell")
	}
	return untold(r)
}

// untold refuses the constraints of CP section 7.1 that nothing in the topology can answer yet: a path that was found
// without looking at them would be passed off as one that meets them.
func untold(r *cats.PathRequest) error {
	noPath := func(field, why string) error {
		return fmt.Errorf("%s: no path can be promised to keep it, as %s: %w", field, why, cats.ReasonNoPath)
	}
	const groups = "the topology does not tell the administrative groups of links"
	switch {
	case r.Affinity.IncludeAny != 0:
		return noPath("affinity include-any", groups)
	case r.Affinity.IncludeAll != 0:
		return noPath("affinity include-all", groups)
	case r.Affinity.ExcludeAny != 0:
		return noPath("affinity exclude-any", groups)
	case !r.DisjointFrom.IsZero() || r.Disjointness != cats.DisjointNone:
		return noPath("disjointness", "no other path is kept here to compare with")
	case r.Protection:
		return noPath("protection", "the topology does not tell which links are protected")
	}
	return nil
}

// Rows derives the NST of the default topology: one row for each pair of headend and egress, in the order given, with the
// metrics of the least-delay path that can be pinned. It covers the direction from headend to egress alone. A pair with
// an unknown node or without path has a row that is not reachable. A row stands as long as what it derives from: the
// link or node whose source ends first.
func (s *Snapshot) Rows(headends, egresses []string) []cats.NSTRow {
	rows := make([]cats.NSTRow, len(headends)*len(egresses))
	for j, egress := range egresses {
		to, known := s.topology.Lookup(egress)
		if known {
			s.work.Toward(s.topology, search.Problem{To: to, Rank: tedb.Delay})
		}
		for i, headend := range headends {
			row := &rows[i*len(egresses)+j]
			*row = cats.NSTRow{Headend: headend, Egress: egress, Generation: s.Generation()}
			s.derive(row, to, known)
		}
	}
	return rows
}

func (s *Snapshot) derive(row *cats.NSTRow, to int32, known bool) {
	origin := s.topology.Weakest()
	if from, found := s.topology.Lookup(row.Headend); found && known {
		if path, reachable := s.work.Path(s.topology, tedb.Delay, from, to); reachable && len(path) <= maxHops {
			row.Reachable, row.Metrics = true, s.topology.Measure(path)
			origin = s.topology.Origin(from, to, path)
		}
	}
	row.Source, row.Measured, row.TTL = origin.Name, origin.Measured, origin.TTL
}

// maxHops is the longest path that any headend can be given: its capabilities count segments in one octet.
const maxHops = 255
