package cps

import (
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// localRecords are those of a domain whose second instance is behind the ingress itself.
func localRecords() catalogue.Records {
	r := records()
	r.Deployments[1].Egress[0].Forwarder = "IF-1"
	return r
}

// local gives a core whose second instance is behind the ingress itself, which reaches it quickest, and the egress half
// of the first flow there.
func local(t *testing.T) (*script, cats.ServiceRequest, *cats.Binding) {
	t.Helper()
	s := newScript(t, Config{})
	s.step(Events{Domain: domain(t, localRecords())})
	s.pce.delays[[2]string{"IF-1", "IF-1"}] = 10
	s.paths()
	for _, name := range []string{"IF-1", "EF-1", "EF-2"} {
		s.connect(name)
	}
	s.report("csma-1", 0, 5)
	s.report("csma-2", 10, 5)
	q := s.newRequest(51000)
	s.request(q)
	return s, q, s.installed("IF-1", cats.EgressHalf)
}

// A forwarder can be ingress and egress of one flow: each half has its own life.
func TestBothHalvesAtOneForwarder(t *testing.T) {
	t.Run("the ingress half is ordered once the egress half is in place", func(t *testing.T) {
		s, q, b := local(t)
		s.statusOf("IF-1", cats.IngressHalf, b, cats.BindingInstalled, cats.ReasonNone) // of nothing that was ordered
		s.want(q.Transaction, cats.BindingReady)
		s.statusOf("IF-1", cats.EgressHalf, b, cats.BindingInstalled, cats.ReasonNone)
		s.installed("IF-1", cats.IngressHalf)
		s.statusOf("IF-1", cats.EgressHalf, b, cats.BindingInstalled, cats.ReasonNone) // again
		s.want(q.Transaction, cats.BindingReady)
		s.statusOf("IF-1", cats.IngressHalf, b, cats.BindingInstalled, cats.ReasonNone)
		s.want(q.Transaction, cats.Active)
	})
	active := func(t *testing.T) (*script, *cats.Binding) {
		s, _, b := local(t)
		for _, which := range []cats.Half{cats.EgressHalf, cats.IngressHalf} {
			s.statusOf("IF-1", which, b, cats.BindingInstalled, cats.ReasonNone)
		}
		s.want(b.Transaction, cats.Active)
		return s, b
	}
	t.Run("a refused ingress half leaves the egress half to be taken out, and does not pause the egress", func(t *testing.T) {
		s, q, b := local(t)
		s.statusOf("IF-1", cats.EgressHalf, b, cats.BindingInstalled, cats.ReasonNone)
		s.statusOf("IF-1", cats.IngressHalf, b, cats.BindingRefused, cats.ReasonTableFull)
		if got := s.sent("IF-1"); len(got.Removes) != 1 || got.Removes[0].Half != cats.EgressHalf || len(got.Refusals) != 1 {
			t.Fatalf("%+v", got)
		}
		s.want(q.Transaction, cats.Failed)
		s.statusOf("IF-1", cats.EgressHalf, b, cats.BindingRemoved, cats.ReasonCommitFailed)
		s.wantEmpty()
		s.request(s.newRequest(51001))
		s.installed("IF-1", cats.EgressHalf)
	})
	t.Run("the counters of the flow are those of its ingress half, the path status is each half's", func(t *testing.T) {
		s, b := active(t)
		report := func(which cats.Half, packets uint64, up bool) {
			s.batch("IF-1", cats.ForwarderBatch{Statuses: []cats.BindingStatus{{Transaction: b.Transaction, Forwarder: "IF-1", Half: which, Version: 1,
				Result: cats.BindingCounters, Forward: cats.Usage{Packets: packets}, PathUp: up}}})
		}
		report(cats.IngressHalf, 5, true)
		report(cats.EgressHalf, 9, false)
		r := s.core.flows[b.Transaction]
		if r.forward.Packets != 5 || !r.pathUp[cats.IngressHalf] || r.pathUp[cats.EgressHalf] {
			t.Errorf("%d packets, paths %v", r.forward.Packets, r.pathUp)
		}
	})
	t.Run("its end drains both halves, and takes the ingress half out first", func(t *testing.T) {
		s, b := active(t)
		s.statusOf("IF-1", cats.EgressHalf, b, cats.BindingEnding, cats.ReasonIdle) // not the owner's half
		s.want(b.Transaction, cats.Active)
		s.statusOf("IF-1", cats.IngressHalf, b, cats.BindingEnding, cats.ReasonIdle)
		if d := s.sent("IF-1").Drains; len(d) != 2 || d[0].Half != cats.IngressHalf || d[1].Half != cats.EgressHalf {
			t.Fatalf("%+v", d)
		}
		s.wait(5 * time.Second)
		if r := s.sent("IF-1").Removes; len(r) != 1 || r[0].Half != cats.IngressHalf {
			t.Fatalf("%+v", r)
		}
		s.statusOf("IF-1", cats.EgressHalf, b, cats.BindingRemoved, cats.ReasonIdle) // which nobody ordered yet
		s.want(b.Transaction, cats.Draining)
		s.statusOf("IF-1", cats.IngressHalf, b, cats.BindingRemoved, cats.ReasonIdle)
		s.wantEmpty()
	})
	t.Run("a restarted core restores both from one hello", func(t *testing.T) {
		before, b := active(t)
		s := before.restartedWith(t, localRecords())
		s.connect("IF-1", *b)
		s.want(b.Transaction, cats.Active)
		s.wantDebited(csciB, 1)
		if n := s.core.Counters().Restored; n != 1 || len(s.core.forwarder("IF-1").flows) != 1 {
			t.Errorf("%d restored", n)
		}
	})
	for _, lost := range bothHalves {
		t.Run("a forwarder that lost its "+lost.String()+" half ends the flow", func(t *testing.T) {
			before, b := active(t)
			for _, s := range []*script{before, before.restartedWith(t, localRecords())} {
				h := hello("IF-1", *b)
				h.Bindings = append(h.Bindings[:lost:lost], h.Bindings[lost+1:]...)
				s.hello(h)
				if r := s.sent("IF-1").Removes; len(r) != 1 || r[0].Half == lost {
					t.Fatalf("%+v", r)
				}
				s.wantDebited(csciB, 0)
				s.statusOf("IF-1", cats.EgressHalf-lost, b, cats.BindingRemoved, cats.ReasonSuperseded)
				s.wantEmpty()
			}
		})
	}
	t.Run("a session that ends in the commit of either half leaves nothing behind", func(t *testing.T) {
		for _, committed := range []int{0, 1} {
			s, q, b := local(t)
			if committed == 1 {
				s.statusOf("IF-1", cats.EgressHalf, b, cats.BindingInstalled, cats.ReasonNone)
			}
			s.disconnect("IF-1")
			s.wantDebited(csciB, 0)
			s.hello(hello("IF-1", *b)) // both had been installed
			for range 3 {
				for _, r := range s.sent("IF-1").Removes {
					s.statusOf("IF-1", r.Half, b, cats.BindingRemoved, r.Reason)
				}
			}
			s.want(q.Transaction, cats.Absent)
			s.wantEmpty()
		}
	})
}
