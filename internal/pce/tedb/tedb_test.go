package tedb

import (
	"errors"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
)

func sid(last string) netip.Addr { return netip.MustParseAddr("2001:db8:0:f1::" + last) }

func triangle() Source {
	return Source{
		Name:     "cnma-1",
		Measured: 100,
		TTL:      30 * time.Second,
		Nodes:    []cats.Node{{Name: "IF-1"}, {Name: "R1", SID: sid("1")}, {Name: "EF-1"}},
		Links: []cats.Link{
			{From: "IF-1", To: "R1", DelayUS: 500, JitterUS: 10, LossPPM: 2, BandwidthKbps: 1_000, TEMetric: 5},
			{From: "R1", To: "EF-1", DelayUS: 700, JitterUS: 20, LossPPM: 2, BandwidthKbps: 2_000, TEMetric: 6},
			{From: "IF-1", To: "EF-1", DelayUS: 900, LossPPM: cats.MaxLossPPM, BandwidthKbps: 9},
		},
	}
}

func TestBuild(t *testing.T) {
	s, err := Build(7, triangle())
	if err != nil {
		t.Fatal(err)
	}
	if s.Generation() != 7 || s.Nodes() != 3 {
		t.Errorf("generation %d with %d nodes, want 7 with 3", s.Generation(), s.Nodes())
	}
	if s.Links() != 2 {
		t.Errorf("%d links, want 2: one loses everything", s.Links())
	}
	r1, found := s.Lookup("R1")
	if !found || s.Name(r1) != "R1" || s.SID(r1) != sid("1") {
		t.Errorf("R1 is node %d, %t, %s with SID %s", r1, found, s.Name(r1), s.SID(r1))
	}
	if _, found := s.Lookup("R2"); found {
		t.Error("a node R2 was found")
	}
	out := s.OutOf(r1)
	first, last := s.Into(r1)
	if len(out) != 1 || last-first != 1 {
		t.Fatalf("%d links out of R1 and %d into it, want 1 and 1", len(out), last-first)
	}
	got := s.Measure([]int32{first, out[0]})
	want := cats.PathMetrics{DelayUS: 1_200, JitterUS: 30, LossPPM: 4, BandwidthKbps: 1_000, TEMetric: 11, Hops: 2}
	if got != want {
		t.Errorf("metrics %+v, want %+v", got, want)
	}
}

func TestBuildRefuses(t *testing.T) {
	good := cats.Link{From: "IF-1", To: "R1", DelayUS: 1}
	for _, c := range []struct {
		name   string
		change func(*Source)
		reason cats.Reason
		want   string
	}{
		{"node twice", func(s *Source) { s.Nodes = append(s.Nodes, cats.Node{Name: "R1"}) }, cats.ReasonDuplicate, "cnma-1: node R1 is given twice"},
		{"name", func(s *Source) { s.Nodes[1].Name = "R 1" }, cats.ReasonMalformed, `node "R 1"`},
		{"IPv4 SID", func(s *Source) { s.Nodes[1].SID = netip.MustParseAddr("192.0.2.1") }, cats.ReasonMalformed, "node R1: SID 192.0.2.1"},
		{"multicast SID", func(s *Source) { s.Nodes[1].SID = netip.MustParseAddr("ff02::1") }, cats.ReasonMalformed, "node R1: SID ff02::1"},
		{"SID twice", func(s *Source) { s.Nodes[0].SID = sid("1") }, cats.ReasonDuplicate, "node R1: SID 2001:db8:0:f1::1 is also that of IF-1"},
		{"unknown head", func(s *Source) { s.Links[0].From = "R9" }, cats.ReasonMalformed, "link R9 -> R1: node R9 is not in the topology"},
		{"unknown tail", func(s *Source) { s.Links[0].To = "R9" }, cats.ReasonMalformed, "link IF-1 -> R9: node R9 is not in the topology"},
		{"loop", func(s *Source) { s.Links[0].To = "IF-1" }, cats.ReasonMalformed, "link IF-1 -> IF-1: leads to itself"},
		{"link twice", func(s *Source) { s.Links = append(s.Links, good) }, cats.ReasonDuplicate, "link IF-1 -> R1 is given twice by cnma-1"},
		{"no delay", func(s *Source) { s.Links[0].DelayUS = 0 }, cats.ReasonRange, "link IF-1 -> R1: has no delay"},
		{"delay", func(s *Source) { s.Links[0].DelayUS = cats.MaxLinkMetric + 1 }, cats.ReasonRange, "link IF-1 -> R1: delay 16777216"},
		{"jitter", func(s *Source) { s.Links[0].JitterUS = cats.MaxLinkMetric + 1 }, cats.ReasonRange, "link IF-1 -> R1: jitter 16777216"},
		{"loss", func(s *Source) { s.Links[0].LossPPM = cats.MaxLossPPM + 1 }, cats.ReasonRange, "link IF-1 -> R1: loss 1000001"},
		{"TE metric", func(s *Source) { s.Links[0].TEMetric = cats.MaxLinkMetric + 1 }, cats.ReasonRange, "link IF-1 -> R1: TE metric 16777216"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := triangle()
			c.change(&source)
			s, err := Build(1, source)
			if s != nil || !errors.Is(err, c.reason) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("snapshot %v, error %v; want none, reason %s, text %q", s, err, c.reason, c.want)
			}
		})
	}
}

