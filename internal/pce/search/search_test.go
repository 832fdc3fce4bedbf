package search

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/simple"
	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/pce/tedb"
)

func sid(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i + 1)})
}

// graph draws a topology of up to seven nodes. Values repeat, so that there are ties; losses have few digits, so that
// their products are exact.
func graph(t *rapid.T) []tedb.Source {
	n := rapid.IntRange(2, 7).Draw(t, "nodes")
	s := tedb.Source{Name: "test"}
	for i := range n {
		node := cats.Node{Name: fmt.Sprint("n", i)}
		if rapid.IntRange(0, 5).Draw(t, "without SID") < 5 {
			node.SID = sid(i)
		}
		s.Nodes = append(s.Nodes, node)
	}
	for i := range n {
		for j := range n {
			if i == j || rapid.IntRange(0, 9).Draw(t, "absent") > 5 {
				continue
			}
			s.Links = append(s.Links, cats.Link{
				From: s.Nodes[i].Name, To: s.Nodes[j].Name,
				DelayUS:       rapid.Uint32Range(1, 9).Draw(t, "delay"),
				JitterUS:      rapid.Uint32Range(0, 5).Draw(t, "jitter"),
				LossPPM:       rapid.SampledFrom([]uint32{0, 10_000, 20_000, 100_000, 500_000, 1_000_000}).Draw(t, "loss"),
				BandwidthKbps: rapid.Uint32Range(0, 4).Draw(t, "bandwidth"),
				TEMetric:      rapid.Uint32Range(0, 6).Draw(t, "TE metric"),
			})
		}
	}
	return []tedb.Source{s}
}

// oracle enumerates every simple path over the links as they came in, and judges each by the definition of its metrics.
type oracle struct {
	source  tedb.Source
	problem Problem
	to      string
	best    []uint64 // rank and links of the best; nil: none
}

func (o *oracle) solve(from, to string) []uint64 {
	o.best, o.to = nil, to
	o.visit(from, nil)
	return o.best
}

func (o *oracle) visit(at string, links []cats.Link) {
	if at == o.to {
		if rank, ok := judge(o.problem, links); ok && (o.best == nil || slices.Compare(rank, o.best) < 0) {
			o.best = rank
		}
		return
	}
	if len(links) > 0 && !o.problem.Unpinned && !o.hasSID(at) {
		return
	}
	for _, l := range o.source.Links {
		back := func(k cats.Link) bool { return k.From == l.To }
		if l.From == at && l.To != at && !slices.ContainsFunc(links, back) {
			o.visit(l.To, append(slices.Clone(links), l))
		}
	}
}

func (o *oracle) hasSID(name string) bool {
	i := slices.IndexFunc(o.source.Nodes, func(n cats.Node) bool { return n.Name == name })
	return o.source.Nodes[i].SID.IsValid()
}

// judge gives rank and length of a path, and whether it is within every bound.
func judge(p Problem, links []cats.Link) ([]uint64, bool) {
	kept, whole := big.NewInt(1), big.NewInt(1)
	var sum [tedb.Metrics]uint64
	for _, l := range links {
		if l.BandwidthKbps < p.Bandwidth || l.LossPPM == 1_000_000 {
			return nil, false
		}
		sum[tedb.Delay] += uint64(l.DelayUS)
		sum[tedb.Jitter] += uint64(l.JitterUS)
		sum[tedb.TEMetric] += uint64(l.TEMetric)
		sum[tedb.Hops]++
		kept.Mul(kept, big.NewInt(int64(1_000_000-l.LossPPM)))
		whole.Mul(whole, big.NewInt(1_000_000))
	}
	for m := range tedb.Metrics {
		if m == tedb.Loss || !p.Max[m].Present {
			continue
		}
		if sum[m] > uint64(p.Max[m].Value) {
			return nil, false
		}
	}
	if p.Max[tedb.Loss].Present {
		least := new(big.Int).Mul(whole, big.NewInt(int64(1_000_000-p.Max[tedb.Loss].Value)))
		if new(big.Int).Mul(kept, big.NewInt(1_000_000)).Cmp(least) < 0 {
			return nil, false
		}
	}
	return []uint64{sum[p.Rank], sum[tedb.Hops]}, true
}

