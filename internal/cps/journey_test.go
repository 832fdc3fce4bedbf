package cps

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/flow"
)

// The example of the draft's section 14, from the request to the last removal.
func TestJourneyOfANewFlow(t *testing.T) {
	s := ready(t)
	q := s.newRequest(51000)
	q.CSID, q.Constraints.Hard.MaxDelayUS = "S1", cats.Some[uint32](20_000)
	var decided []record // the flow as it was when the PCE was asked
	s.pce.change = func(p *cats.PathReply) { decided = append(decided, *s.core.flows[p.Transaction]) }
	s.request(q)
	s.pce.change = nil
	b := s.installed("EF-2", cats.EgressHalf)

	t.Run("CP-1-1 no path is requested before the selection is recorded, and the request carries nothing of it but the destination", func(t *testing.T) {
		if len(s.pce.asked) != 2 || len(decided) != 2 {
			t.Fatalf("%d path requests, want forward and return", len(s.pce.asked))
		}
		for i, r := range decided {
			if r.state != cats.DestinationSelected || r.binding.CSCIID != csciB || r.binding.Attachment != sidB || r.binding.Decided != s.now ||
				r.binding.CSTGeneration != s.pce.asked[i].CSTGeneration {
				t.Errorf("path request %d was made in %s, the decision was %+v", i, r.state, r.binding)
			}
		}
		if hard := s.pce.asked[0].Bounds; hard.MinSlots.Present || hard.MaxComputingTimeMS.Present || hard.MaxPrice.Present || hard.MaxRealDelayUS.Present {
			t.Errorf("computing bounds went to the PCE: %+v", hard)
		}
	})
	t.Run("CP-4.2-1 headend, endpoint and routing context are named", func(t *testing.T) {
		p := s.pce.asked[0]
		if p.Headend != "IF-1" || p.Endpoint != sidB || p.Egress != "EF-2" || p.Domain != "example.margay" || p.Attachment != string(csciB) {
			t.Errorf("%+v", p)
		}
	})
	t.Run("CP-7.1-1 transaction and the network bounds that still apply are in the path request", func(t *testing.T) {
		p := s.pce.asked[0]
		if p.Transaction != q.Transaction || p.Bounds.MaxDelayUS != cats.Some[uint32](20_000) {
			t.Errorf("%+v", p)
		}
	})
	t.Run("CP-8.2-3 the decision is recorded", func(t *testing.T) {
		if b.CSCIID != csciB || b.Locator.Address != netip.MustParseAddrPort("198.51.100.21:443") || b.Egress != "EF-2" ||
			b.Attachment != sidB || b.PolicyVersion == "" || b.Decided != s.now || b.Slots != 1 {
			t.Errorf("%+v", b)
		}
	})
	t.Run("CP-13.1-1 the CST and NST generations are recorded", func(t *testing.T) {
		if b.CSTGeneration != 2 || b.NSTGeneration != 1 || b.Path.Generation != 7 {
			t.Errorf("CST %d, NST %d, path %d", b.CSTGeneration, b.NSTGeneration, b.Path.Generation)
		}
	})
	t.Run("CP-7.2-1 both directions are in one binding", func(t *testing.T) {
		client, instance := netip.MustParseAddrPort("192.0.2.10:51000"), netip.MustParseAddrPort("198.51.100.21:443")
		if b.Match != q.Key || !slices.Equal(b.Path.Segments, []netip.Addr{transit, sidB}) || b.Idle != time.Hour || b.Version != 1 {
			t.Errorf("forward: %+v", b)
		}
		r := b.Reverse
		if r.Service != (cats.Tuple{Protocol: cats.TCP, Source: instance, Target: client}) ||
			r.Client != (cats.Tuple{Protocol: cats.TCP, Source: target, Target: client}) || r.Restore != target ||
			!slices.Equal(r.Path.Segments, []netip.Addr{transit, returnSID}) || b.Ingress != "IF-1" {
			t.Errorf("reverse: %+v", r)
		}
	})
	t.Run("CP-8.4-1 the ingress is told nothing before the egress has its half", func(t *testing.T) {
		if sent := s.sent("IF-1"); !sent.IsEmpty() {
			t.Errorf("sent to the ingress: %+v", sent)
		}
		s.want(q.Transaction, cats.BindingReady)
		s.wantDebited(csciB, 1)
		s.status("EF-2", b, cats.BindingInstalled, cats.ReasonNone)
		if got := s.installed("IF-1", cats.IngressHalf); got.Transaction != q.Transaction || got.Locator != b.Locator {
			t.Errorf("%+v", got)
		}
	})
	t.Run("an ACTIVE flow asks neither C-PS nor PCE again", func(t *testing.T) {
		s.status("IF-1", b, cats.BindingInstalled, cats.ReasonNone)
		s.want(q.Transaction, cats.Active)
		before := s.core.Counters()
		s.wait(time.Minute)
		if after := s.core.Counters(); after.Selections != before.Selections || after.PathRequests != before.PathRequests || len(s.pce.asked) != 2 {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
	t.Run("expiry drains both halves, then removes ingress, egress and record, and frees the slots once", func(t *testing.T) {
		s.wantDebited(csciB, 1)
		s.status("IF-1", b, cats.BindingEnding, cats.ReasonIdle)
		s.want(q.Transaction, cats.Draining)
		s.wantDebited(csciB, 0)
		for _, name := range []string{"IF-1", "EF-2"} {
			if d := s.sent(name).Drains; len(d) != 1 || d[0].Reason != cats.ReasonIdle || d[0].Transaction != q.Transaction {
				t.Fatalf("drains of %s: %+v", name, d)
			}
		}
		if all := s.wait(5*time.Second - 1); len(all) > 0 {
			t.Fatalf("sent while draining:\n%s", describe(all))
		}
		s.wait(1)
		if r := s.sent("IF-1").Removes; len(r) != 1 || r[0].Half != cats.IngressHalf || len(s.sent("EF-2").Removes) != 0 {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.status("IF-1", b, cats.BindingRemoved, cats.ReasonIdle)
		if r := s.sent("EF-2").Removes; len(r) != 1 || r[0].Half != cats.EgressHalf {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.status("EF-2", b, cats.BindingRemoved, cats.ReasonIdle)
		s.wantEmpty()
	})
	t.Run("a late report of the ended flow changes nothing", func(t *testing.T) {
		s.status("IF-1", b, cats.BindingRemoved, cats.ReasonIdle)
		s.wantEmpty()
	})
}

func TestRequestsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*script, *cats.ServiceRequest)
		reason cats.Reason
		stage  string
	}{
		{"CP-8.2-2 an unknown CS-ID", func(_ *script, q *cats.ServiceRequest) { q.CSID = "S9" }, cats.ReasonUnknownService, ""},
		{"CP-8.2-2 an address of no service", func(_ *script, q *cats.ServiceRequest) {
			q.Key.Tuple.Target = netip.MustParseAddrPort("192.0.2.101:443")
		}, cats.ReasonUnknownService, ""},
		{"CP-8.2-1 an ingress that is another", func(_ *script, q *cats.ServiceRequest) { q.Ingress = "EF-1" }, cats.ReasonUnauthorized, ""},
		{"CP-1.2-1 an attachment that is not provisioned", func(_ *script, q *cats.ServiceRequest) { q.Key.Attachment = "client-9" }, cats.ReasonUnauthorized, ""},
		{"CP-8.2-1 a tenant that is not the attachment's", func(_ *script, q *cats.ServiceRequest) { q.Key.Tenant = "other" }, cats.ReasonUnauthorized, ""},
		{"CP-11-1 a malformed tuple", func(_ *script, q *cats.ServiceRequest) { q.Key.Tuple.Protocol = 1 }, cats.ReasonMalformed, ""},
		{"CP-8.2-1 metadata that was overtaken", func(s *script, q *cats.ServiceRequest) {
			first := s.newRequest(50999)
			first.RequestGeneration = cats.Some[uint16](8)
			s.request(first)
			q.RequestGeneration = cats.Some[uint16](7)
		}, cats.ReasonStaleState, ""},
		{"no time left", func(_ *script, q *cats.ServiceRequest) { q.Remaining = 0 }, cats.ReasonTimeout, ""},
		{"CP-8.2-4 CP-5-2 no slot anywhere", func(s *script, _ *cats.ServiceRequest) { s.report("csma-1", 0, 5); s.report("csma-2", 0, 5) }, cats.ReasonNoCandidate, "slots"},
		{"CP-8.2-4 CP-11-1 a stale candidate only", func(s *script, _ *cats.ServiceRequest) { s.wait(150 * time.Second); s.paths() }, cats.ReasonNoCandidate, "freshness"},
		{"CP-8.2-4 CP-13.1-1 fresh candidates without a fresh path", func(s *script, _ *cats.ServiceRequest) { s.wait(31 * time.Second) }, cats.ReasonNoCandidate, "path"},
		{"CP-8.2-4 a network bound that no path keeps", func(_ *script, q *cats.ServiceRequest) { q.Constraints.Hard.MaxDelayUS = cats.Some[uint32](999) }, cats.ReasonNoCandidate, "network"},
		{"CP-8.2-4 egresses without a session", func(s *script, _ *cats.ServiceRequest) { s.disconnect("EF-1"); s.disconnect("EF-2") }, cats.ReasonNoCandidate, "egress-unavailable"},
		{"the PCE finds no path", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) { p.Status, p.Detail = cats.PathNone, "R1 is down" }
		}, cats.ReasonNoPath, ""},
		{"CP-8.3-1 a kind of path that the headend cannot activate", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) { p.Kind = cats.PathSRMPLS }
		}, cats.ReasonCapabilityMismatch, ""},
		{"CP-8.3-1 paths that the PCE knows the headend cannot activate", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) {
				p.Status, p.Reason, p.Detail = cats.PathNone, cats.ReasonCapabilityMismatch, "12 segments"
			}
		}, cats.ReasonCapabilityMismatch, ""},
		{"CP-8.3-1 more segments than the headend pushes", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) {
				p.Segments = append(slices.Repeat([]netip.Addr{transit}, 10), p.Endpoint)
			}
		}, cats.ReasonCapabilityMismatch, ""},
		{"CP-8.3-2 a reply of another transaction", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) { p.Transaction[0] ^= 1 }
		}, cats.ReasonStaleState, ""},
		{"CP-8.3-2 a reply to another endpoint", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) { p.Endpoint, p.Segments = sidA, []netip.Addr{sidA} }
		}, cats.ReasonStaleState, ""},
		{"CP-8.3-2 a reply to another egress", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) { p.Egress = "EF-1" }
		}, cats.ReasonStaleState, ""},
		{"CP-8.3-2 a reply on another CST generation", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) { p.CSTGeneration++ }
		}, cats.ReasonStaleState, ""},
		{"CP-8.3-2 a reply on another NST generation", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) { p.NSTGeneration++ }
		}, cats.ReasonStaleState, ""},
		{"CP-8.3-2 a segment list that ends elsewhere", func(s *script, _ *cats.ServiceRequest) {
			s.pce.change = func(p *cats.PathReply) { p.Segments = []netip.Addr{transit} }
		}, cats.ReasonStaleState, ""},
		{"a path that breaks a bound after all", func(s *script, q *cats.ServiceRequest) {
			q.Constraints.Hard.MaxDelayUS = cats.Some[uint32](20_000)
			s.pce.change = func(p *cats.PathReply) { p.Metrics.DelayUS = 20_001 }
		}, cats.ReasonNoPath, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := ready(t)
			q := s.newRequest(51000)
			c.change(s, &q)
			held, asked := s.core.ledger.Flows(), len(s.pce.asked)
			s.request(q)
			r := s.refusal(q)
			if r.Reason == cats.ReasonNoCandidate && (len(s.pce.asked) != asked || s.core.Counters().PathRequests != uint64(asked)) {
				t.Errorf("the PCE was asked without a destination: %+v", s.pce.asked[asked:])
			}
			for _, p := range s.pce.asked {
				if !p.Endpoint.IsValid() || p.Egress == "" {
					t.Errorf("a path request to nowhere: %+v", p)
				}
			}
			if r.Reason != c.reason || r.Stage != c.stage || r.Detail == "" || r.Epoch != epoch {
				t.Errorf("refused with %s (stage %q, %q), want %s (stage %q)", r.Reason, r.Stage, r.Detail, c.reason, c.stage)
			}
			if len(s.sent("EF-1").Installs)+len(s.sent("EF-2").Installs) > 0 || s.core.ledger.Flows() != held {
				t.Error("a refused request left something")
			}
		})
	}
	t.Run("CP-6-6 a CS-ID and an address of two services are never combined", func(t *testing.T) {
		s := ready(t)
		r := records()
		other := r.Services[0]
		other.CSID, other.Number, other.Addresses = "S2", 2, slices.Clone(other.Addresses)
		other.Addresses[0].Port = 444
		r.Services = append(r.Services, other)
		s.step(Events{Domain: domain(t, r)})
		q := s.newRequest(51000)
		q.CSID = "S2"
		s.request(q)
		if got := s.refusal(q); got.Reason != cats.ReasonIdentityConflict {
			t.Errorf("%+v", got)
		}
	})
}

