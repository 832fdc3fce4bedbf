package selection

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/cst"
)

func request(policy catalogue.Policy) *Request {
	return &Request{
		Service: &catalogue.ServiceRecord{CSID: "S1", Number: 1, Version: "1", State: catalogue.Published, Policy: policy,
			BandPercent: 5, Tenants: []string{"default"}, Idle: time.Minute},
		Key: cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: cats.Tuple{Protocol: cats.TCP,
			Source: netip.MustParseAddrPort("192.0.2.10:51000"), Target: netip.MustParseAddrPort("192.0.2.100:443")}},
	}
}

// candidate is eligible.
func candidate(id cats.CSCIID, computingMS, networkUS uint32) Candidate {
	return Candidate{
		Deployment: &catalogue.Deployment{Site: "edge", CSCIID: id, CSID: "S1", Version: "1", State: catalogue.Validated,
			Locator: cats.Locator{Protocol: cats.TCP, Address: netip.MustParseAddrPort("198.51.100.11:443")}},
		Egress:     catalogue.EgressAttachment{Forwarder: "EF-" + string(id), SID: netip.MustParseAddr("2001:db8::1")},
		Authorized: true, Acknowledged: true, Encapsulation: true, Connected: true,
		Report: &cst.Row{Version: "1", Health: cats.Healthy, Source: "m1",
			Metrics: cats.Metrics{GAS: 10, ComputingTimeMS: computingMS}},
		Effective: 10,
		Path: &cats.NSTRow{Headend: "IF-1", Egress: "EF-" + string(id), Reachable: true,
			Metrics: cats.PathMetrics{DelayUS: networkUS, JitterUS: 100, LossPPM: 10, BandwidthKbps: 1000}},
	}
}

// The use-case draft's candidates: computing/network ms 4/9, 10/4, 5/5.
func vector() []Candidate {
	return []Candidate{candidate("1", 4, 9000), candidate("2", 10, 4000), candidate("3", 5, 5000)}
}

func TestVector(t *testing.T) {
	for _, c := range []struct {
		policy catalogue.Policy
		want   int
		value  uint64
	}{{catalogue.Latency, 2, 10_000}, {catalogue.Service, 0, 4_000}, {catalogue.Network, 1, 4_000}} {
		t.Run("CP-5-4 "+c.policy.String()+" ranks by its own key", func(t *testing.T) {
			r := request(c.policy)
			r.Service.BandPercent = 0
			d := Select(r, vector())
			if d.Chosen != c.want || d.Best != c.value {
				t.Errorf("chosen %d with best %d µs, want %d with %d", d.Chosen, d.Best, c.want, c.value)
			}
		})
	}
	t.Run("CP-5-4 a real-delay bound of 10.6 ms leaves the third", func(t *testing.T) {
		r := request(catalogue.Latency)
		r.Constraints.Hard.MaxRealDelayUS = cats.Some[uint32](10_600)
		d := Select(r, vector())
		if d.Chosen != 2 || d.Outcomes[0].Stage != StageRealDelay || d.Outcomes[1].Stage != StageRealDelay {
			t.Errorf("%+v", d)
		}
	})
	t.Run("the third wins under latency also with the default band", func(t *testing.T) {
		if d := Select(request(catalogue.Latency), vector()); d.Chosen != 2 {
			t.Errorf("chosen %d", d.Chosen)
		}
	})
}