// Every combination of bounds, ranked by delay and by TE metric, on one random graph a run.
func TestFindAgainstEnumeration(t *testing.T) {
	var w Workspace
	rapid.Check(t, func(t *rapid.T) {
		sources := graph(t)
		s, err := tedb.Build(1, sources...)
		if err != nil {
			t.Fatal(err)
		}
		all := [tedb.Metrics]uint32{
			tedb.Delay:    rapid.Uint32Range(1, 30).Draw(t, "max delay"),
			tedb.Jitter:   rapid.Uint32Range(0, 15).Draw(t, "max jitter"),
			tedb.Loss:     rapid.SampledFrom([]uint32{0, 10_000, 29_800, 29_799, 200_000, 550_000, 750_000}).Draw(t, "max loss"),
			tedb.TEMetric: rapid.Uint32Range(0, 20).Draw(t, "max TE metric"),
			tedb.Hops:     rapid.Uint32Range(1, 6).Draw(t, "max hops"),
		}
		bandwidth := rapid.Uint32Range(1, 4).Draw(t, "min bandwidth")
		names := sources[0].Nodes
		from := rapid.IntRange(0, len(names)-1).Draw(t, "from")
		to := rapid.IntRange(0, len(names)-1).Draw(t, "to")
		unpinned := rapid.Bool().Draw(t, "unpinned")
		for subset := range 1 << (tedb.Metrics + 1) {
			for _, rank := range []tedb.Metric{tedb.Delay, tedb.TEMetric} {
				p := Problem{From: int32(from), To: int32(to), Rank: rank, Unpinned: unpinned}
				for m := range tedb.Metrics {
					if subset>>m&1 == 1 {
						p.Max[m] = cats.Some(all[m])
					}
				}
				if subset>>tedb.Metrics == 1 {
					p.Bandwidth = bandwidth
				}
				compare(t, &w, s, sources[0], p)
			}
		}
	})
}

