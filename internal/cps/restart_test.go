package cps

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// restarted gives a core of the next epoch that knows the domain and nothing else, and the script that goes on.
func (s *script) restarted(t *testing.T) *script { return s.restartedWith(t, records()) }

func (s *script) restartedWith(t *testing.T, r catalogue.Records) *script {
	t.Helper()
	after := newScript(t, Config{Epoch: cats.Epoch{Term: epoch.Term + 1}})
	after.now, after.counter = s.now, s.counter
	after.step(Events{Domain: domain(t, r)})
	after.paths()
	return after
}

func TestRestart(t *testing.T) {
	before := ready(t)
	b := *before.activate(51000)

	t.Run("CP-10-4 a binding that both forwarders have is ACTIVE again, untouched, under the new epoch", func(t *testing.T) {
		s := before.restarted(t)
		s.connect("EF-1")
		s.connect("EF-2", b)
		s.connect("IF-1", b)
		s.want(b.Transaction, cats.Active)
		s.wantDebited(csciB, 1)
		r := s.core.flows[b.Transaction]
		if r.binding.Epoch != (cats.Epoch{Term: 6}) || r.binding.Locator != b.Locator || r.binding.Reverse.Service != b.Reverse.Service ||
			!slices.Equal(r.binding.Path.Segments, b.Path.Segments) {
			t.Errorf("%+v", r.binding)
		}
		if n := s.core.Counters().Restored; n != 1 {
			t.Errorf("%d restored", n)
		}
		s.status("IF-1", &b, cats.BindingEnding, cats.ReasonFinished)
		s.want(b.Transaction, cats.Draining)
		if d := s.sent("IF-1").Drains; len(d) != 1 || d[0].Epoch != (cats.Epoch{Term: 6}) {
			t.Errorf("%+v", d)
		}
	})
	t.Run("nothing is said about a restored binding", func(t *testing.T) {
		s := before.restarted(t)
		for _, name := range []string{"EF-2", "IF-1", "EF-1"} {
			h := hello(name, b)
			if name == "EF-1" {
				h.Bindings = nil
			}
			s.hello(h)
			if sent := s.sent(name); len(sent.Removes)+len(sent.Installs)+len(sent.Drains) != 0 {
				t.Errorf("%s was sent %+v", name, sent)
			}
			s.acknowledge(s.sent(name).Provision, name)
		}
	})
	t.Run("a half that only the egress has is taken out", func(t *testing.T) {
		for _, order := range [][]string{{"IF-1", "EF-2"}, {"EF-2", "IF-1"}} {
			s := before.restarted(t)
			removed := 0
			for _, name := range order {
				h := hello(name)
				if name == "EF-2" {
					h = hello(name, b)
				}
				s.hello(h)
				removed += len(s.sent("EF-2").Removes)
			}
			if removed != 1 {
				t.Errorf("%v: %d orders to remove the egress half", order, removed)
			}
			s.wantDebited(csciB, 0)
			s.status("EF-2", &b, cats.BindingRemoved, cats.ReasonSuperseded)
			s.wantEmpty()
		}
	})
	t.Run("a half that only the ingress has is taken out once the egress was heard", func(t *testing.T) {
		s := before.restarted(t)
		s.connect("IF-1", b)
		s.want(b.Transaction, cats.Active)
		s.hello(hello("EF-2"))
		if r := s.sent("IF-1").Removes; len(r) != 1 || r[0].Transaction != b.Transaction {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.status("IF-1", &b, cats.BindingRemoved, cats.ReasonSuperseded)
		s.wantEmpty()
	})
	t.Run("the binding of an absent egress stays, untouched and debited", func(t *testing.T) {
		s := before.restarted(t)
		s.connect("EF-1")
		s.connect("IF-1", b)
		if all := s.wait(time.Minute); len(all) != 0 {
			t.Errorf("%s", describe(all))
		}
		s.want(b.Transaction, cats.Active)
		s.wantDebited(csciB, 1)
		s.connect("EF-2", b)
		s.want(b.Transaction, cats.Active)
	})
	t.Run("CP-10-4 nothing is decided before all forwarders were heard", func(t *testing.T) {
		s := before.restarted(t)
		s.connect("EF-2")
		s.connect("IF-1")
		s.report("csma-1", 0, 5)
		s.report("csma-2", 10, 5)
		q := s.newRequest(51009)
		s.request(q)
		s.want(q.Transaction, cats.Pending)
		if n := s.core.Counters().Selections; n != 0 {
			t.Fatalf("%d selections", n)
		}
		s.hello(hello("EF-1"))
		s.want(q.Transaction, cats.Pending)
		s.acknowledge(s.sent("EF-1").Provision, "EF-1")
		s.installed("EF-2", cats.EgressHalf)
	})
	t.Run("nor before all C-SMAs were heard, for 3 s at most", func(t *testing.T) {
		s := before.restarted(t)
		for _, name := range []string{"EF-1", "EF-2", "IF-1"} {
			s.connect(name)
		}
		s.report("csma-1", 0, 5)
		q := s.newRequest(51009)
		q.Remaining = 10 * time.Second
		s.request(q)
		s.want(q.Transaction, cats.Pending)
		s.report("csma-2", 10, 5)
		s.installed("EF-2", cats.EgressHalf)
	})
	t.Run("an absent forwarder holds the others up for 3 s only", func(t *testing.T) {
		s := before.restarted(t)
		s.connect("EF-2")
		s.connect("IF-1")
		s.report("csma-2", 10, 5)
		s.wait(2 * time.Second)
		q := s.newRequest(51009)
		s.request(q)
		s.want(q.Transaction, cats.Pending)
		if all := s.wait(time.Second); len(all) != 1 || all[0].Forwarder != "EF-2" || len(all[0].Batch.Installs) != 1 {
			t.Fatalf("%s", describe(all))
		}
	})
	t.Run("a request whose time passes while it waits is not decided later", func(t *testing.T) {
		s := before.restarted(t)
		s.connect("IF-1")
		q := s.newRequest(51009)
		s.request(q)
		s.wait(2 * time.Second)
		if r := s.refusal(q); r.Reason != cats.ReasonTimeout {
			t.Errorf("%+v", r)
		}
		s.connect("EF-1")
		s.connect("EF-2")
		s.wantEmpty()
		if n := s.core.Counters().Selections; n != 0 {
			t.Errorf("%d selections", n)
		}
	})
	t.Run("a half of another shard is left to its owner, and one that is another forwarder's is ignored and audited", func(t *testing.T) {
		s := before.restarted(t)
		foreign := b
		foreign.Shard = 9
		h := hello("EF-2", foreign)
		h.Bindings = append(h.Bindings, cats.HeldBinding{Half: cats.IngressHalf, State: cats.Active, Binding: b})
		s.hello(h)
		s.wantEmpty()
		if len(s.out.Audit) != 1 || s.out.Audit[0].Event != "binding-ignored" {
			t.Errorf("%+v", s.out.Audit)
		}
		if sent := s.sent("EF-2"); len(sent.Removes) != 0 {
			t.Errorf("%+v", sent)
		}
	})
	t.Run("a flow that was draining is restored as draining, without slots, and ends at both", func(t *testing.T) {
		for _, order := range [][]string{{"IF-1", "EF-2"}, {"EF-2", "IF-1"}} {
			s := before.restarted(t)
			drains := 0
			for _, name := range order {
				h := hello(name, b)
				if name == "EF-2" { // the order to the ingress was lost
					h.Bindings[0].State, h.Bindings[0].Reason = cats.Draining, cats.ReasonIdle
				}
				s.hello(h)
				for _, d := range s.sent("IF-1").Drains {
					if drains++; d.Half != cats.IngressHalf || d.Reason != cats.ReasonIdle {
						t.Errorf("%v: %+v", order, d)
					}
				}
			}
			s.want(b.Transaction, cats.Draining)
			s.wantDebited(csciB, 0)
			if drains != 1 {
				t.Errorf("%v: the ingress was ordered %d times to drain", order, drains)
			}
			s.wait(5 * time.Second)
			s.status("IF-1", &b, cats.BindingRemoved, cats.ReasonIdle)
			s.status("EF-2", &b, cats.BindingRemoved, cats.ReasonIdle)
			s.wantEmpty()
		}
	})
	t.Run("a binding that is older than the catalogue ends, also where its forwarders come late", func(t *testing.T) {
		r := records()
		r.Deployments[1].Locator.Address = netip.MustParseAddrPort("198.51.100.22:443")
		for _, wait := range []time.Duration{0, time.Minute} {
			s := before.restarted(t)
			s.step(Events{Domain: domain(t, r)})
			s.wait(wait)
			s.connect("EF-2", b)
			s.connect("IF-1", b)
			s.want(b.Transaction, cats.ReconnectRequired)
			s.status("IF-1", &b, cats.BindingRemoved, cats.ReasonRevoked)
			s.status("EF-2", &b, cats.BindingRemoved, cats.ReasonRevoked)
			s.wantEmpty()
		}
	})
}

func TestReconnection(t *testing.T) {
	t.Run("CP-10-4 a forwarder that comes back with its bindings changes nothing", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		for _, name := range []string{"IF-1", "EF-2"} {
			s.disconnect(name)
			s.connect(name, *b)
			s.want(b.Transaction, cats.Active)
		}
		s.wantDebited(csciB, 1)
	})
	t.Run("a forwarder that lost a half ends the flow at the other", func(t *testing.T) {
		for lost, other := range map[string]string{"IF-1": "EF-2", "EF-2": "IF-1"} {
			s := ready(t)
			b := s.activate(51000)
			s.hello(hello(lost))
			if r := s.sent(other).Removes; len(r) != 1 || r[0].Transaction != b.Transaction {
				t.Errorf("%s lost it, %s was sent %+v", lost, other, s.sent(other))
			}
			s.wantDebited(csciB, 0)
			s.status(other, b, cats.BindingRemoved, cats.ReasonSuperseded)
			s.wantEmpty()
		}
	})
	t.Run("a removal that a session took with it is ordered again in the next, before the egress's", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		s.status("IF-1", b, cats.BindingEnding, cats.ReasonIdle)
		s.wait(5 * time.Second)
		s.disconnect("IF-1") // with its order to remove
		if all := s.wait(time.Minute); len(all) != 0 {
			t.Fatalf("%s", describe(all))
		}
		s.hello(hello("IF-1", *b))
		if r := s.sent("IF-1").Removes; len(r) != 1 || r[0].Half != cats.IngressHalf {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.status("IF-1", b, cats.BindingRemoved, cats.ReasonIdle)
		if r := s.sent("EF-2").Removes; len(r) != 1 || r[0].Half != cats.EgressHalf {
			t.Fatalf("%+v", s.out.Steering)
		}
		s.status("EF-2", b, cats.BindingRemoved, cats.ReasonIdle)
		s.wantEmpty()
	})
	t.Run("what comes from a replaced session changes nothing", func(t *testing.T) {
		s := ready(t)
		q, b := s.requested(51000)
		old := s.sessions["EF-2"]
		s.hello(hello("EF-2"))
		s.step(Events{Forwarders: []ForwarderEvent{{Name: "EF-2", Session: old, Batch: cats.ForwarderBatch{Statuses: []cats.BindingStatus{
			{Transaction: b.Transaction, Forwarder: "EF-2", Half: cats.EgressHalf, Version: 1, Result: cats.BindingInstalled}}}}}})
		s.want(q.Transaction, cats.Absent)
		s.step(Events{Forwarders: []ForwarderEvent{{Name: "EF-2", Session: old, Closed: true}}})
		if !s.core.forwarder("EF-2").connected {
			t.Error("the end of an old session ended the new one")
		}
	})
}

