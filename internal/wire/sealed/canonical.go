package sealed

import (
	"encoding/binary"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-net/margay/cats"
)

// The first octets of the two kinds of update, so that one can never be taken for the other.
const (
	metricPrefix  = "margay metric update 1\x00"
	networkPrefix = "margay network update 1\x00"
)

// CanonicalMetricUpdate gives the octets that a seal of u covers: every field in a fixed order; numbers as 8 octets in
// network order; strings, lists and maps preceded by their length, maps in ascending order of their keys; optional values
// preceded by an octet that tells whether they are there; times in ms, as messages carry them.
func CanonicalMetricUpdate(u *cats.MetricUpdate) []byte {
	w := writer(append(make([]byte, 0, 256+192*len(u.Records)), metricPrefix...))
	w.header(&u.UpdateHeader)
	w.length(len(u.Records))
	for i := range u.Records {
		w.record(&u.Records[i])
	}
	return w
}

// CanonicalNetworkUpdate is CanonicalMetricUpdate for network updates.
func CanonicalNetworkUpdate(u *cats.NetworkUpdate) []byte {
	w := writer(append(make([]byte, 0, 256+64*len(u.Nodes)+128*(len(u.Links)+len(u.Paths))), networkPrefix...))
	w.header(&u.UpdateHeader)
	w.length(len(u.Nodes))
	for _, n := range u.Nodes {
		w.string(n.Name)
		w.address(n.SID)
	}
	w.length(len(u.Links))
	for _, l := range u.Links {
		w.string(l.From)
		w.string(l.To)
		w.numbers(l.DelayUS, l.JitterUS, l.LossPPM, l.BandwidthKbps, l.TEMetric)
		w.duration(l.Age)
	}
	w.length(len(u.Paths))
	for _, p := range u.Paths {
		w.string(p.Headend)
		w.string(p.Egress)
		w.numbers(p.Color)
		w.bool(p.Reachable)
		m := p.Metrics
		w.numbers(m.DelayUS, m.JitterUS, m.LossPPM, m.BandwidthKbps, m.TEMetric, uint32(m.Hops))
		w.duration(p.Age)
	}
	return w
}

// writer collects canonical octets.
type writer []byte

func (w *writer) number(v uint64) { *w = binary.BigEndian.AppendUint64(*w, v) }

func (w *writer) numbers(list ...uint32) {
	for _, v := range list {
		w.number(uint64(v))
	}
}

func (w *writer) length(n int) { w.number(uint64(n)) }

func (w *writer) string(s string) {
	w.length(len(s))
	*w = append(*w, s...)
}

func (w *writer) bool(b bool) {
	if b {
		*w = append(*w, 1)
	} else {
		*w = append(*w, 0)
	}
}

// duration writes d as a message carries it: whole ms that fit 32 bits.
func (w *writer) duration(d time.Duration) {
	w.number(uint64(min(max(d.Milliseconds(), 0), math.MaxUint32)))
}

func (w *writer) address(a netip.Addr) { w.string(string(a.AsSlice())) }

func optional[T ~uint8 | ~uint32 | ~uint64](w *writer, o cats.Optional[T]) {
	w.bool(o.Present)
	if o.Present {
		w.number(uint64(o.Value))
	}
}

func (w *writer) header(h *cats.UpdateHeader) {
	w.string(h.Source)
	w.string(h.Site)
	w.number(h.Epoch)
	w.number(h.Sequence)
	w.number(uint64(h.Timestamp.UnixMilli()))
	w.number(uint64(h.Kind))
	w.number(h.Base)
	w.duration(h.TTL)
}

func (w *writer) record(r *cats.Record) {
	w.string(string(r.CSID))
	w.string(string(r.CSCIID))
	w.string(r.Version)
	w.number(uint64(r.Health))
	w.number(uint64(r.Reporting))
	w.bool(r.Warned)
	w.metrics(&r.Metrics)
	w.number(r.ReportEpoch)
	w.number(r.ReportSequence)
	w.duration(r.Age)
}

func (w *writer) metrics(m *cats.Metrics) {
	w.numbers(m.GAS, m.InFlight, m.ComputingTimeMS)
	optional(w, m.Price)
	optional(w, m.Reputation)
	optional(w, m.SecurityLevel)
	optional(w, m.AcceptedTotal)
	optional(w, m.FinishedTotal)
	w.length(len(m.Extensions))
	for _, name := range slices.Sorted(maps.Keys(m.Extensions)) {
		w.string(name)
		w.number(math.Float64bits(m.Extensions[name]))
	}
}
