package pce

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/pce/tedb"
)

const domain = "example.margay"

var (
	r1, r2   = netip.MustParseAddr("2001:db8:0:f1::1"), netip.MustParseAddr("2001:db8:0:f2::1")
	endpoint = netip.MustParseAddr("2001:db8:0:e1::11")
	everyone = cats.Capabilities{Encapsulations: cats.EncapSRv6, MaxSegments: 10}
)

// example is the domain of CP section 14: two routers between the ingress and two egresses, R1 fast and narrow, R2 slow and
// wide.
func example() tedb.Source {
	s := tedb.Source{
		Name: "cnma-1", Measured: 1_000, TTL: 30 * time.Second,
		Nodes: []cats.Node{{Name: "IF-1"}, {Name: "EF-1"}, {Name: "EF-2"}, {Name: "R1", SID: r1}, {Name: "R2", SID: r2}},
	}
	both := func(l cats.Link) {
		back := l
		back.From, back.To = l.To, l.From
		s.Links = append(s.Links, l, back)
	}
	for _, edge := range []string{"IF-1", "EF-1", "EF-2"} {
		both(cats.Link{From: edge, To: "R1", DelayUS: 500, JitterUS: 40, LossPPM: 10, BandwidthKbps: 1_000, TEMetric: 20})
		both(cats.Link{From: edge, To: "R2", DelayUS: 4_000, JitterUS: 5, LossPPM: 10, BandwidthKbps: 9_000, TEMetric: 10})
	}
	return s
}