func compare(t *rapid.T, w *Workspace, s *tedb.Snapshot, source tedb.Source, p Problem) {
	o := oracle{source: source, problem: p}
	want := o.solve(s.Name(p.From), s.Name(p.To))
	path, err := w.Find(s, p)
	if want == nil {
		if !errors.Is(err, ErrNone) {
			t.Fatalf("%+v: path %v, error %v; enumeration finds none", p, path, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%+v: %v; enumeration finds one of rank and length %v", p, err, want)
	}
	var links []cats.Link
	at := p.From
	for _, l := range path {
		from, to := s.Ends(l)
		if from != at {
			t.Fatalf("%+v: path %v is broken at %s", p, path, s.Name(at))
		}
		i := slices.IndexFunc(source.Links, func(k cats.Link) bool { return k.From == s.Name(from) && k.To == s.Name(to) })
		links = append(links, source.Links[i])
		at = to
		if at != p.To && !p.Unpinned && !s.SID(at).IsValid() {
			t.Fatalf("%+v: the path goes through %s, which has no SID", p, s.Name(at))
		}
	}
	got, within := judge(p, links)
	if at != p.To || !within || !slices.Equal(got, want) {
		t.Fatalf("%+v: path %v of rank and length %v, within the bounds %t; enumeration finds %v", p, links, got, within, want)
	}
}

// random is a strongly connected topology: a ring, and links between random nodes up to the number asked for.
func random(nodes, links int, seed uint64) (*tedb.Snapshot, tedb.Source) {
	r := rand.New(rand.NewPCG(seed, 1))
	s := tedb.Source{Name: "random"}
	name := func(i int) string { return fmt.Sprintf("n%05d", i%nodes) }
	for i := range nodes {
		s.Nodes = append(s.Nodes, cats.Node{Name: name(i), SID: sid(i)})
	}
	taken := map[[2]int]bool{}
	add := func(i, j int) {
		if i == j || taken[[2]int{i, j}] {
			return
		}
		taken[[2]int{i, j}] = true
		s.Links = append(s.Links, cats.Link{
			From: name(i), To: name(j), DelayUS: 1 + r.Uint32N(10_000), JitterUS: r.Uint32N(100), LossPPM: r.Uint32N(100),
			BandwidthKbps: 1 + r.Uint32N(1_000_000), TEMetric: 1 + r.Uint32N(10_000),
		})
	}
	for i := range nodes {
		add(i, (i+1)%nodes)
	}
	for len(s.Links) < links {
		add(r.IntN(nodes), r.IntN(nodes))
	}
	t, err := tedb.Build(1, s)
	if err != nil {
		panic(err)
	}
	return t, s
}

func TestLeastDelayAgainstGonum(t *testing.T) {
	var w Workspace
	for seed := range uint64(5) {
		s, source := random(300, 1_500, seed)
		g := simple.NewWeightedDirectedGraph(0, 0)
		for _, l := range source.Links {
			from, _ := s.Lookup(l.From)
			to, _ := s.Lookup(l.To)
			g.SetWeightedEdge(g.NewWeightedEdge(simple.Node(from), simple.Node(to), float64(l.DelayUS)))
		}
		for from := int32(0); from < 300; from += 30 {
			shortest := path.DijkstraFrom(simple.Node(from), g)
			for to := range int32(300) {
				links, err := w.Find(s, Problem{From: from, To: to, Rank: tedb.Delay})
				if err != nil {
					t.Fatalf("seed %d, %d to %d: %v", seed, from, to, err)
				}
				if got, want := float64(s.Measure(links).DelayUS), shortest.WeightTo(int64(to)); got != want {
					t.Fatalf("seed %d, %d to %d: least delay %.0f, gonum %.0f", seed, from, to, got, want)
				}
			}
		}
	}
}

func TestTowardAgreesWithFind(t *testing.T) {
	var all, one Workspace
	s, _ := random(200, 700, 9)
	all.Toward(s, Problem{To: 17, Rank: tedb.Delay})
	for from := range int32(200) {
		tree, reachable := all.Path(s, tedb.Delay, from, 17)
		single, err := one.Find(s, Problem{From: from, To: 17, Rank: tedb.Delay})
		if !reachable || err != nil || s.Measure(tree).DelayUS != s.Measure(single).DelayUS {
			t.Fatalf("from %d: %v by the tree (%t), %v by itself (%v)", from, tree, reachable, single, err)
		}
	}
}

// A ladder whose every rung trades delay for TE metric has exponentially many paths of which none is at least as good.
func TestBudgetIsReported(t *testing.T) {
	const rungs = 24
	source := tedb.Source{Name: "ladder"}
	name := func(i int, side string) string { return fmt.Sprintf("n%02d%s", i, side) }
	for i := range rungs + 1 {
		for side, c := range []string{"", "x", "y"} {
			source.Nodes = append(source.Nodes, cats.Node{Name: name(i, c), SID: sid(3*i + side)})
		}
		if i == rungs {
			break
		}
		trade := uint32(1) << i
		source.Links = append(source.Links,
			cats.Link{From: name(i, ""), To: name(i, "x"), DelayUS: 1, TEMetric: 1},
			cats.Link{From: name(i, ""), To: name(i, "y"), DelayUS: 1, TEMetric: 1},
			cats.Link{From: name(i, "x"), To: name(i+1, ""), DelayUS: 1 + trade, TEMetric: 1},
			cats.Link{From: name(i, "y"), To: name(i+1, ""), DelayUS: 1, TEMetric: 1 + trade})
	}
	s, err := tedb.Build(1, source)
	if err != nil {
		t.Fatal(err)
	}
	from, _ := s.Lookup(name(0, ""))
	to, _ := s.Lookup(name(rungs, ""))
	p := Problem{From: from, To: to, Rank: tedb.TEMetric, Budget: 1_000}
	p.Max[tedb.Delay] = cats.Some(uint32(1<<rungs/3 + 2*rungs))
	var w Workspace
	if _, err := w.Find(s, p); !errors.Is(err, ErrBudget) {
		t.Errorf("a search beyond its budget gives %v, want ErrBudget", err)
	}
	p.Max[tedb.Delay] = cats.Some(uint32(1<<rungs + 2*rungs))
	if path, err := w.Find(s, p); err != nil || len(path) != 2*rungs {
		t.Errorf("a search that needs no label gives %v, %v", path, err)
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	s, _ := random(1_000, 6_000, 1)
	var w Workspace
	p := Problem{From: 3, To: 700, Rank: tedb.Delay, Bandwidth: 1_000}
	exact := p
	exact.Rank = tedb.TEMetric
	exact.Max[tedb.Delay] = cats.Some(tighter(t, &w, s, p))
	for name, p := range map[string]Problem{"least delay": p, "exact": exact} {
		find := func() {
			if _, err := w.Find(s, p); err != nil {
				t.Fatal(err)
			}
		}
		find()
		if n := testing.AllocsPerRun(20, find); n != 0 {
			t.Errorf("%s: %v allocations a search, want 0", name, n)
		}
	}
}

// tighter gives a delay bound of 1.2 times the least.
func tighter(t testing.TB, w *Workspace, s *tedb.Snapshot, p Problem) uint32 {
	p.Rank, p.Max = tedb.Delay, [tedb.Metrics]cats.Optional[uint32]{}
	links, err := w.Find(s, p)
	if err != nil {
		t.Fatal(err)
	}
	return s.Measure(links).DelayUS * 6 / 5
}

func BenchmarkLeastDelay1000(b *testing.B) {
	s, _ := random(1_000, 6_000, 1)
	var w Workspace
	r := rand.New(rand.NewPCG(2, 2))
	b.ReportAllocs()
	for b.Loop() {
		p := Problem{From: r.Int32N(1_000), To: r.Int32N(1_000), Rank: tedb.Delay, Bandwidth: 1_000}
		if _, err := w.Find(s, p); err != nil && !errors.Is(err, ErrNone) {
			b.Fatal(err)
		}
	}
}

// Least TE metric under a delay bound of 1.2 times the least delay, costs and delays random.
func BenchmarkExact1000(b *testing.B) {
	s, _ := random(1_000, 6_000, 1)
	var w Workspace
	r := rand.New(rand.NewPCG(2, 2))
	problems := make([]Problem, 200)
	for i := range problems {
		p := Problem{From: r.Int32N(1_000), To: r.Int32N(1_000), Rank: tedb.TEMetric}
		p.Max[tedb.Delay] = cats.Some(tighter(b, &w, s, p))
		problems[i] = p
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := w.Find(s, problems[i%len(problems)]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkToward1000(b *testing.B) {
	s, _ := random(1_000, 6_000, 1)
	var w Workspace
	b.ReportAllocs()
	for i := int32(0); b.Loop(); i++ {
		w.Toward(s, Problem{To: i % 1_000, Rank: tedb.Delay})
	}
}