// Every filter removes exactly the candidate that breaks it, with its own stage.
func TestFilters(t *testing.T) {
	u32, u8 := cats.Some[uint32], cats.Some[uint8]
	for _, c := range []struct {
		name   string
		change func(*Request, *Candidate)
		want   Stage
	}{
		{"CP-5-2 a report of an unauthorized source", func(_ *Request, c *Candidate) { c.Authorized = false }, StageAuthorization},
		{"another tenant's service", func(r *Request, _ *Candidate) { r.Key.Tenant = "other" }, StageAuthorization},
		{"a service that nobody may use", func(r *Request, _ *Candidate) { r.Service.Tenants = nil }, StageAuthorization},
		{"a deprecated service", func(r *Request, _ *Candidate) { r.Service.State = catalogue.Deprecated }, StageVersion},
		{"another version deployed", func(_ *Request, c *Candidate) { c.Deployment.Version = "2" }, StageVersion},
		{"another version reported", func(_ *Request, c *Candidate) { c.Report.Version = "2" }, StageVersion},
		{"not VALIDATED", func(_ *Request, c *Candidate) { c.Deployment.State = catalogue.Validating }, StageDeployment},
		{"CP-9-5 no acknowledged delivery rule", func(_ *Request, c *Candidate) { c.Acknowledged = false }, StageDeployment},
		{"CP-9-1 no common encapsulation", func(_ *Request, c *Candidate) { c.Encapsulation = false }, StageDeployment},
		{"another address family", func(_ *Request, c *Candidate) {
			c.Deployment.Locator.Address = netip.MustParseAddrPort("[2001:db8::1]:443")
		}, StageDeployment},
		{"another protocol", func(_ *Request, c *Candidate) { c.Deployment.Locator.Protocol = cats.UDP }, StageDeployment},
		{"no session with the egress", func(_ *Request, c *Candidate) { c.Connected = false }, StageEgress},
		{"a commit failed a moment ago", func(_ *Request, c *Candidate) { c.CommitFailed = true }, StageEgress},
		{"CP-5-3 a path, and nothing reported", func(_ *Request, c *Candidate) { c.Report = nil }, StageFreshness},
		{"CP-5-2 a stale report", func(_ *Request, c *Candidate) { c.Validity = cats.Stale }, StageFreshness},
		{"CP-5-2 an expired report", func(_ *Request, c *Candidate) { c.Validity = cats.Expired }, StageFreshness},
		{"a withdrawn report", func(_ *Request, c *Candidate) { c.Validity = cats.Withdrawn }, StageFreshness},
		{"CP-5-2 failed health", func(_ *Request, c *Candidate) { c.Report.Health = cats.Unhealthy }, StageHealth},
		{"unknown health", func(_ *Request, c *Candidate) { c.Report.Health = cats.HealthUnknown }, StageHealth},
		{"CP-5-2 no slot left", func(_ *Request, c *Candidate) { c.Effective = 0 }, StageSlots},
		{"fewer slots than asked for", func(r *Request, c *Candidate) { r.Constraints.Hard.MinSlots = u32(11) }, StageSlots},
		{"computing time", func(r *Request, _ *Candidate) { r.Constraints.Hard.MaxComputingTimeMS = u32(4) }, StageComputing},
		{"price", func(r *Request, c *Candidate) {
			c.Report.Metrics.Price = u32(6)
			r.Constraints.Hard.MaxPrice = u32(5)
		}, StageComputing},
		{"an absent price", func(r *Request, _ *Candidate) { r.Constraints.Hard.MaxPrice = u32(5) }, StageComputing},
		{"an absent security level", func(r *Request, _ *Candidate) { r.Constraints.Hard.MinSecurity = u8(0) }, StageComputing},
		{"an absent reputation", func(r *Request, _ *Candidate) { r.Constraints.Hard.MinReputation = u8(0) }, StageComputing},
		{"no path known", func(_ *Request, c *Candidate) { c.Path = nil }, StagePath},
		{"an expired path view", func(_ *Request, c *Candidate) { c.PathValidity = cats.Expired }, StagePath},
		{"a stale path view", func(_ *Request, c *Candidate) { c.PathValidity = cats.Stale }, StagePath},
		{"an unreachable egress", func(_ *Request, c *Candidate) { c.Path.Reachable = false }, StagePath},
		{"delay", func(r *Request, _ *Candidate) { r.Constraints.Hard.MaxDelayUS = u32(4999) }, StageNetwork},
		{"jitter", func(r *Request, _ *Candidate) { r.Constraints.Hard.MaxJitterUS = u32(99) }, StageNetwork},
		{"loss", func(r *Request, _ *Candidate) { r.Constraints.Hard.MaxLossPPM = u32(9) }, StageNetwork},
		{"bandwidth", func(r *Request, _ *Candidate) { r.Constraints.Hard.MinBandwidthKbps = u32(1001) }, StageNetwork},
		{"real delay", func(r *Request, _ *Candidate) { r.Constraints.Hard.MaxRealDelayUS = u32(9999) }, StageRealDelay},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, one := request(catalogue.Latency), candidate("a", 5, 5000)
			if d := Select(r, []Candidate{one}); d.Chosen != 0 {
				t.Fatalf("the unchanged candidate is removed: %+v", d)
			}
			c.change(r, &one)
			d := Select(r, []Candidate{one})
			if d.Chosen != -1 || d.Outcomes[0].Stage != c.want || d.Emptied != c.want {
				t.Errorf("%+v, want it removed by %s", d, c.want)
			}
			if Why(r, &one, d.Outcomes[0].Stage) == "" {
				t.Error("nothing tells why")
			}
		})
	}
	t.Run("bounds that are just met remove nothing", func(t *testing.T) {
		r, one := request(catalogue.Latency), candidate("a", 5, 5000)
		m := &one.Report.Metrics
		m.Price, m.SecurityLevel, m.Reputation = u32(5), u8(3), u8(4)
		r.Constraints.Hard = cats.Bounds{
			MaxDelayUS: u32(5000), MaxJitterUS: u32(100), MinBandwidthKbps: u32(1000), MaxLossPPM: u32(10), MaxRealDelayUS: u32(10_000),
			MinSlots: u32(10), MaxComputingTimeMS: u32(5), MaxPrice: u32(5), MinSecurity: u8(3), MinReputation: u8(4),
		}
		if d := Select(r, []Candidate{one}); d.Chosen != 0 {
			t.Errorf("%+v", d)
		}
	})
}