func TestSessionsThatAreRefused(t *testing.T) {
	refused := func(t *testing.T, s *script, h *cats.ForwarderHello, reason cats.Reason) {
		t.Helper()
		s.hello(h)
		if len(s.out.Closes) != 1 || s.out.Closes[0].Reason != reason || s.out.Closes[0].Detail == "" || len(s.out.Audit) == 0 {
			t.Fatalf("closes %+v, audit %+v", s.out.Closes, s.out.Audit)
		}
		if sent := s.sent(h.Name); !sent.IsEmpty() {
			t.Errorf("sent %+v", sent)
		}
	}
	t.Run("an unknown forwarder", func(t *testing.T) { refused(t, ready(t), hello("EF-9"), cats.ReasonUnauthorized) })
	t.Run("a hello in another's name", func(t *testing.T) {
		s := ready(t)
		s.sessions["EF-1"]++
		s.batch("EF-1", cats.ForwarderBatch{Hello: hello("EF-2")})
		if len(s.out.Closes) != 1 || s.out.Closes[0].Reason != cats.ReasonUnauthorized {
			t.Fatalf("%+v", s.out.Closes)
		}
	})
	t.Run("another layout of the maps", func(t *testing.T) {
		h := hello("EF-1")
		h.LayoutVersion++
		refused(t, ready(t), h, cats.ReasonVersion)
	})
	for name, highest := range map[string]cats.Epoch{
		"a forwarder that has obeyed a higher epoch stops all decisions": {Term: epoch.Term + 1},
		"so does one that has obeyed another owner of the same epoch":    epoch,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, Config{})
			s.step(Events{Domain: domain(t, records())})
			s.paths()
			s.connect("IF-1")
			s.connect("EF-2")
			q := s.newRequest(51000)
			s.request(q)
			h := hello("EF-1")
			h.Highest = []cats.ShardEpoch{{Shard: 9, Epoch: cats.Epoch{Term: 1000}}, {Shard: 0, Epoch: highest}}
			refused(t, s, h, cats.ReasonStaleEpoch)
			if r := s.refusal(q); r.Reason != cats.ReasonStaleState {
				t.Errorf("%+v", r)
			}
			s.wait(10 * time.Second)
			again := s.newRequest(51001)
			s.request(again)
			if r := s.refusal(again); r.Reason != cats.ReasonStaleState {
				t.Errorf("%+v", r)
			}
			if s.core.Gauges().Fenced == "" {
				t.Error("the gauges do not tell")
			}
		})
	}
	t.Run("a fence is handed out to be kept, again where a higher epoch is heard of", func(t *testing.T) {
		s := newScript(t, Config{})
		s.step(Events{Domain: domain(t, records())})
		met := func(name string, highest cats.Epoch) cats.Fence {
			h := hello(name)
			h.Highest = []cats.ShardEpoch{{Epoch: highest}}
			refused(t, s, h, cats.ReasonStaleEpoch)
			return s.out.Fence
		}
		for _, step := range []struct {
			name string
			term uint64
			want cats.Fence
		}{
			{"EF-1", 9, cats.Fence{Highest: cats.Epoch{Term: 9}, Forwarder: "EF-1"}},
			{"EF-2", 8, cats.Fence{}},
			{"IF-1", 9, cats.Fence{}},
			{"IF-1", 12, cats.Fence{Highest: cats.Epoch{Term: 12}, Forwarder: "IF-1"}},
			{"EF-2", 1, cats.Fence{}}, // one that has obeyed nobody above this core is not served either
		} {
			if got := met(step.name, cats.Epoch{Term: step.term}); got != step.want {
				t.Errorf("%s at %d: %+v, want %+v", step.name, step.term, got, step.want)
			}
		}
		if s.step(Events{}); !s.out.Fence.IsZero() {
			t.Errorf("%+v", s.out.Fence)
		}
	})
	t.Run("a core that starts with a fence serves nobody, and every refusal says what to do", func(t *testing.T) {
		s := newScript(t, Config{Fence: cats.Fence{Highest: cats.Epoch{Term: 9}, Forwarder: "EF-1"}})
		s.step(Events{Domain: domain(t, records())})
		s.paths()
		for _, name := range []string{"IF-1", "EF-1", "EF-2"} {
			h := hello(name)
			refused(t, s, h, cats.ReasonStaleEpoch)
			if d := s.out.Closes[0].Detail; !strings.Contains(d, "EF-1 has obeyed epoch 9.0") || !strings.Contains(d, "margay-cps --recover") {
				t.Error(d)
			}
		}
		if all := s.wait(time.Minute); len(all) != 0 {
			t.Errorf("%s", describe(all))
		}
		if g := s.core.Gauges(); g.Open || g.Connected != 0 || !strings.Contains(g.Fenced, "margay-cps --recover") {
			t.Errorf("%+v", g)
		}
	})
	t.Run("a forwarder that knows this core's epoch from this core is welcome", func(t *testing.T) {
		s := ready(t)
		h := hello("EF-1")
		h.Highest = []cats.ShardEpoch{{Epoch: epoch}}
		s.hello(h)
		if len(s.out.Closes) != 0 || s.sent("EF-1").Provision == nil {
			t.Errorf("%+v", s.out)
		}
	})
	t.Run("what a forwarder has obeyed of another shard is none of this core's", func(t *testing.T) {
		s := ready(t)
		h := hello("EF-1")
		h.Highest = []cats.ShardEpoch{{Shard: 9, Epoch: cats.Epoch{Term: 1000}}}
		s.hello(h)
		if len(s.out.Closes) != 0 || s.core.Gauges().Fenced != "" {
			t.Errorf("%+v", s.out.Closes)
		}
	})
	t.Run("a forwarder that leaves the domain is dismissed", func(t *testing.T) {
		s := ready(t)
		d := domain(t, records())
		d.Forwarders = []string{"IF-1", "EF-2"}
		s.step(Events{Domain: d})
		if len(s.out.Closes) != 1 || s.out.Closes[0].Forwarder != "EF-1" {
			t.Errorf("%+v", s.out.Closes)
		}
	})
	t.Run("nothing waits for a forwarder that has left the domain", func(t *testing.T) {
		s := ready(t)
		b := s.activate(51000)
		s.disconnect("EF-2")
		d := domain(t, records())
		d.Forwarders = []string{"IF-1", "EF-1"}
		s.step(Events{Domain: d})
		s.status("IF-1", b, cats.BindingRemoved, cats.ReasonOperator)
		s.wantEmpty()
	})
}

