package cps

import (
	"testing"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/selection"
)

func (s *script) explain(q cats.ServiceRequest) Explanation {
	s.t.Helper()
	s.step(Events{Explains: []ExplainRequest{{ID: 4, Request: q}}})
	if len(s.out.Explanations) != 1 || s.out.Explanations[0].ID != 4 {
		s.t.Fatalf("%+v", s.out.Explanations)
	}
	if len(s.out.Steering) != 0 {
		s.t.Errorf("explaining sent %+v", s.out.Steering)
	}
	return s.out.Explanations[0]
}

func TestExplain(t *testing.T) {
	t.Run("it tells what the decision then is, and changes nothing", func(t *testing.T) {
		s := ready(t)
		q := s.newRequest(51000)
		q.CSID, q.Constraints.Hard.MaxDelayUS = "S1", cats.Some[uint32](20_000)
		before := s.core.Counters()
		x := s.explain(q)
		if s.core.Counters() != before {
			t.Error("it was counted")
		}
		s.wantEmpty()
		if x.Refusal != cats.ReasonNone || x.CSID != "S1" || x.Resolved != "both" || x.Chosen == nil || x.Chosen.CSCIID != csciB || x.Slots != 1 {
			t.Fatalf("%+v", x)
		}
		first, second := x.Candidates[0], x.Candidates[1]
		if first.Rank != 1 || first.Value != 6000 || !first.Equal || second.Rank != 2 || second.Value != 14_000 || second.Equal || x.Band != 1000 {
			t.Errorf("%+v\n%+v", first, second)
		}
		if first.Report == nil || first.Report.Generation != 2 || first.EffectiveSlots != 10 || first.Path == nil || first.Path.Metrics.DelayUS != 1000 {
			t.Errorf("%+v", first)
		}
		s.request(q)
		b := s.installed("EF-2", cats.EgressHalf)
		if b.CSCIID != x.Chosen.CSCIID || b.PolicyVersion != x.Version || b.CSTGeneration != x.CSTGeneration || b.NSTGeneration != x.NSTGeneration {
			t.Errorf("decided %+v, explained %+v", b, x)
		}
		if x.Before != q.Key.Tuple || x.After.Target != b.Locator.Address || x.After.Source != q.Key.Tuple.Source ||
			x.Answer != b.Reverse.Service || x.Delivered != b.Reverse.Client {
			t.Errorf("packets: %s, %s, %s, %s", x.Before, x.After, x.Answer, x.Delivered)
		}
		if len(x.Path.Segments) != 2 || x.Path.Nodes[1] != "R1" || len(x.ReturnPath.Segments) != 2 || x.PathRequest.Bounds.MaxDelayUS.Value != 20_000 {
			t.Errorf("%+v, %+v", x.Path, x.ReturnPath)
		}
	})
	t.Run("it tells what removed every candidate", func(t *testing.T) {
		s := ready(t)
		s.report("csma-2", 0, 5)
		s.disconnect("EF-1")
		x := s.explain(s.newRequest(51000))
		if x.Refusal != cats.ReasonNoCandidate || x.Stage != "slots" || x.Chosen != nil || len(x.Candidates) != 2 {
			t.Fatalf("%+v", x)
		}
		if a, b := x.Candidates[0], x.Candidates[1]; a.Stage != selection.StageEgress || a.Why == "" || b.Stage != selection.StageSlots || b.Why == "" {
			t.Errorf("%+v\n%+v", a, b)
		}
	})
	t.Run("it tells why there is no path", func(t *testing.T) {
		s := ready(t)
		s.pce.change = func(p *cats.PathReply) { p.Status, p.Detail = cats.PathNone, "R1 is down" }
		x := s.explain(s.newRequest(51000))
		if x.Refusal != cats.ReasonNoPath || x.Chosen == nil || x.Detail == "" {
			t.Errorf("%+v", x)
		}
	})
	for name, c := range map[string]struct {
		change func(*cats.ServiceRequest)
		reason cats.Reason
	}{
		"an unknown service": {func(q *cats.ServiceRequest) { q.CSID = "S9" }, cats.ReasonUnknownService},
		"an unknown ingress": {func(q *cats.ServiceRequest) { q.Ingress = "IF-9" }, cats.ReasonUnauthorized},
		"another tenant":     {func(q *cats.ServiceRequest) { q.Key.Tenant = "other" }, cats.ReasonUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			s := ready(t)
			q := s.newRequest(51000)
			c.change(&q)
			if x := s.explain(q); x.Refusal != c.reason || x.Detail == "" || len(x.Candidates) != 0 {
				t.Errorf("%+v", x)
			}
		})
	}
}

func TestViews(t *testing.T) {
	s := ready(t)
	b := s.activate(51000)
	s.report("csma-1", 0, 5)
	services, instances, flows, forwarders := s.core.Services(s.now), s.core.Instances(s.now), s.core.Flows(s.now), s.core.Forwarders()
	if len(services) != 1 || services[0].Deployments != 2 || services[0].Eligible != 1 || services[0].EffectiveSlots != 9 || services[0].Bindings != 1 {
		t.Errorf("%+v", services)
	}
	if len(instances) != 2 || instances[0].Stage != selection.StageSlots || instances[1].Stage != selection.StageNone ||
		instances[1].Debited != 1 || instances[1].Bindings != 1 || len(instances[1].Delivering) != 1 {
		t.Errorf("%+v", instances)
	}
	if len(flows) != 1 || flows[0].State != cats.Active || flows[0].Binding.Transaction != b.Transaction || !flows[0].PathUp {
		t.Errorf("%+v", flows)
	}
	if len(forwarders) != 3 || forwarders[2].Name != "IF-1" || forwarders[2].Bindings != 1 || !forwarders[0].Connected ||
		forwarders[1].Deliveries[0] != csciB || forwarders[1].Acknowledged != 1 {
		t.Errorf("%+v", forwarders)
	}
	second := s.activate(51001)
	first, total := s.core.FlowPage(s.now, FlowQuery{CSID: "S1", Limit: 1})
	rest, _ := s.core.FlowPage(s.now, FlowQuery{After: first[0].Binding.Transaction})
	none, _ := s.core.FlowPage(s.now, FlowQuery{CSCIID: csciA})
	if total != 2 || first[0].Binding.Transaction != b.Transaction || len(rest) != 1 || rest[0].Binding.Transaction != second.Transaction || len(none) != 0 {
		t.Errorf("%d in all; %+v; %+v; %+v", total, first, rest, none)
	}
	if g := s.core.Gauges(); g.Flows[cats.Active] != 2 || g.Debited != 2 || g.Pending != 0 || g.Connected != 3 || !g.Open {
		t.Errorf("%+v", g)
	}
}