func TestEmptied(t *testing.T) {
	t.Run("the first stage that left nothing is named", func(t *testing.T) {
		r := request(catalogue.Latency)
		all := vector()
		all[0].Connected, all[1].Effective, all[2].Report.Health = false, 0, cats.Unhealthy
		if d := Select(r, all); d.Chosen != -1 || d.Emptied != StageSlots {
			t.Errorf("%+v, want it emptied by slots", d)
		}
	})
	if d := Select(request(catalogue.Latency), nil); d.Chosen != -1 || d.Emptied != StageDeployment {
		t.Errorf("without deployments: %+v", d)
	}
}

func TestAmongEquals(t *testing.T) {
	equal := func() []Candidate { return []Candidate{candidate("a", 10, 10_000), candidate("b", 10, 10_900)} }
	t.Run("a difference within 5 % is none, so HEALTHY goes first", func(t *testing.T) {
		all := equal()
		all[0].Report.Health = cats.Degraded
		if d := Select(request(catalogue.Latency), all); d.Chosen != 1 {
			t.Errorf("chosen %d, want the HEALTHY one", d.Chosen)
		}
	})
	t.Run("a DEGRADED one that is clearly better stays first", func(t *testing.T) {
		all := equal()
		all[0].Report.Health = cats.Degraded
		all[1].Path.Metrics.DelayUS = 11_000 // 21 ms is the end of the band of 20 ms
		if d := Select(request(catalogue.Latency), all); d.Chosen != 0 {
			t.Errorf("chosen %d", d.Chosen)
		}
	})
	t.Run("the band of delays is at least 1 ms", func(t *testing.T) {
		all := []Candidate{candidate("a", 0, 200), candidate("b", 0, 1199)}
		all[0].Report.Health = cats.Degraded
		if d := Select(request(catalogue.Latency), all); d.Chosen != 1 {
			t.Errorf("chosen %d", d.Chosen)
		}
	})
	t.Run("a preference reorders equals and removes nothing", func(t *testing.T) {
		for want, price := range []uint32{100, 900} {
			all := equal()
			all[0].Report.Metrics.Price, all[1].Report.Metrics.Price = cats.Some[uint32](100), cats.Some[uint32](900)
			r := request(catalogue.Latency)
			r.Constraints.Preferences.TargetPrice = cats.Some(price)
			if d := Select(r, all); d.Chosen != want {
				t.Errorf("wanted price %d: chosen %d, want %d", price, d.Chosen, want)
			}
		}
		all := equal()
		r := request(catalogue.Latency)
		r.Constraints.Preferences.MaxDelayUS = cats.Some[uint32](1)
		if d := Select(r, all); d.Chosen < 0 {
			t.Error("a preference that nobody meets removed candidates")
		}
		r.Constraints.Preferences.MaxDelayUS = cats.Some[uint32](10_500)
		if d := Select(r, all); d.Chosen != 0 {
			t.Errorf("chosen %d, want the one that meets the preferred delay", d.Chosen)
		}
	})
	t.Run("strict takes more slots, then the lower price", func(t *testing.T) {
		r := request(catalogue.Latency)
		r.Service.TieBreak = catalogue.Strict
		all := equal()
		all[1].Effective = 11
		if d := Select(r, all); d.Chosen != 1 {
			t.Errorf("chosen %d, want the one with more slots", d.Chosen)
		}
		all[1].Effective = 10
		all[0].Report.Metrics.Price, all[1].Report.Metrics.Price = cats.Some[uint32](2), cats.Some[uint32](1)
		if d := Select(r, all); d.Chosen != 1 {
			t.Errorf("chosen %d, want the cheaper one", d.Chosen)
		}
		all[1].Report.Metrics.Price = cats.Optional[uint32]{}
		if d := Select(r, all); d.Chosen != 0 {
			t.Errorf("chosen %d, want the one with a price", d.Chosen)
		}
	})
}