func TestMetadataNeverAuthorizes(t *testing.T) {
	foreign := func(t *testing.T, change func(*catalogue.ServiceRecord)) *script {
		s := ready(t)
		r := records()
		other := r.Services[0]
		other.CSID, other.Number, other.Addresses, other.Tenants = "S2", 2, nil, []string{"other"}
		change(&other)
		r.Services = append(r.Services, other)
		instance := r.Deployments[1]
		instance.CSID, instance.CSCIID, instance.Locator.Address = "S2", "far", netip.MustParseAddrPort("198.51.100.23:443")
		instance.Egress = []catalogue.EgressAttachment{{Forwarder: "EF-2", SID: netip.MustParseAddr("2001:db8:0:e2::23")}}
		r.Deployments = append(r.Deployments, instance)
		d := domain(t, r)
		d.Sources[1].Services = []cats.CSID{"S1", "S2"}
		s.step(Events{Domain: d})
		s.acknowledge(s.sent("EF-2").Provision, "EF-2")
		record := s.record("csma-2", 10, 5)
		record.CSID, record.CSCIID = "S2", "far"
		s.send("csma-2", s.update("csma-2", record))
		return s
	}
	ask := func(s *script) cats.ServiceRequest {
		q := s.newRequest(51000)
		q.CSID, q.RequestGeneration = "S2", cats.Some[uint16](1)
		q.Key.Tuple.Target = netip.MustParseAddrPort("203.0.113.80:443") // of no service: only the metadata names one
		s.request(q)
		return q
	}
	t.Run("CP-6-7 a service of another tenant is refused, also where the metadata names it", func(t *testing.T) {
		s := foreign(t, func(*catalogue.ServiceRecord) {})
		q := ask(s)
		if got := s.refusal(q); got.Reason != cats.ReasonNoCandidate || got.Stage != "authorization" || len(s.pce.asked) != 0 {
			t.Errorf("%+v, %d path requests", got, len(s.pce.asked))
		}
	})
	t.Run("CP-6-7 a service that the catalogue does not publish is refused, also where the metadata names it", func(t *testing.T) {
		s := foreign(t, func(r *catalogue.ServiceRecord) { r.Tenants, r.State = []string{"default"}, catalogue.Draft })
		q := ask(s)
		if got := s.refusal(q); got.Reason != cats.ReasonUnknownService {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the same service, published for the tenant, is served", func(t *testing.T) {
		s := foreign(t, func(r *catalogue.ServiceRecord) { r.Tenants = []string{"default"} })
		ask(s)
		if b := s.installed("EF-2", cats.EgressHalf); b.CSCIID != "far" {
			t.Errorf("%+v", b)
		}
	})
}

func TestBoundsOfThePathRequest(t *testing.T) {
	u32 := cats.Some[uint32]
	for _, c := range []struct {
		name        string
		delay, real cats.Optional[uint32]
		want        cats.Optional[uint32]
	}{
		{"no bound", cats.Optional[uint32]{}, cats.Optional[uint32]{}, cats.Optional[uint32]{}},
		{"delay alone", u32(8000), cats.Optional[uint32]{}, u32(8000)},
		{"real delay leaves what computing does not take", cats.Optional[uint32]{}, u32(12_000), u32(7000)},
		{"the least of both: delay", u32(6000), u32(12_000), u32(6000)},
		{"the least of both: real delay", u32(9000), u32(12_000), u32(7000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := ready(t)
			q := s.newRequest(51000)
			q.Constraints.Hard.MaxDelayUS, q.Constraints.Hard.MaxRealDelayUS = c.delay, c.real
			s.request(q)
			if got := s.pce.asked[0].Bounds.MaxDelayUS; got != c.want {
				t.Errorf("max delay %+v, want %+v", got, c.want)
			}
			if got := s.pce.asked[1].Bounds; got != (cats.Bounds{}) {
				t.Errorf("the return path is bounded by %+v", got)
			}
		})
	}
}

func TestReturnPath(t *testing.T) {
	t.Run("without a return path packets are encapsulated to the owner", func(t *testing.T) {
		s := ready(t)
		delete(s.pce.delays, [2]string{"EF-2", "IF-1"})
		s.request(s.newRequest(51000))
		if got := s.installed("EF-2", cats.EgressHalf).Reverse.Path; !slices.Equal(got.Segments, []netip.Addr{returnSID}) || got.Kind != cats.PathSRv6 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a return path that the egress cannot activate is none", func(t *testing.T) {
		s := ready(t)
		s.pce.change = func(p *cats.PathReply) {
			if p.Endpoint == returnSID {
				p.Status, p.Reason, p.Detail = cats.PathNone, cats.ReasonCapabilityMismatch, "12 segments"
			}
		}
		s.request(s.newRequest(51000))
		if got := s.installed("EF-2", cats.EgressHalf).Reverse.Path; !slices.Equal(got.Segments, []netip.Addr{returnSID}) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a service that wants a computed return path fails without one", func(t *testing.T) {
		s := ready(t)
		r := records()
		r.Services[0].StrictReturn = true
		s.step(Events{Domain: domain(t, r)})
		delete(s.pce.delays, [2]string{"EF-2", "IF-1"})
		q := s.newRequest(51000)
		s.request(q)
		if got := s.refusal(q); got.Reason != cats.ReasonNoPath {
			t.Errorf("%+v", got)
		}
		s.wantEmpty()
	})
}

func TestOneKeyOneSelection(t *testing.T) {
	t.Run("CP-8.1-3 requests of one key join one selection", func(t *testing.T) {
		s := ready(t)
		first, second := s.newRequest(51000), s.newRequest(51000)
		s.batch("IF-1", cats.ForwarderBatch{Requests: []cats.ServiceRequest{first, second, first, second}})
		b := s.installed("EF-2", cats.EgressHalf)
		if n := s.core.Counters(); n.Selections != 1 || n.Joined != 1 || n.Duplicates != 2 {
			t.Errorf("%+v", n)
		}
		s.status("EF-2", b, cats.BindingInstalled, cats.ReasonNone)
		s.status("IF-1", b, cats.BindingInstalled, cats.ReasonNone)
		if got := s.refusal(second); got.Reason != cats.ReasonStaleState {
			t.Errorf("the joined request: %+v", got)
		}
		s.wantDebited(csciB, 1)
	})
	t.Run("a joined request fails with its transaction", func(t *testing.T) {
		s := ready(t)
		first, second := s.newRequest(51000), s.newRequest(51000)
		s.batch("IF-1", cats.ForwarderBatch{Requests: []cats.ServiceRequest{first, second}})
		s.status("EF-2", s.installed("EF-2", cats.EgressHalf), cats.BindingRefused, cats.ReasonTableFull)
		if a, b := s.refusal(first), s.refusal(second); a.Reason != cats.ReasonCommitFailed || b.Reason != cats.ReasonCommitFailed {
			t.Errorf("%+v, %+v", a, b)
		}
		s.wantEmpty()
	})
	t.Run("a transaction that is repeated after its end is not decided again", func(t *testing.T) {
		s := ready(t)
		q := s.newRequest(51000)
		q.CSID = "S9"
		s.request(q)
		s.refusal(q)
		q.CSID = ""
		s.request(q)
		if got := s.refusal(q); got.Reason != cats.ReasonUnknownService {
			t.Errorf("%+v", got)
		}
		if n := s.core.Counters().Selections; n != 0 {
			t.Errorf("%d selections", n)
		}
	})
	t.Run("CP-8.5-3 an old request of the key does not touch an ACTIVE flow", func(t *testing.T) {
		s := ready(t)
		old := s.newRequest(51000)
		b := s.activate(51000)
		s.request(old)
		if got := s.refusal(old); got.Reason != cats.ReasonStaleState {
			t.Errorf("%+v", got)
		}
		s.want(b.Transaction, cats.Active)
	})
	t.Run("a new connection of a draining key makes the old halves go at once", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		s.status("IF-1", b, cats.BindingEnding, cats.ReasonFinished)
		q := s.newRequest(51000)
		s.request(q)
		e := s.sent("EF-2")
		if len(e.Removes) != 1 || e.Removes[0].Transaction != b.Transaction || len(e.Installs) != 1 || e.Installs[0].Binding.Transaction != q.Transaction {
			t.Errorf("egress: %+v", e)
		}
		if i := s.sent("IF-1"); len(i.Removes) != 1 || i.Removes[0].Reason != cats.ReasonSuperseded {
			t.Errorf("ingress: %+v", i)
		}
		s.wantDebited(csciB, 1)
		s.status("IF-1", b, cats.BindingRemoved, cats.ReasonSuperseded)
		s.status("EF-2", b, cats.BindingRemoved, cats.ReasonSuperseded)
		if len(s.core.flows) != 1 {
			t.Errorf("%d flows left, want the new one", len(s.core.flows))
		}
	})
	t.Run("one service-side tuple has one owner", func(t *testing.T) {
		s := ready(t)
		r := records()
		other := r.Services[0]
		other.CSID, other.Number, other.Addresses = "S2", 2, slices.Clone(other.Addresses)
		other.Addresses[0].Port = 444
		r.Services = append(r.Services, other)
		shared := r.Deployments[1]
		shared.CSID = "S2"
		r.Deployments = append(r.Deployments, shared)
		d := domain(t, r)
		d.Sources[1].Services = []cats.CSID{"S1", "S2"}
		s.step(Events{Domain: d})
		s.acknowledge(s.sent("EF-2").Provision, "EF-2")
		both := []cats.Record{s.record("csma-2", 10, 5), s.record("csma-2", 10, 5)}
		both[1].CSID = "S2"
		s.send("csma-2", s.update("csma-2", both...))
		s.activate(51000)
		q := s.newRequest(51000)
		q.Key.Tuple.Target = netip.MustParseAddrPort("192.0.2.100:444")
		s.request(q)
		if got := s.refusal(q); got.Reason != cats.ReasonCommitFailed {
			t.Errorf("%+v", got)
		}
		if s.core.forwarder("EF-2").pausedUntil != 0 {
			t.Error("a client's own conflict paused the egress")
		}
	})
}