func (s *script) provisionOf(name string) *cats.Provision {
	s.t.Helper()
	p := s.sent(name).Provision
	if p == nil {
		s.t.Fatalf("%s was sent no provision", name)
	}
	return p
}

func TestProvision(t *testing.T) {
	t.Run("CP-9-5 an instance is a candidate only once its delivery rule is acknowledged", func(t *testing.T) {
		s := newScript(t, Config{})
		s.step(Events{Domain: domain(t, records())})
		s.paths()
		s.connect("IF-1")
		s.hello(hello("EF-2"))
		p := s.provisionOf("EF-2")
		if len(p.Deliveries) != 1 || p.Deliveries[0].SID != sidB || len(p.Services) != 0 {
			t.Fatalf("%+v", p)
		}
		s.report("csma-2", 10, 5)
		s.wait(3 * time.Second)
		q := s.newRequest(51000)
		s.request(q)
		if r := s.refusal(q); r.Reason != cats.ReasonNoCandidate || r.Stage != "deployment" {
			t.Fatalf("%+v", r)
		}
		s.acknowledge(p, "EF-2")
		s.request(s.newRequest(51001))
		s.installed("EF-2", cats.EgressHalf)
	})
	t.Run("an ingress gets the service addresses", func(t *testing.T) {
		s := newScript(t, Config{})
		s.step(Events{Domain: domain(t, records())})
		s.hello(hello("IF-1"))
		p := s.provisionOf("IF-1")
		if len(p.Services) != 1 || p.Services[0].CSID != "S1" || p.Services[0].Number != 1 || len(p.Deliveries) != 0 || p.Epoch != epoch {
			t.Errorf("%+v", p)
		}
	})
	t.Run("a provision is repeated until it is answered", func(t *testing.T) {
		s := newScript(t, Config{})
		s.step(Events{Domain: domain(t, records())})
		s.hello(hello("EF-2"))
		p := s.provisionOf("EF-2")
		if all := s.wait(2 * time.Second); len(all) != 2 || all[1].Batch.Provision.Generation != p.Generation {
			t.Fatalf("%s", describe(all))
		}
		s.acknowledge(p, "EF-2")
		if all := s.wait(time.Minute); len(all) != 0 {
			t.Fatalf("%s", describe(all))
		}
	})
	t.Run("a new catalogue leaves unchanged rules in force until it is acknowledged", func(t *testing.T) {
		s := ready(t)
		s.step(Events{Domain: domain(t, records())})
		if p := s.provisionOf("EF-2"); p.Generation != 2 {
			t.Errorf("generation %d", p.Generation)
		}
		s.activate(51000)
	})
	t.Run("an acknowledgement to another shard is none of this core's", func(t *testing.T) {
		s := newScript(t, Config{})
		s.step(Events{Domain: domain(t, records())})
		s.hello(hello("EF-2"))
		s.batch("EF-2", cats.ForwarderBatch{Provisioned: []cats.Provisioned{{Forwarder: "EF-2", Shard: 9, Generation: 1, Deliveries: []cats.CSCIID{csciB}}}})
		if f := s.core.forwarder("EF-2"); f.answered || len(f.acknowledged) != 0 {
			t.Errorf("%+v", f)
		}
	})
	t.Run("a changed rule admits nothing before it is acknowledged", func(t *testing.T) {
		s := ready(t)
		r := records()
		r.Deployments[1].Egress[0].SID = transit
		s.step(Events{Domain: domain(t, r)})
		if b := s.activate(51000); b.CSCIID != csciA {
			t.Errorf("%s", b.CSCIID)
		}
	})
}