func TestBuildListsEveryProblem(t *testing.T) {
	source := triangle()
	source.Links[0].DelayUS = 0
	source.Links[1].To = "R9"
	_, err := Build(1, source)
	for _, want := range []string{"link IF-1 -> R1: has no delay", "node R9 is not in the topology"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	for range 30 {
		source.Links = append(source.Links, cats.Link{From: "R1", To: "R1", DelayUS: 1})
	}
	if _, err = Build(1, source); !strings.Contains(err.Error(), "and 12 more") || strings.Count(err.Error(), "\n") != 20 {
		t.Errorf("a long list is not cut with its length: %v", err)
	}
}

func TestBuildOfSeveralSources(t *testing.T) {
	west := Source{Name: "west", Measured: 10, TTL: 5, Nodes: []cats.Node{{Name: "A"}, {Name: "B"}}, Links: []cats.Link{{From: "A", To: "B", DelayUS: 1}}}
	east := Source{Name: "east", Measured: 8, TTL: 5, Nodes: []cats.Node{{Name: "B", SID: sid("b")}, {Name: "C"}}, Links: []cats.Link{{From: "B", To: "C", DelayUS: 2}}}
	s, err := Build(1, west, east)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := s.Lookup("A")
	b, _ := s.Lookup("B")
	c, _ := s.Lookup("C")
	if s.SID(b) != sid("b") {
		t.Errorf("B has SID %s, want the one that east gives", s.SID(b))
	}
	path := []int32{s.OutOf(a)[0], s.OutOf(b)[0]}
	if got := s.Origin(a, c, path).Name; got != "east" {
		t.Errorf("the path stands as long as %s, want east, which ends first", got)
	}
	if got := s.Weakest().Name; got != "east" {
		t.Errorf("weakest is %s, want east", got)
	}
	fresh := s.Refreshed("east", 20, 5)
	if got := fresh.Origin(a, c, path).Name; got != "west" || fresh.Generation() != 1 {
		t.Errorf("after a refresh of east the path stands as long as %s at generation %d, want west at 1", got, fresh.Generation())
	}
	if got := s.Origin(a, c, path); got.Name != "east" || got.Measured != 8 {
		t.Errorf("the refresh changed the snapshot that it began with: %+v", got)
	}
	west.Links[0].Age = 4
	if s, err = Build(1, west, east); err != nil {
		t.Fatal(err)
	}
	if got := s.Origin(a, c, path); got.Name != "west" || got.Measured != 6 {
		t.Errorf("with a link of west measured 4 before, the path stands as long as %+v", got)
	}
	if s.Refreshed("north", 1, 1) != nil {
		t.Error("a source that is not there was refreshed")
	}

	east.Nodes[0].SID, west.Nodes[1].SID = sid("b"), sid("c")
	if _, err := Build(1, west, east); !errors.Is(err, cats.ReasonIdentityConflict) || !strings.Contains(err.Error(), "node B: SID 2001:db8:0:f1::c from west, but 2001:db8:0:f1::b from east") {
		t.Errorf("two SIDs for B: %v", err)
	}
	west.Nodes[1].SID = netip.Addr{}
	east.Nodes = append(east.Nodes, cats.Node{Name: "A"})
	east.Links = append(east.Links, west.Links[0])
	if _, err := Build(1, west, east); !errors.Is(err, cats.ReasonDuplicate) || !strings.Contains(err.Error(), "link A -> B is given by west and by east") {
		t.Errorf("one link from two sources: %v", err)
	}
}

func TestSnapshotDoesNotDependOnOrder(t *testing.T) {
	source := triangle()
	a, err := Build(1, source)
	if err != nil {
		t.Fatal(err)
	}
	source.Nodes[0], source.Nodes[2] = source.Nodes[2], source.Nodes[0]
	source.Links[0], source.Links[1] = source.Links[1], source.Links[0]
	b, err := Build(1, source)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("the same topology in another order gives another snapshot:\n%+v\n%+v", a, b)
	}
}