func TestSelectionFollowsReports(t *testing.T) {
	s := ready(t)
	established := s.activate(51000)
	if established.CSCIID != csciB {
		t.Fatalf("the first flow went to %s", established.CSCIID)
	}
	t.Run("CP-8.5-3 a report of no slots moves new flows only", func(t *testing.T) {
		s.report("csma-2", 0, 5)
		if b := s.activate(51001); b.CSCIID != csciA {
			t.Errorf("a new flow went to %s", b.CSCIID)
		}
		s.want(established.Transaction, cats.Active)
	})
	t.Run("at each admission no more is admitted than was reported", func(t *testing.T) {
		s.report("csma-1", 3, 5) // one is held
		s.activate(51002)
		s.activate(51003)
		q := s.newRequest(51004)
		s.request(q)
		if got := s.refusal(q); got.Reason != cats.ReasonNoCandidate || got.Stage != "slots" {
			t.Errorf("%+v", got)
		}
		s.wantDebited(csciA, 3)
	})
}

func TestTransitionsThatTheTableDoesNotHave(t *testing.T) {
	t.Run("CP-10-1 the core takes none, and counts the mistake", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		r := s.core.flows[b.Transaction]
		s.core.out = &s.out
		for _, event := range []flow.Event{flow.NewPacket, flow.Selected, flow.Committed, flow.Cleaned, flow.NewConnection} {
			if s.core.move(r, event) || r.state != cats.Active {
				t.Errorf("%s took the flow to %s", event, r.state)
			}
		}
		if n := s.core.Counters().RefusedTransitions; n != 5 {
			t.Errorf("%d counted", n)
		}
	})
}
