package cps

import (
	"net/netip"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/admission"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// requested gives a flow whose egress half is ordered.
func (s *script) requested(port uint16) (cats.ServiceRequest, *cats.Binding) {
	s.t.Helper()
	q := s.newRequest(port)
	s.request(q)
	return q, s.installed("EF-2", cats.EgressHalf)
}

func TestFailedCommits(t *testing.T) {
	t.Run("CP-11-1 an egress that refuses ends the flow, and is not selected for a while", func(t *testing.T) {
		s := ready(t)
		q, b := s.requested(51000)
		s.status("EF-2", b, cats.BindingRefused, cats.ReasonTableFull)
		if r := s.refusal(q); r.Reason != cats.ReasonCommitFailed {
			t.Errorf("%+v", r)
		}
		s.wantEmpty()
		if b := s.activate(51001); b.CSCIID != csciA {
			t.Errorf("the next flow went to %s", b.CSCIID)
		}
		s.wait(5 * time.Second)
		if b := s.activate(51002); b.CSCIID != csciB {
			t.Errorf("after the pause a flow went to %s", b.CSCIID)
		}
	})
	t.Run("CP-11-1 an egress that does not answer in time is undone", func(t *testing.T) {
		s := ready(t)
		q, b := s.requested(51000)
		s.wait(500 * time.Millisecond)
		if r := s.refusal(q); r.Reason != cats.ReasonCommitFailed {
			t.Errorf("%+v", r)
		}
		if r := s.sent("EF-2").Removes; len(r) != 1 || r[0].Half != cats.EgressHalf || r[0].Transaction != q.Transaction {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.wantDebited(csciB, 0)
		s.want(q.Transaction, cats.Failed)
		s.status("EF-2", b, cats.BindingInstalled, cats.ReasonNone) // late
		s.want(q.Transaction, cats.Failed)
		s.status("EF-2", b, cats.BindingRemoved, cats.ReasonCommitFailed)
		s.wantEmpty()
	})
	t.Run("CP-7.2-1 an ingress that refuses undoes the egress half", func(t *testing.T) {
		s := ready(t)
		q, b := s.requested(51000)
		s.status("EF-2", b, cats.BindingInstalled, cats.ReasonNone)
		s.status("IF-1", b, cats.BindingRefused, cats.ReasonTimeout)
		if r := s.sent("EF-2").Removes; len(r) != 1 || r[0].Transaction != q.Transaction {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.wantDebited(csciB, 0)
		s.status("EF-2", b, cats.BindingRemoved, cats.ReasonCommitFailed)
		s.wantEmpty()
		if b := s.activate(51001); b.CSCIID != csciB {
			t.Errorf("the egress was paused for what the ingress refused: %s", b.CSCIID)
		}
	})
	t.Run("CP-7.2-1 an ingress that does not answer in time is undone, then the egress", func(t *testing.T) {
		s := ready(t)
		q, b := s.requested(51000)
		s.status("EF-2", b, cats.BindingInstalled, cats.ReasonNone)
		s.wait(500 * time.Millisecond)
		if len(s.sent("IF-1").Removes) != 1 || len(s.sent("EF-2").Removes) != 0 {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.refusal(q)
		s.status("IF-1", b, cats.BindingRemoved, cats.ReasonCommitFailed)
		if len(s.sent("EF-2").Removes) != 1 {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.status("EF-2", b, cats.BindingRemoved, cats.ReasonCommitFailed)
		s.wantEmpty()
	})
	t.Run("the request's own deadline is the shorter one", func(t *testing.T) {
		s := ready(t)
		q := s.newRequest(51000)
		q.Remaining = 100 * time.Millisecond
		s.request(q)
		s.wait(100 * time.Millisecond)
		if r := s.refusal(q); r.Reason != cats.ReasonTimeout {
			t.Errorf("%+v", r)
		}
	})
	t.Run("an order to remove is repeated until it is answered", func(t *testing.T) {
		s := ready(t)
		_, b := s.requested(51000)
		s.wait(500 * time.Millisecond)
		for range 3 {
			if all := s.wait(time.Second); len(all) != 1 || len(all[0].Batch.Removes) != 1 {
				t.Fatalf("%s", describe(all))
			}
		}
		s.status("EF-2", b, cats.BindingRemoved, cats.ReasonCommitFailed)
		if all := s.wait(10 * time.Second); len(all) != 0 {
			t.Fatalf("%s", describe(all))
		}
		s.wantEmpty()
	})
	t.Run("a failed flow does not hold its key up while its egress is undone", func(t *testing.T) {
		s := ready(t)
		failed, _ := s.requested(51000)
		s.wait(500 * time.Millisecond)
		s.want(failed.Transaction, cats.Failed)
		s.wait(5 * time.Second) // the pause of the egress
		s.paths()
		if _, b := s.requested(51000); b.CSCIID != csciB {
			t.Errorf("%+v", b)
		}
		if n := s.core.Counters(); n.Joined != 0 || n.Ended[cats.ReasonSuperseded] != 0 {
			t.Errorf("%+v", n)
		}
		s.want(failed.Transaction, cats.Failed)
	})
	t.Run("a session that ends in a commit fails it, and the next one settles the rest", func(t *testing.T) {
		s := ready(t)
		q, b := s.requested(51000)
		s.disconnect("EF-2")
		if r := s.refusal(q); r.Reason != cats.ReasonCommitFailed {
			t.Errorf("%+v", r)
		}
		s.wantEmpty()
		s.hello(hello("EF-2", *b)) // it had been installed
		if r := s.sent("EF-2").Removes; len(r) != 1 || r[0].Transaction != q.Transaction || r[0].Half != cats.EgressHalf {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.wait(time.Second)
		if r := s.sent("EF-2").Removes; len(r) != 1 {
			t.Fatalf("a removal that is not answered is not repeated: %+v", s.out.Steering)
		}
		s.status("EF-2", b, cats.BindingRemoved, cats.ReasonCommitFailed)
		s.wantEmpty()
	})
	t.Run("an install that is still queued is taken back by its removal", func(t *testing.T) {
		s := ready(t)
		q := s.newRequest(51000)
		s.step(Events{Forwarders: []ForwarderEvent{
			{Name: "IF-1", Session: s.sessions["IF-1"], Batch: cats.ForwarderBatch{Requests: []cats.ServiceRequest{q}}},
			{Name: "IF-1", Session: s.sessions["IF-1"], Closed: true},
		}})
		// The ingress is not needed before the egress has answered.
		b := s.installed("EF-2", cats.EgressHalf)
		s.status("EF-2", b, cats.BindingInstalled, cats.ReasonNone)
		if got := s.sent("EF-2"); len(got.Installs) != 0 || len(got.Removes) != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a report on a binding that nobody wants takes it out", func(t *testing.T) {
		s := ready(t)
		stray := &cats.Binding{Transaction: cats.Transaction{9}, Version: 1}
		s.status("EF-2", stray, cats.BindingInstalled, cats.ReasonNone)
		if got := s.sent("EF-2").Removes; len(got) != 1 || got[0].Half != cats.EgressHalf {
			t.Errorf("%+v", got)
		}
		s.status("EF-2", stray, cats.BindingRemoved, cats.ReasonNone)
		if got := s.sent("EF-2"); !got.IsEmpty() {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the end may be heard before the commit", func(t *testing.T) {
		s := ready(t)
		q, b := s.requested(51000)
		s.status("EF-2", b, cats.BindingInstalled, cats.ReasonNone)
		s.status("IF-1", b, cats.BindingEnding, cats.ReasonFinished)
		s.want(q.Transaction, cats.Draining)
		s.wantDebited(csciB, 0)
		s.status("IF-1", b, cats.BindingInstalled, cats.ReasonNone)
		s.want(q.Transaction, cats.Draining)
	})
	t.Run("only the owner ends a flow", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		s.status("EF-2", b, cats.BindingEnding, cats.ReasonIdle)
		s.want(b.Transaction, cats.Active)
	})
	t.Run("a forwarder cannot speak for another", func(t *testing.T) {
		s := ready(t)
		q, b := s.requested(51000)
		s.batch("EF-1", cats.ForwarderBatch{Statuses: []cats.BindingStatus{
			{Transaction: b.Transaction, Forwarder: "EF-2", Half: cats.EgressHalf, Version: 1, Result: cats.BindingInstalled},
			{Transaction: b.Transaction, Forwarder: "EF-1", Half: cats.EgressHalf, Version: 1, Result: cats.BindingInstalled},
		}})
		if s.want(q.Transaction, cats.BindingReady); len(s.sent("IF-1").Installs) != 0 {
			t.Error("the ingress half was ordered")
		}
	})
}

func TestInstanceFailure(t *testing.T) {
	sick := func(s *script) *Effects {
		r := s.record("csma-2", 0, 5)
		r.Health = cats.Unhealthy
		return s.send("csma-2", s.update("csma-2", r))
	}
	t.Run("a failed instance makes its TCP clients connect again, and no flow moves silently", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		sick(s)
		s.want(b.Transaction, cats.ReconnectRequired)
		s.wantDebited(csciB, 0)
		if r := s.sent("IF-1").Removes; len(r) != 1 || r[0].Reason != cats.ReasonInstanceFailed {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.status("IF-1", b, cats.BindingRemoved, cats.ReasonInstanceFailed)
		s.status("EF-2", b, cats.BindingRemoved, cats.ReasonInstanceFailed)
		s.wantEmpty()
		if again := s.activate(51000); again.CSCIID != csciA {
			t.Errorf("the new connection went to %s", again.CSCIID)
		}
	})
	t.Run("a commit under way fails", func(t *testing.T) {
		s := ready(t)
		q, _ := s.requested(51000)
		sick(s)
		if r := s.refusal(q); r.Reason != cats.ReasonNoCandidate || r.Stage != "health" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("CP-8.5-3 GAS 0, an expired or a withdrawn report end no flow", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		s.report("csma-2", 0, 5)
		s.want(b.Transaction, cats.Active)
		withdraw := s.update("csma-2", s.record("csma-2", 0, 5))
		withdraw.Kind, withdraw.Base = cats.UpdateWithdraw, withdraw.Sequence-1
		withdraw.Records[0].Health = cats.HealthUnknown
		s.send("csma-2", withdraw)
		s.wait(time.Hour)
		s.want(b.Transaction, cats.Active)
	})
	t.Run("a revoked deployment loses its flows", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		r := records()
		r.Deployments[1].State = catalogue.Revoked
		s.step(Events{Domain: domain(t, r)})
		s.want(b.Transaction, cats.ReconnectRequired)
		if got := s.sent("IF-1").Removes; len(got) != 1 || got[0].Reason != cats.ReasonRevoked {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a deployment that is taken away loses its flows", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		r := records()
		r.Deployments = r.Deployments[:1]
		s.step(Events{Domain: domain(t, r)})
		s.want(b.Transaction, cats.ReconnectRequired)
	})
	for name, change := range map[string]func(*catalogue.Deployment){
		"locator":           func(d *catalogue.Deployment) { d.Locator.Address = netip.MustParseAddrPort("198.51.100.22:443") },
		"SID":               func(d *catalogue.Deployment) { d.Egress[0].SID = netip.MustParseAddr("2001:db8:0:e2::22") },
		"egress":            func(d *catalogue.Deployment) { d.Egress[0].Forwarder = "EF-1" },
		"egress, all of it": func(d *catalogue.Deployment) { d.State, d.Egress = catalogue.Applied, nil },
	} {
		t.Run("a deployment that keeps its key and changes its "+name+" loses its flows, and no other does", func(t *testing.T) {
			s := ready(t)
			b := s.activate(51000)
			s.report("csma-2", 0, 5)
			other := s.activate(51001)
			s.report("csma-2", 10, 5)
			committing, half := s.requested(51002)
			r := records()
			change(&r.Deployments[1])
			s.step(Events{Domain: domain(t, r)})
			s.want(b.Transaction, cats.ReconnectRequired)
			s.want(other.Transaction, cats.Active)
			s.wantDebited(csciB, 0)
			if got := s.refusal(committing); got.Reason != cats.ReasonNoCandidate || got.Stage != "deployment" {
				t.Errorf("%+v", got)
			}
			if got := s.sent("IF-1").Removes; len(got) != 1 || got[0].Reason != cats.ReasonRevoked || got[0].Transaction != b.Transaction {
				t.Errorf("%+v", got)
			}
			s.status("EF-2", half, cats.BindingRemoved, cats.ReasonRevoked)
			s.status("IF-1", b, cats.BindingRemoved, cats.ReasonRevoked)
			s.status("EF-2", b, cats.BindingRemoved, cats.ReasonRevoked)
			s.want(b.Transaction, cats.Absent)
		})
	}
	t.Run("a deployment with a further egress keeps its flows", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		r := records()
		r.Deployments[1].Egress = append([]catalogue.EgressAttachment{{Forwarder: "EF-1", SID: netip.MustParseAddr("2001:db8:0:e1::21")}}, r.Deployments[1].Egress...)
		s.step(Events{Domain: domain(t, r)})
		s.want(b.Transaction, cats.Active)
	})
	t.Run("a deployment that is no longer VALIDATED keeps its flows and takes no new one", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		r := records()
		r.Deployments[1].State = catalogue.Applied
		s.step(Events{Domain: domain(t, r)})
		s.want(b.Transaction, cats.Active)
		p := s.sent("EF-2").Provision
		if p == nil || len(p.Deliveries) != 1 {
			t.Fatalf("provision %+v: the delivery rule is needed as long as the flow is there", p)
		}
		s.acknowledge(p, "EF-2")
		s.request(s.newRequest(51001))
		if fresh := s.installed("EF-1", cats.EgressHalf); fresh.CSCIID == b.CSCIID {
			t.Errorf("a new flow goes to %s", fresh.CSCIID)
		}
	})
}

func TestLimits(t *testing.T) {
	limits := DefaultLimits()
	limits.Pending = admission.Limits{Total: 10, PerTenant: 10, PerClient: 3}
	s := newScript(t, Config{Limits: limits})
	s.step(Events{Domain: domain(t, records())})
	s.paths()
	for _, name := range []string{"IF-1", "EF-1", "EF-2"} {
		s.connect(name)
	}
	s.report("csma-1", 0, 5)
	s.report("csma-2", 100, 5)
	t.Run("a client has a bounded number of transactions under way", func(t *testing.T) {
		var first *cats.Binding
		for i := range uint16(3) {
			_, b := s.requested(51000 + i)
			if first == nil {
				first = b
			}
		}
		q := s.newRequest(51003)
		s.request(q)
		if r := s.refusal(q); r.Reason != cats.ReasonOverload {
			t.Fatalf("%+v", r)
		}
		s.status("EF-2", first, cats.BindingInstalled, cats.ReasonNone)
		s.status("IF-1", first, cats.BindingInstalled, cats.ReasonNone)
		s.requested(51003) // an ACTIVE flow is not under way
	})
	t.Run("the memory of closed transactions is bounded", func(t *testing.T) {
		c := newClosed(3)
		for i := range 10 {
			c.add(cats.Transaction{byte(i + 1)}, cats.ReasonIdle)
		}
		if len(c.reasons) != 3 || len(c.ring) != 3 {
			t.Errorf("%d reasons, %d in the ring", len(c.reasons), len(c.ring))
		}
		if _, known := c.reason(cats.Transaction{10}); !known {
			t.Error("the latest is forgotten")
		}
	})
}