// Over many flows, equals share in proportion to their slots; one flow always goes to the same.
func TestSpread(t *testing.T) {
	all := []Candidate{candidate("a", 10, 10_000), candidate("b", 10, 10_100), candidate("c", 10, 10_200)}
	all[0].Effective, all[1].Effective, all[2].Effective = 10, 20, 70
	const flows = 20_000
	counts := make([]int, len(all))
	for i := range flows {
		r := request(catalogue.Latency)
		r.Key.Tuple.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i >> 12)}), uint16(1024+i&0xfff))
		d := Select(r, all)
		if again := Select(r, all); again.Chosen != d.Chosen {
			t.Fatalf("flow %d: chosen %d, then %d", i, d.Chosen, again.Chosen)
		}
		counts[d.Chosen]++
	}
	for i, slots := range []int{10, 20, 70} {
		if share := 100 * float64(counts[i]) / flows; share < float64(slots)-2 || share > float64(slots)+2 {
			t.Errorf("candidate %d with %d %% of the slots has %.1f %% of the flows", i, slots, share)
		}
	}
}

// For any facts: the chosen candidate passes every filter, is in the band, is ranked first, and the order in which the
// candidates come does not matter.
func TestDecisionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := request(rapid.SampledFrom([]catalogue.Policy{catalogue.Latency, catalogue.Service, catalogue.Network}).Draw(t, "policy"))
		r.Service.BandPercent = rapid.Uint8Range(0, 100).Draw(t, "band")
		r.Service.TieBreak = rapid.SampledFrom([]catalogue.TieBreak{catalogue.Spread, catalogue.Strict}).Draw(t, "tie")
		r.Constraints.Hard.MinSlots = cats.Some(rapid.Uint32Range(0, 4).Draw(t, "slots"))
		all := make([]Candidate, rapid.IntRange(0, 12).Draw(t, "candidates"))
		for i := range all {
			all[i] = candidate(cats.CSCIID(fmt.Sprintf("c%d", i/2)), rapid.Uint32Range(0, 20).Draw(t, "computing"), rapid.Uint32Range(0, 20_000).Draw(t, "network"))
			all[i].Egress.Forwarder = fmt.Sprintf("EF-%d", i)
			all[i].Report.Health = rapid.SampledFrom([]cats.Health{cats.Healthy, cats.Healthy, cats.Degraded, cats.Unhealthy}).Draw(t, "health")
			all[i].Effective = rapid.Uint32Range(0, 5).Draw(t, "effective")
			all[i].Validity = rapid.SampledFrom([]cats.Validity{cats.Valid, cats.Valid, cats.Stale}).Draw(t, "validity")
		}
		d := Select(r, all)
		ranks := Ranking(r, all, &d)
		if d.Chosen < 0 {
			if len(ranks) != 0 || d.Emptied == StageNone {
				t.Fatalf("nothing chosen, %d ranked, emptied by %s", len(ranks), d.Emptied)
			}
			return
		}
		c := &all[d.Chosen]
		if c.Effective < max(1, r.Constraints.Hard.MinSlots.Value) || c.Validity != cats.Valid || c.Report.Health == cats.Unhealthy {
			t.Fatalf("an ineligible candidate was chosen: %+v", c)
		}
		if ranks[0].Index != d.Chosen || !ranks[0].Equal {
			t.Fatalf("chosen %d, ranked first %+v", d.Chosen, ranks[0])
		}
		shuffled := rapid.Permutation(all).Draw(t, "order")
		again := Select(r, shuffled)
		if got := shuffled[again.Chosen].Egress.Forwarder; got != c.Egress.Forwarder {
			t.Fatalf("chosen by %s, in another order by %s", c.Egress.Forwarder, got)
		}
		if !slices.IsSortedFunc(ranks, func(a, b Rank) int { return a.Place - b.Place }) {
			t.Fatal("ranks are out of order")
		}
	})
}

func BenchmarkSelect100(b *testing.B) {
	r := request(catalogue.Latency)
	r.Constraints.Hard = cats.Bounds{MaxDelayUS: cats.Some[uint32](50_000), MaxComputingTimeMS: cats.Some[uint32](100)}
	all := make([]Candidate, 100)
	for i := range all {
		all[i] = candidate(cats.CSCIID(fmt.Sprintf("c%d", i)), uint32(i%17), uint32(i%13)*1000)
	}
	b.ReportAllocs()
	for b.Loop() {
		Select(r, all)
	}
}
