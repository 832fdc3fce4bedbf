package pce

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/pce/tedb"
)

// draw makes a topology of up to seven nodes, with ties.
func draw(t *rapid.T) tedb.Source {
	s := tedb.Source{Name: "test"}
	n := rapid.IntRange(2, 7).Draw(t, "nodes")
	for i := range n {
		node := cats.Node{Name: fmt.Sprint("n", i)}
		if rapid.IntRange(0, 5).Draw(t, "without SID") < 5 {
			node.SID = netip.AddrFrom16([16]byte{0x20, 0x01, 15: byte(i + 1)})
		}
		s.Nodes = append(s.Nodes, node)
	}
	for i := range n * n {
		if from, to := i/n, i%n; from != to && rapid.IntRange(0, 9).Draw(t, "absent") < 6 {
			s.Links = append(s.Links, cats.Link{
				From: s.Nodes[from].Name, To: s.Nodes[to].Name,
				DelayUS:       rapid.Uint32Range(1, 9).Draw(t, "delay"),
				JitterUS:      rapid.Uint32Range(0, 5).Draw(t, "jitter"),
				LossPPM:       rapid.Uint32Range(0, 9).Draw(t, "loss"),
				BandwidthKbps: rapid.Uint32Range(0, 4).Draw(t, "bandwidth"),
				TEMetric:      rapid.Uint32Range(0, 6).Draw(t, "TE metric"),
			})
		}
	}
	return s
}

func drawRequest(t *rapid.T, s tedb.Source) cats.PathRequest {
	maybe := func(low, high uint32, what string) cats.Optional[uint32] {
		if rapid.Bool().Draw(t, what+" bound") {
			return cats.Some(rapid.Uint32Range(low, high).Draw(t, what))
		}
		return cats.Optional[uint32]{}
	}
	node := rapid.SampledFrom(s.Nodes)
	r := request()
	r.Headend, r.Egress = node.Draw(t, "headend").Name, node.Draw(t, "egress").Name
	r.Policy = rapid.SampledFrom([]string{LeastDelay, LeastTEMetric}).Draw(t, "policy")
	r.Bounds = cats.Bounds{
		MaxDelayUS: maybe(1, 25, "delay"), MaxJitterUS: maybe(0, 9, "jitter"), MaxLossPPM: maybe(0, 15, "loss"),
		MinBandwidthKbps: maybe(0, 5, "bandwidth"),
	}
	r.Capabilities.MaxSegments = rapid.Uint8Range(1, 6).Draw(t, "segments")
	return r
}

// A path that is given can be walked over the links, meets every bound and fits its headend.
func TestEveryPathKeepsItsPromise(t *testing.T) {
	check := func(t *rapid.T) {
		s := draw(t)
		snapshot, err := Build(domain, 7, s)
		if err != nil {
			t.Fatal(err)
		}
		r := drawRequest(t, s)
		reply := snapshot.Compute(r)
		if reply.Transaction != r.Transaction || reply.Endpoint != r.Endpoint || reply.Egress != r.Egress || reply.CSTGeneration != 31 || reply.NSTGeneration != 41 || reply.TEDBGeneration != 7 {
			t.Fatalf("reply %+v does not echo its request", reply)
		}
		if reply.Status == cats.PathNone {
			if reply.Reason == cats.ReasonNone || reply.Detail == "" || reply.Segments != nil || reply.Nodes != nil || reply.Metrics != (cats.PathMetrics{}) {
				t.Fatalf("no path, and not why: %+v", reply)
			}
			return
		}
		if len(reply.Segments) > int(r.Capabilities.MaxSegments) || reply.Segments[len(reply.Segments)-1] != r.Endpoint {
			t.Fatalf("segments %v for a headend of %d", reply.Segments, r.Capabilities.MaxSegments)
		}
		m := walk(t, s, reply)
		if m != reply.Metrics {
			t.Fatalf("metrics %+v, by the links %+v", reply.Metrics, m)
		}
		b := r.Bounds
		if b.MaxDelayUS.Present && m.DelayUS > b.MaxDelayUS.Value || b.MaxJitterUS.Present && m.JitterUS > b.MaxJitterUS.Value ||
			b.MaxLossPPM.Present && m.LossPPM > b.MaxLossPPM.Value || b.MinBandwidthKbps.Present && m.BandwidthKbps < b.MinBandwidthKbps.Value {
			t.Fatalf("metrics %+v are beyond %+v", m, b)
		}
	}
	t.Run("CP-8.3-3 every path meets its bounds in a form that fits", func(t *testing.T) { rapid.Check(t, check) })
}

// walk follows a reply's nodes over the links and compares the SIDs on the way. Losses this small add up.
func walk(t *rapid.T, s tedb.Source, reply cats.PathReply) cats.PathMetrics {
	m := cats.PathMetrics{BandwidthKbps: 1<<32 - 1}
	for i, from := range reply.Nodes[:len(reply.Nodes)-1] {
		to := reply.Nodes[i+1]
		at := slices.IndexFunc(s.Links, func(l cats.Link) bool { return l.From == from && l.To == to })
		if at < 0 {
			t.Fatalf("path %v: no link %s -> %s", reply.Nodes, from, to)
		}
		l := s.Links[at]
		m.DelayUS, m.JitterUS, m.LossPPM, m.TEMetric = m.DelayUS+l.DelayUS, m.JitterUS+l.JitterUS, m.LossPPM+l.LossPPM, m.TEMetric+l.TEMetric
		m.BandwidthKbps, m.Hops = min(m.BandwidthKbps, l.BandwidthKbps), m.Hops+1
		node := s.Nodes[slices.IndexFunc(s.Nodes, func(n cats.Node) bool { return n.Name == to })]
		if to != reply.Egress && node.SID != reply.Segments[i] {
			t.Fatalf("path %v: segment %d is %s, want %s of %s", reply.Nodes, i, reply.Segments[i], node.SID, to)
		}
	}
	return m
}

var relaxation = regexp.MustCompile(`(max delay|max jitter|max loss|min bandwidth) (\d+) \S+ \(`)

// What a refusal says would be enough is enough, and a little less is not.
func TestRelaxationsAreTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t)
		snapshot, err := Build(domain, 7, s)
		if err != nil {
			t.Fatal(err)
		}
		r := drawRequest(t, s)
		r.Capabilities = everyone
		refusal := snapshot.Compute(r).Detail
		_, takes, found := strings.Cut(refusal, "it would take ")
		if !found || strings.HasPrefix(takes, "at least") {
			return
		}
		for _, match := range relaxation.FindAllStringSubmatch(takes, -1) {
			n, err := strconv.ParseUint(match[2], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			enough, short := r, r
			field := func(b *cats.Bounds) *cats.Optional[uint32] {
				return map[string]*cats.Optional[uint32]{
					"max delay": &b.MaxDelayUS, "max jitter": &b.MaxJitterUS, "max loss": &b.MaxLossPPM, "min bandwidth": &b.MinBandwidthKbps,
				}[match[1]]
			}
			less := uint32(n) - 1
			if match[1] == "min bandwidth" {
				less = uint32(n) + 1
			}
			*field(&enough.Bounds), *field(&short.Bounds) = cats.Some(uint32(n)), cats.Some(less)
			if reply := snapshot.Compute(enough); reply.Status != cats.PathFound {
				t.Fatalf("%s; with %s %d: %s", refusal, match[1], n, reply.Detail)
			}
			if reply := snapshot.Compute(short); reply.Status == cats.PathFound {
				t.Fatalf("%s; but %s %d is enough: %v", refusal, match[1], less, reply.Nodes)
			}
		}
	})
}