func build(t *testing.T, sources ...tedb.Source) *Snapshot {
	t.Helper()
	s, err := Build(domain, 7, sources...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request() cats.PathRequest {
	return cats.PathRequest{
		Transaction: cats.Transaction{1, 2}, Headend: "IF-1", Endpoint: endpoint, Egress: "EF-1", Attachment: "198.51.100.11:443",
		Domain: domain, Capabilities: everyone, CSTGeneration: 31, NSTGeneration: 41,
	}
}

func TestCompute(t *testing.T) {
	fast := cats.PathReply{
		Segments: []netip.Addr{r1, endpoint}, Nodes: []string{"IF-1", "R1", "EF-1"},
		Metrics: cats.PathMetrics{DelayUS: 1_000, JitterUS: 80, LossPPM: 20, BandwidthKbps: 1_000, TEMetric: 40, Hops: 2},
	}
	slow := cats.PathReply{
		Segments: []netip.Addr{r2, endpoint}, Nodes: []string{"IF-1", "R2", "EF-1"},
		Metrics: cats.PathMetrics{DelayUS: 8_000, JitterUS: 10, LossPPM: 20, BandwidthKbps: 9_000, TEMetric: 20, Hops: 2},
	}
	none := func(r cats.Reason, detail string) cats.PathReply {
		return cats.PathReply{Status: cats.PathNone, Reason: r, Detail: detail}
	}
	for _, c := range []struct {
		name   string
		change func(*cats.PathRequest)
		want   cats.PathReply
	}{
		{"CP-8.3-3 least delay without a bound", func(r *cats.PathRequest) {}, fast},
		{"CP-8.3-3 within a bound on delay", func(r *cats.PathRequest) { r.Bounds.MaxDelayUS = cats.Some[uint32](1_000) }, fast},
		{"CP-8.3-3 around a bound on jitter", func(r *cats.PathRequest) { r.Bounds.MaxJitterUS = cats.Some[uint32](79) }, slow},
		{"CP-8.3-3 around a bound on bandwidth", func(r *cats.PathRequest) { r.Bounds.MinBandwidthKbps = cats.Some[uint32](1_001) }, slow},
		{"CP-8.3-3 least TE metric", func(r *cats.PathRequest) { r.Policy = LeastTEMetric }, slow},
		{"CP-8.3-3 least TE metric within a bound on delay", func(r *cats.PathRequest) {
			r.Policy, r.Bounds.MaxDelayUS = LeastTEMetric, cats.Some[uint32](7_999)
		}, fast},
		{"CP-8.3-3 the delay bound that fails, and by how much", func(r *cats.PathRequest) { r.Bounds.MaxDelayUS = cats.Some[uint32](900) },
			none(cats.ReasonNoPath, "no path from IF-1 to EF-1 within max delay 900 µs; it would take max delay 1000 µs (100 more)")},
		{"CP-8.3-3 the loss bound that fails", func(r *cats.PathRequest) { r.Bounds.MaxLossPPM = cats.Some[uint32](19) },
			none(cats.ReasonNoPath, "no path from IF-1 to EF-1 within max loss 19 ppm; it would take max loss 20 ppm (1 more)")},
		{"CP-8.3-3 the bandwidth bound that fails", func(r *cats.PathRequest) { r.Bounds.MinBandwidthKbps = cats.Some[uint32](9_500) },
			none(cats.ReasonNoPath, "no path from IF-1 to EF-1 within min bandwidth 9500 kbit/s; it would take min bandwidth 9000 kbit/s (500 less)")},
		{"CP-8.3-3 bounds that fail together", func(r *cats.PathRequest) {
			r.Bounds.MaxDelayUS, r.Bounds.MaxJitterUS = cats.Some[uint32](1_000), cats.Some[uint32](20)
		}, none(cats.ReasonNoPath, "no path from IF-1 to EF-1 within max delay 1000 µs, max jitter 20 µs; it would take max delay 8000 µs (7000 more) or max jitter 80 µs (60 more)")},
		{"CP-8.3-3 bounds that fail each alone", func(r *cats.PathRequest) {
			r.Bounds.MaxDelayUS, r.Bounds.MaxJitterUS, r.Bounds.MaxLossPPM = cats.Some[uint32](900), cats.Some[uint32](9), cats.Some[uint32](99)
		}, none(cats.ReasonNoPath, "no path from IF-1 to EF-1 within max delay 900 µs, max jitter 9 µs, max loss 99 ppm; it would take at least max delay 1000 µs (100 more) and max jitter 10 µs (1 more)")},
		{"CP-8.3-3 unknown headend", func(r *cats.PathRequest) { r.Headend = "IF-9" },
			none(cats.ReasonNoPath, `headend "IF-9" is not in the topology`)},
		{"CP-8.3-3 unknown egress", func(r *cats.PathRequest) { r.Egress = "EF-9" },
			none(cats.ReasonNoPath, `egress "EF-9" is not in the topology`)},
		{"CP-8.3-3 unknown color", func(r *cats.PathRequest) { r.Color = 3 },
			none(cats.ReasonNoPath, "color 3 is unknown: only the default topology, color 0, is there")},
		{"CP-8.3-3 links to include, any of them", func(r *cats.PathRequest) { r.Affinity.IncludeAny = 1 }, none(cats.ReasonNoPath,
			"affinity include-any: no path can be promised to keep it, as the topology does not tell the administrative groups of links")},
		{"CP-8.3-3 links to include, all of them", func(r *cats.PathRequest) { r.Affinity.IncludeAll = 2 }, none(cats.ReasonNoPath,
			"affinity include-all: no path can be promised to keep it, as the topology does not tell the administrative groups of links")},
		{"CP-8.3-3 links to exclude", func(r *cats.PathRequest) { r.Affinity.ExcludeAny = 1 << 31 }, none(cats.ReasonNoPath,
			"affinity exclude-any: no path can be promised to keep it, as the topology does not tell the administrative groups of links")},
		{"CP-8.3-3 disjoint links", func(r *cats.PathRequest) {
			r.DisjointFrom, r.Disjointness = cats.Transaction{9}, cats.DisjointLinks
		}, none(cats.ReasonNoPath, "disjointness: no path can be promised to keep it, as no other path is kept here to compare with")},
		{"CP-8.3-3 disjoint nodes", func(r *cats.PathRequest) { r.Disjointness = cats.DisjointNodes },
			none(cats.ReasonNoPath, "disjointness: no path can be promised to keep it, as no other path is kept here to compare with")},
		{"CP-8.3-3 disjoint from a path, in what is not said", func(r *cats.PathRequest) { r.DisjointFrom = cats.Transaction{9} },
			none(cats.ReasonNoPath, "disjointness: no path can be promised to keep it, as no other path is kept here to compare with")},
		{"CP-8.3-3 protected links", func(r *cats.PathRequest) { r.Protection = true },
			none(cats.ReasonNoPath, "protection: no path can be promised to keep it, as the topology does not tell which links are protected")},
		{"CP-8.3-3 unknown policy", func(r *cats.PathRequest) { r.Policy = "scenic" },
			none(cats.ReasonMalformed, `path policy "scenic" is unknown: need least-delay or least-te-metric`)},
		{"CP-8.3-1 segment list too long", func(r *cats.PathRequest) { r.Capabilities.MaxSegments = 1 },
			none(cats.ReasonCapabilityMismatch, "a path from IF-1 to EF-1 within the bounds needs at least 2 segments, and headend IF-1 can push 1")},
		{"CP-8.3-1 no SRv6", func(r *cats.PathRequest) { r.Capabilities.Encapsulations = cats.EncapVXLAN },
			none(cats.ReasonCapabilityMismatch, "headend IF-1 does not encapsulate in SRv6")},
		{"CP-7.1-1 no transaction", func(r *cats.PathRequest) { r.Transaction = cats.Transaction{} },
			none(cats.ReasonMalformed, "path request has no transaction")},
		{"CP-7.1-1 no headend", func(r *cats.PathRequest) { r.Headend = "" },
			none(cats.ReasonMalformed, "path request names no headend")},
		{"CP-7.1-1 no egress", func(r *cats.PathRequest) { r.Egress = "" },
			none(cats.ReasonMalformed, "path request names no egress")},
		{"CP-7.1-1 no endpoint", func(r *cats.PathRequest) { r.Endpoint = netip.Addr{} },
			none(cats.ReasonMalformed, "path request has endpoint invalid IP, which is not an IPv6 unicast address")},
		{"CP-7.1-1 no routing domain", func(r *cats.PathRequest) { r.Domain = "" },
			none(cats.ReasonMalformed, "path request names no routing domain")},
		{"CP-4.2-1 another routing domain", func(r *cats.PathRequest) { r.Domain = "other.margay" },
			none(cats.ReasonNoPath, `routing domain "other.margay" is unknown: this is "example.margay"`)},
		{"CP-4.2-1 another headend", func(r *cats.PathRequest) { r.Headend = "EF-2" }, cats.PathReply{
			Segments: []netip.Addr{r1, endpoint}, Nodes: []string{"EF-2", "R1", "EF-1"}, Metrics: fast.Metrics,
		}},
		{"CP-4.2-1 another egress and endpoint", func(r *cats.PathRequest) { r.Egress, r.Endpoint = "EF-2", netip.MustParseAddr("2001:db8:0:e2::21") }, cats.PathReply{
			Segments: []netip.Addr{r1, netip.MustParseAddr("2001:db8:0:e2::21")}, Nodes: []string{"IF-1", "R1", "EF-2"}, Metrics: fast.Metrics,
		}},
		{"headend and egress are one", func(r *cats.PathRequest) { r.Headend = "EF-1" }, cats.PathReply{
			Segments: []netip.Addr{endpoint}, Nodes: []string{"EF-1"}, Metrics: cats.PathMetrics{BandwidthKbps: 1<<32 - 1},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request()
			c.change(&r)
			got := build(t, example()).Compute(r)
			want := c.want
			want.Transaction, want.Endpoint, want.Egress = r.Transaction, r.Endpoint, r.Egress
			want.CSTGeneration, want.NSTGeneration, want.TEDBGeneration = 31, 41, 7
			if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
				t.Errorf("reply (-want +got):\n%s", d)
			}
		})
	}
}

// Whatever is asked, the PCE judges by the network alone: what it keeps and gives has no place for a computing value, and
// a bound that needs one is refused, not guessed from a path.
func TestNoComputingValue(t *testing.T) {
	for name, bound := range map[string]cats.Bounds{
		"slots":          {MinSlots: cats.Some[uint32](1)},
		"computing time": {MaxComputingTimeMS: cats.Some[uint32](50)},
		"real delay":     {MaxRealDelayUS: cats.Some[uint32](50_000)},
		"price":          {MaxPrice: cats.Some[uint32](1)},
		"security":       {MinSecurity: cats.Some[uint8](1)},
		"reputation":     {MinReputation: cats.Some[uint8](1)},
		"target price":   {TargetPrice: cats.Some[uint32](1)},
	} {
		t.Run("CP-5-3 a bound on "+name+" is refused", func(t *testing.T) {
			r := request()
			r.Bounds = bound
			reply := build(t, example()).Compute(r)
			if reply.Status != cats.PathNone || reply.Reason != cats.ReasonMalformed || !strings.Contains(reply.Detail, "only the service's metrics could tell") {
				t.Errorf("reply %+v", reply)
			}
		})
	}
	t.Run("CP-5-3 a path record has network metrics alone", func(t *testing.T) {
		var names []string
		for _, f := range reflect.VisibleFields(reflect.TypeFor[cats.PathMetrics]()) {
			names = append(names, f.Name)
		}
		if want := []string{"DelayUS", "JitterUS", "LossPPM", "BandwidthKbps", "TEMetric", "Hops"}; !slices.Equal(names, want) {
			t.Errorf("path metrics %v, want %v", names, want)
		}
	})
}

// The least-delay path is too deep for the headend and another one is not.
func TestShorterPathWhereTheBestDoesNotFit(t *testing.T) {
	s := example()
	s.Nodes = append(s.Nodes, cats.Node{Name: "R3", SID: netip.MustParseAddr("2001:db8:0:f3::1")})
	s.Links = append(s.Links, cats.Link{From: "IF-1", To: "R3", DelayUS: 1}, cats.Link{From: "R3", To: "R1", DelayUS: 1})
	r := request()
	if reply := build(t, s).Compute(r); !slices.Equal(reply.Nodes, []string{"IF-1", "R3", "R1", "EF-1"}) {
		t.Errorf("least delay goes by %v: %s", reply.Nodes, reply.Detail)
	}
	r.Capabilities.MaxSegments = 2
	t.Run("CP-8.3-3 a path in a form that the headend can activate", func(t *testing.T) {
		reply := build(t, s).Compute(r)
		if !slices.Equal(reply.Nodes, []string{"IF-1", "R1", "EF-1"}) || len(reply.Segments) != 2 || reply.Metrics.DelayUS != 1_000 {
			t.Errorf("goes by %v with segments %v and delay %d: %s", reply.Nodes, reply.Segments, reply.Metrics.DelayUS, reply.Detail)
		}
	})
	t.Run("CP-8.3-1 no other path is within the bounds", func(t *testing.T) {
		r.Bounds.MaxDelayUS = cats.Some[uint32](600)
		reply := build(t, s).Compute(r)
		if reply.Reason != cats.ReasonCapabilityMismatch || !strings.Contains(reply.Detail, "needs at least 3 segments, and headend IF-1 can push 2") {
			t.Errorf("reply %+v", reply)
		}
	})
}

func TestTransitNodeWithoutSID(t *testing.T) {
	s := example()
	s.Nodes[3].SID = netip.Addr{} // R1
	r := request()
	if reply := build(t, s).Compute(r); !slices.Equal(reply.Nodes, []string{"IF-1", "R2", "EF-1"}) {
		t.Errorf("goes by %v: %s", reply.Nodes, reply.Detail)
	}
	r.Bounds.MaxDelayUS = cats.Some[uint32](1_000)
	reply := build(t, s).Compute(r)
	if want := "it would take max delay 8000 µs (7000 more) or a SID on transit node R1"; !strings.Contains(reply.Detail, want) {
		t.Errorf("detail %q does not say %q", reply.Detail, want)
	}
	s.Nodes[4].SID = netip.Addr{} // R2
	reply = build(t, s).Compute(request())
	if want := "no path from IF-1 to EF-1; it would take a SID on transit node R1"; reply.Detail != want {
		t.Errorf("detail %q, want %q", reply.Detail, want)
	}
}

func TestNoLinks(t *testing.T) {
	s := example()
	s.Links = slices.DeleteFunc(s.Links, func(l cats.Link) bool { return l.To == "EF-1" })
	for _, bounds := range []cats.Bounds{{}, {MaxDelayUS: cats.Some[uint32](1), MinBandwidthKbps: cats.Some[uint32](1)}} {
		r := request()
		r.Bounds = bounds
		reply := build(t, s).Compute(r)
		if want := "no path from IF-1 to EF-1: no links lead there"; reply.Detail != want || reply.Reason != cats.ReasonNoPath {
			t.Errorf("detail %q, want %q", reply.Detail, want)
		}
	}
	r := request()
	r.Headend, r.Egress = "EF-1", "IF-1"
	if reply := build(t, s).Compute(r); reply.Status != cats.PathFound {
		t.Errorf("a one-way link is not used in its own direction: %s", reply.Detail)
	}
}

// Each of three paths meets one bound and fails the other two.
func TestBoundsThatCannotBeMetTogether(t *testing.T) {
	s := tedb.Source{Name: "test", Nodes: []cats.Node{{Name: "IF-1"}, {Name: "EF-1"}}}
	for i, l := range []cats.Link{{DelayUS: 1, JitterUS: 9, LossPPM: 9}, {DelayUS: 9, JitterUS: 1, LossPPM: 9}, {DelayUS: 9, JitterUS: 9, LossPPM: 1}} {
		via := "R" + string('1'+rune(i))
		s.Nodes = append(s.Nodes, cats.Node{Name: via, SID: netip.AddrFrom16([16]byte{0x20, 15: byte(i + 1)})})
		l.From, l.To = "IF-1", via
		s.Links = append(s.Links, l, cats.Link{From: via, To: "EF-1", DelayUS: 1})
	}
	r := request()
	r.Bounds.MaxDelayUS, r.Bounds.MaxJitterUS, r.Bounds.MaxLossPPM = cats.Some[uint32](2), cats.Some[uint32](1), cats.Some[uint32](1)
	reply := build(t, s).Compute(r)
	if want := "no path from IF-1 to EF-1 within max delay 2 µs, max jitter 1 µs, max loss 1 ppm together, though each alone can be met"; reply.Detail != want {
		t.Errorf("detail %q, want %q", reply.Detail, want)
	}
}

func TestRows(t *testing.T) {
	s := example()
	s.Links = slices.DeleteFunc(s.Links, func(l cats.Link) bool { return l.To == "EF-2" })
	got := build(t, s).Rows([]string{"IF-1", "EF-2", "IF-9"}, []string{"EF-1", "EF-2"})
	row := func(headend, egress string, reachable bool, m cats.PathMetrics) cats.NSTRow {
		return cats.NSTRow{
			Headend: headend, Egress: egress, Reachable: reachable, Metrics: m, Source: "cnma-1", Generation: 7, Measured: 1_000,
			TTL: 30 * time.Second,
		}
	}
	fast := cats.PathMetrics{DelayUS: 1_000, JitterUS: 80, LossPPM: 20, BandwidthKbps: 1_000, TEMetric: 40, Hops: 2}
	want := []cats.NSTRow{
		row("IF-1", "EF-1", true, fast),
		row("IF-1", "EF-2", false, cats.PathMetrics{}),
		row("EF-2", "EF-1", true, fast), // the links out of EF-2 are there
		row("EF-2", "EF-2", true, cats.PathMetrics{BandwidthKbps: 1<<32 - 1}),
		row("IF-9", "EF-1", false, cats.PathMetrics{}),
		row("IF-9", "EF-2", false, cats.PathMetrics{}),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
}

func TestRefreshed(t *testing.T) {
	s := build(t, example())
	fresh := s.Refreshed("cnma-1", 2_000, time.Minute)
	if row := fresh.Rows([]string{"IF-1"}, []string{"EF-1"})[0]; row.Measured != 2_000 || row.TTL != time.Minute || row.Generation != 7 {
		t.Errorf("row after a refresh: %+v", row)
	}
	if row := s.Rows([]string{"IF-1"}, []string{"EF-1"})[0]; row.Measured != 1_000 {
		t.Errorf("the refresh changed the snapshot that it began with: %+v", row)
	}
	if s.Refreshed("cnma-2", 2_000, time.Minute) != nil {
		t.Error("a source that is not there was refreshed")
	}
}

func TestBuildRefuses(t *testing.T) {
	s := example()
	s.Links[0].To = "R9"
	if got, err := Build(domain, 1, s); got != nil || err == nil || !strings.Contains(err.Error(), "cnma-1: link IF-1 -> R9: node R9 is not in the topology") {
		t.Errorf("snapshot %v, error %v", got, err)
	}
}