func TestEmpty(t *testing.T) {
	s, err := Build(1)
	if err != nil || s.Nodes() != 0 || s.Links() != 0 || s.Weakest() != (Origin{}) {
		t.Errorf("no source: %+v, %v", s, err)
	}
}

// A sum is within a bound exactly if its reported value is, so that a path never shows a value beyond the bound that it
// was admitted under.
func TestValueAgreesWithLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Metric(rapid.IntRange(0, int(Metrics)-1).Draw(t, "metric"))
		most := map[Metric]int{Loss: cats.MaxLossPPM - 1, Hops: 1}[m]
		if most == 0 {
			most = cats.MaxLinkMetric
		}
		values := rapid.SliceOfN(rapid.IntRange(0, most), 1, 20).Draw(t, "values")
		var sum uint64
		for _, v := range values {
			sum += weight(m, uint32(v))
		}
		value := Value(m, sum)
		if sum > Limit(m, value) {
			t.Fatalf("%s %v: reported as %d, which it is above", m, values, value)
		}
		if value > 0 && sum <= Limit(m, value-1) {
			t.Fatalf("%s %v: reported as %d, and %d would do", m, values, value, value-1)
		}
	})
}

func TestLossCombinesExactly(t *testing.T) {
	for _, c := range []struct {
		links []uint32
		want  uint32
	}{
		{[]uint32{0}, 0},
		{[]uint32{1_000}, 1_000},
		{[]uint32{2, 2, 2, 2}, 8}, // 7.99998
		{[]uint32{500_000, 500_000}, 750_000},
		{[]uint32{100_000, 200_000}, 280_000},
		{[]uint32{999_999, 999_999}, 1_000_000},
	} {
		var sum uint64
		for _, l := range c.links {
			sum += weight(Loss, l)
		}
		if got := Value(Loss, sum); got != c.want {
			t.Errorf("losses %v combine to %d ppm, want %d", c.links, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		links := rapid.SliceOfN(rapid.Uint32Range(0, cats.MaxLossPPM-1), 1, 6).Draw(t, "links")
		var sum uint64
		kept, whole := big.NewInt(1), big.NewInt(1)
		for _, l := range links {
			sum += weight(Loss, l)
			kept.Mul(kept, big.NewInt(int64(cats.MaxLossPPM-l)))
			whole.Mul(whole, big.NewInt(cats.MaxLossPPM))
		}
		lost, _ := new(big.Rat).SetFrac(new(big.Int).Sub(whole, kept), whole).Float64()
		if got, want := float64(Value(Loss, sum)), lost*cats.MaxLossPPM; got < want-1e-5 || got > want+1+1e-5 {
			t.Fatalf("losses %v combine to %.7f ppm, reported as %.0f", links, want, got)
		}
	})
}

func TestSumsDoNotOverflow(t *testing.T) {
	for m := range Metrics {
		most := map[Metric]uint32{Loss: cats.MaxLossPPM - 1, Hops: 1}[m]
		if most == 0 {
			most = cats.MaxLinkMetric
		}
		if weight(m, most) > math.MaxUint64/MaxNodes {
			t.Errorf("%s: a path through %d nodes overflows", m, MaxNodes)
		}
	}
}
