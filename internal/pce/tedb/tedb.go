// Package tedb is the traffic engineering database that paths are computed on: an immutable snapshot of the nodes and
// links of one domain, on index arrays, built from what the C-NMAs advertised (CP section 5, the view that the NST derives
// from).
//
// A snapshot never changes, so that any number of readers share one. Nodes are numbered in the order of their names and
// links in the order of their heads and tails, so that equal contents give equal snapshots whatever order they came in.
package tedb

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-net/margay/cats"
)

// MaxNodes is how many nodes a snapshot can have. A path has fewer links, so that with the ranges of cats.Link no sum of
// weights overflows.
const MaxNodes = 1<<16 - 1

// Metric is an additive property of a link that a path can be ranked by or bounded in.
type Metric uint8

// The additive metrics.
const (
	Delay    Metric = iota // one-way, µs
	Jitter                 // µs
	Loss                   // ppm
	TEMetric               // no unit
	Hops                   // links
	Metrics                // how many there are
)

var metricNames = [Metrics]string{"delay", "jitter", "loss", "te-metric", "hops"}

// String gives "delay", "jitter", "loss", "te-metric" or "hops".
func (m Metric) String() string { return metricNames[m] }

// Source is the topology that one C-NMA last advertised in full.
type Source struct {
	Name     string       // of the C-NMA
	Measured cats.Instant // when it was received or last refreshed, on the clock of who builds the snapshot
	TTL      time.Duration
	Nodes    []cats.Node
	Links    []cats.Link
}

// Origin is where a piece of the topology comes from and how long it stands.
type Origin struct {
	Name     string
	Measured cats.Instant
	TTL      time.Duration
}

// Snapshot is the topology of one domain at one generation.
type Snapshot struct {
	generation uint64
	origins    []Origin

	names      []string // ascending
	sids       []netip.Addr
	nodeOrigin []uint16

	from, to   []int32 // of each link; links ascend by (to, from)
	weights    [Metrics][]uint64
	bandwidth  []uint32
	values     []cats.Link
	linkOrigin []uint16

	in       []int32 // links into node n are in[n] .. in[n+1]-1
	out      []int32 // links out of node n are outLinks[out[n]:out[n+1]]
	outLinks []int32
}

// Generation gives the number that the builder gave the snapshot; it grows with each change.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Nodes gives how many nodes there are; they are numbered from 0.
func (s *Snapshot) Nodes() int { return len(s.names) }

// Links gives how many links can carry packets; they are numbered from 0.
func (s *Snapshot) Links() int { return len(s.to) }

// Lookup gives the number of the node of that name.
func (s *Snapshot) Lookup(name string) (int32, bool) {
	i, found := slices.BinarySearch(s.names, name)
	return int32(i), found
}

// Name gives the name of a node.
func (s *Snapshot) Name(node int32) string { return s.names[node] }

// SID gives the SRv6 End SID of a node, or the zero Addr where it has none and no path can be pinned through it.
func (s *Snapshot) SID(node int32) netip.Addr { return s.sids[node] }

// Ends gives the nodes that a link leads from and to.
func (s *Snapshot) Ends(link int32) (from, to int32) { return s.from[link], s.to[link] }

// Into gives the range of the links into a node: first to last-1.
func (s *Snapshot) Into(node int32) (first, last int32) { return s.in[node], s.in[node+1] }

// OutOf gives the links out of a node. The caller must not change it.
func (s *Snapshot) OutOf(node int32) []int32 { return s.outLinks[s.out[node]:s.out[node+1]] }

// Tails gives the node that each link comes from. The caller must not change it.
func (s *Snapshot) Tails() []int32 { return s.from }

// Bandwidths gives the available bandwidth of each link in kbit/s. The caller must not change it.
func (s *Snapshot) Bandwidths() []uint32 { return s.bandwidth }

// Weights gives the weight of each link in a metric, to be added along a path and compared with Limit. The caller must
// not change it.
func (s *Snapshot) Weights(m Metric) []uint64 { return s.weights[m] }

// hopBits are the low bits of a weight that count links, so that of two paths with one sum the shorter is less.
const hopBits = 16

// lossUnit is the weight of a loss that leaves 1/e of the packets: losses add up as logarithms. At 44 bits, two paths
// that differ by a millionth of a ppm differ.
const lossUnit = 1 << 44

// weight gives what a link's value adds to a path.
func weight(m Metric, value uint32) uint64 {
	switch m {
	case Hops:
		return 1
	case Loss:
		return uint64(-math.Log1p(-float64(value)/cats.MaxLossPPM) * lossUnit)
	}
	return uint64(value)<<hopBits | 1
}

// Limit gives the greatest sum of weights whose value is within bound.
func Limit(m Metric, bound uint32) uint64 {
	switch m {
	case Hops:
		return uint64(bound)
	case Loss:
		if bound >= cats.MaxLossPPM {
			return math.MaxUint64
		}
		return weight(Loss, bound)
	}
	return uint64(bound)<<hopBits | (1<<hopBits - 1)
}

// Value gives the least bound that a sum of weights is within, in the unit of the metric: the sum itself, and for a loss
// the combined loss of the path, rounded up. It stops at the greatest uint32.
func Value(m Metric, sum uint64) uint32 {
	switch m {
	case Hops:
		return uint32(min(sum, math.MaxUint32))
	case Loss:
		v := uint32(-math.Expm1(-float64(sum)/lossUnit) * cats.MaxLossPPM)
		for v > 0 && Limit(Loss, v-1) >= sum {
			v--
		}
		for Limit(Loss, v) < sum {
			v++
		}
		return v
	}
	return uint32(min(sum>>hopBits, math.MaxUint32))
}

// Measure gives the metrics of a path of at most 255 links. The bandwidth of a path without links is the greatest uint32.
func (s *Snapshot) Measure(path []int32) cats.PathMetrics {
	total := cats.PathMetrics{BandwidthKbps: math.MaxUint32, Hops: uint8(len(path))}
	var loss uint64
	for _, l := range path {
		v := &s.values[l]
		total.DelayUS += v.DelayUS
		total.JitterUS += v.JitterUS
		total.TEMetric += v.TEMetric
		total.BandwidthKbps = min(total.BandwidthKbps, v.BandwidthKbps)
		loss += s.weights[Loss][l]
	}
	total.LossPPM = Value(Loss, loss)
	return total
}

// Origin gives the origin that bounds how long a path between two nodes stands: of those that it derives from, the one
// that ends first. A link was measured its age before its source. The path may be empty.
func (s *Snapshot) Origin(from, to int32, path []int32) Origin {
	first := earlier(s.origins[s.nodeOrigin[from]], s.origins[s.nodeOrigin[to]])
	for _, l := range path {
		o := s.origins[s.linkOrigin[l]]
		o.Measured -= cats.Instant(s.values[l].Age)
		first = earlier(first, o)
	}
	return first
}

// Weakest gives the origin that ends first of all; the zero Origin where there is none. That there is no path derives
// from every origin.
func (s *Snapshot) Weakest() Origin {
	if len(s.origins) == 0 {
		return Origin{}
	}
	first := s.origins[0]
	for _, o := range s.origins[1:] {
		first = earlier(first, o)
	}
	return first
}

func earlier(a, b Origin) Origin {
	if b.Measured.Add(b.TTL) < a.Measured.Add(a.TTL) {
		return b
	}
	return a
}

// Refreshed gives a snapshot with the same contents and generation in which the named source was confirmed at measured
// for ttl; nil where no source has that name.
func (s *Snapshot) Refreshed(source string, measured cats.Instant, ttl time.Duration) *Snapshot {
	i := slices.IndexFunc(s.origins, func(o Origin) bool { return o.Name == source })
	if i < 0 {
		return nil
	}
	fresh := *s
	fresh.origins = slices.Clone(s.origins)
	fresh.origins[i].Measured, fresh.origins[i].TTL = measured, ttl
	return &fresh
}
