package forwarder_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

func installBatch(half cats.Half, b cats.Binding) *cats.SteeringBatch {
	return &cats.SteeringBatch{Installs: []cats.Install{{Half: half, Binding: b}}}
}

func TestInstallChecks(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*cats.Binding)
		want   cats.Reason
	}{
		{"for another forwarder", func(b *cats.Binding) { b.Ingress = "IF-2" }, cats.ReasonMalformed},
		{"for another flow", func(b *cats.Binding) { b.Match.Tuple = tcp(1) }, cats.ReasonMalformed},
		{"reverse half of another client", func(b *cats.Binding) { b.Reverse.Service.Target = netip.MustParseAddrPort("192.0.2.11:1") }, cats.ReasonMalformed},
		{"restores another address", func(b *cats.Binding) { b.Reverse.Restore = netip.MustParseAddrPort("192.0.2.101:443") }, cats.ReasonMalformed},
		{"locator of another protocol", func(b *cats.Binding) { b.Locator.Protocol = cats.UDP }, cats.ReasonMalformed},
		{"too many segments", func(b *cats.Binding) { b.Path.Segments = make([]netip.Addr, 11) }, cats.ReasonCapabilityMismatch},
		{"no segments", func(b *cats.Binding) { b.Path.Segments = nil }, cats.ReasonCapabilityMismatch},
		{"a kind that is not advertised", func(b *cats.Binding) { b.Path.Kind = cats.PathSRMPLS }, cats.ReasonCapabilityMismatch},
		{"of an unknown transaction", func(b *cats.Binding) { b.Transaction[15]++ }, cats.ReasonTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			h, r := g.open(tcp(51000))
			b := binding(r)
			c.change(&b)
			g.steer(installBatch(cats.IngressHalf, b))
			g.wantStatus(b.Transaction, cats.BindingRefused, c.want)
			g.wantHeld(h)
			if len(g.unanswered)+len(g.journal) != 0 {
				t.Fatalf("something changed: %+v %+v", g.unanswered, g.journal)
			}
		})
	}
}

func TestEgressHalf(t *testing.T) {
	t.Run("the egress half is installed without a pending flow", func(t *testing.T) {
		g := newRig(t)
		b := g.egressBinding(1, 51000)
		g.steer(installBatch(cats.EgressHalf, b))
		if len(g.statuses) != 0 {
			t.Fatal("answered before the data plane confirmed")
		}
		g.settle(cats.ReasonNone)
		g.wantStatus(b.Transaction, cats.BindingInstalled, cats.ReasonNone)
		if g.out.Stats.EgressHalves != 1 || g.out.Stats.IngressHalves != 0 {
			t.Fatalf("stats %+v", g.out.Stats)
		}
	})
	t.Run("CP-9-5 no delivery rule in place, no binding", func(t *testing.T) {
		g := newRig(t)
		for _, change := range []func(*cats.Binding){
			func(b *cats.Binding) { b.CSCIID = "elsewhere" },
			func(b *cats.Binding) { b.Attachment = transitSID },
		} {
			b := g.egressBinding(1, 51000)
			change(&b)
			g.steer(installBatch(cats.EgressHalf, b))
			g.wantStatus(b.Transaction, cats.BindingRefused, cats.ReasonCommitFailed)
		}
		if len(g.unanswered) != 0 {
			t.Fatalf("operations %+v", g.unanswered)
		}
	})
	t.Run("one tuple, one owner", func(t *testing.T) {
		g := newRig(t)
		first, second := g.egressBinding(1, 51000), g.egressBinding(2, 51000)
		second.Match.Tuple.Target = netip.MustParseAddrPort("192.0.2.101:443")
		second.Reverse.Client, second.Reverse.Restore = second.Match.Tuple.Reverse(), second.Match.Tuple.Target
		g.steer(installBatch(cats.EgressHalf, first))
		g.settle(cats.ReasonNone)
		g.steer(installBatch(cats.EgressHalf, second))
		g.wantStatus(second.Transaction, cats.BindingRefused, cats.ReasonTupleInUse)
		// Once the first is ordered away, the second may have it, in one message.
		batch := installBatch(cats.EgressHalf, second)
		batch.Removes = []cats.Remove{{Transaction: first.Transaction, Epoch: epoch1, Half: cats.EgressHalf, Reason: cats.ReasonFinished}}
		g.steer(batch)
		g.settle(cats.ReasonNone)
		g.wantStatus(first.Transaction, cats.BindingRemoved, cats.ReasonFinished)
		g.wantStatus(second.Transaction, cats.BindingInstalled, cats.ReasonNone)
	})
}

func TestVersions(t *testing.T) {
	repaired := func(b cats.Binding, version uint32) cats.Binding {
		b.Version = version
		b.Path.Segments = []netip.Addr{attachSID}
		return b
	}
	t.Run("the same version is answered again", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(51000))
		g.steer(installBatch(cats.IngressHalf, b))
		g.wantStatus(b.Transaction, cats.BindingInstalled, cats.ReasonNone)
		if len(g.unanswered) != 0 {
			t.Fatalf("operations %+v", g.unanswered)
		}
	})
	t.Run("a higher version replaces the path of the same flow", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(51000))
		next := repaired(b, 2)
		g.steer(installBatch(cats.IngressHalf, next))
		if v := g.core.Bindings(); v[0].Binding.Version != 1 {
			t.Fatal("the new version counts before the data plane confirmed it")
		}
		g.settle(cats.ReasonNone)
		g.wantStatus(b.Transaction, cats.BindingInstalled, cats.ReasonNone)
		if s, _ := g.status(b.Transaction); s.Version != 2 {
			t.Fatalf("status of version %d", s.Version)
		}
		if v := g.core.Bindings(); len(v) != 1 || !slices.Equal(v[0].Binding.Path.Segments, next.Path.Segments) {
			t.Fatalf("bindings %+v", v)
		}
	})
	t.Run("a version that the data plane refuses leaves the old one", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(51000))
		g.steer(installBatch(cats.IngressHalf, repaired(b, 2)))
		g.settle(cats.ReasonTableFull)
		g.wantStatus(b.Transaction, cats.BindingRefused, cats.ReasonTableFull)
		if v := g.core.Bindings(); len(v) != 1 || v[0].Binding.Version != 1 || !v[0].InForce {
			t.Fatalf("bindings %+v", v)
		}
		last := g.journal[len(g.journal)-1]
		if last.Kind != forwarder.JournalPut || last.Record.Binding.Version != 1 {
			t.Fatalf("the journal ends with %+v", last)
		}
	})
	t.Run("a lower version is stale", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(51000))
		g.steer(installBatch(cats.IngressHalf, repaired(b, 3)))
		g.settle(cats.ReasonNone)
		g.forget()
		g.steer(installBatch(cats.IngressHalf, repaired(b, 2)))
		g.wantStatus(b.Transaction, cats.BindingRefused, cats.ReasonStaleState)
	})
	t.Run("a version cannot move the binding to another flow", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(51000))
		moved := binding(cats.ServiceRequest{Transaction: b.Transaction, Key: cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: tcp(51001)}})
		moved.Version = 2
		g.steer(installBatch(cats.IngressHalf, moved))
		g.wantStatus(b.Transaction, cats.BindingRefused, cats.ReasonMalformed)
	})
}

func TestEpochs(t *testing.T) {
	low, high := epoch1, cats.Epoch{Term: 2}
	t.Run("a lower epoch commands nothing", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(51000))
		held, r := g.open(tcp(51001))
		g.steer(&cats.SteeringBatch{Removes: []cats.Remove{{Transaction: cats.Transaction{1}, Epoch: high, Half: cats.EgressHalf}}})
		if !g.out.NeedsSync() || g.journal[0].Kind != forwarder.JournalEpoch || g.journal[0].Epoch != high {
			t.Fatalf("journal %+v", g.journal)
		}
		g.settle(cats.ReasonNone)
		g.forget()
		old := g.egressBinding(7, 7)
		old.Epoch = low
		g.steer(&cats.SteeringBatch{
			Provision: provision(9, low),
			Removes:   []cats.Remove{{Transaction: b.Transaction, Epoch: low, Half: cats.IngressHalf}},
			Drains:    []cats.Drain{{Transaction: b.Transaction, Epoch: low, Half: cats.IngressHalf}},
			Installs:  []cats.Install{{Half: cats.EgressHalf, Binding: old}},
			Refusals:  []cats.Refuse{{Transaction: r.Transaction, Epoch: low, Reason: cats.ReasonNoCandidate}},
		})
		g.wantHeld(held)
		if len(g.unanswered)+len(g.journal) != 0 || g.out.Provision != nil {
			t.Fatalf("something changed: %+v %+v", g.unanswered, g.journal)
		}
		if p := g.out.Send.Provisioned; p == nil || p.Reason != cats.ReasonStaleEpoch {
			t.Fatalf("provisioned %+v", p)
		}
		g.wantStatus(b.Transaction, cats.BindingRefused, cats.ReasonStaleEpoch)
		g.wantStatus(old.Transaction, cats.BindingRefused, cats.ReasonStaleEpoch)
		if g.out.Stats.StaleOrders != 5 {
			t.Fatalf("%d stale orders counted", g.out.Stats.StaleOrders)
		}
	})
	t.Run("CP-10-4 the epoch outlives a restart", func(t *testing.T) {
		g := newRig(t)
		g.steer(&cats.SteeringBatch{Removes: []cats.Remove{{Transaction: cats.Transaction{1}, Epoch: high, Half: cats.EgressHalf}}})
		h := start(t, config("IF-1"), g.core.Snapshot())
		h.session(forwarder.SessionUp)
		if e := h.out.Send.Hello.Highest; e != high {
			t.Fatalf("hello says %s", e)
		}
		h.steer(installBatch(cats.EgressHalf, h.egressBinding(1, 1)))
		h.wantStatus(cats.Transaction{9, 15: 1}, cats.BindingRefused, cats.ReasonStaleEpoch)
	})
	t.Run("epochs are per shard", func(t *testing.T) {
		g := newRig(t)
		g.steer(&cats.SteeringBatch{Removes: []cats.Remove{{Transaction: cats.Transaction{1}, Shard: 5, Epoch: high, Half: cats.EgressHalf}}})
		g.steer(installBatch(cats.EgressHalf, g.egressBinding(1, 1)))
		g.settle(cats.ReasonNone)
		g.wantStatus(cats.Transaction{9, 15: 1}, cats.BindingInstalled, cats.ReasonNone)
	})
}

func TestRemove(t *testing.T) {
	t.Run("a removal is answered once the data plane has it", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(51000))
		g.steer(&cats.SteeringBatch{Removes: []cats.Remove{{Transaction: b.Transaction, Epoch: epoch1, Half: cats.IngressHalf, Reason: cats.ReasonOperator}}})
		if len(g.statuses) != 0 || len(g.unanswered) != 1 || g.unanswered[0].Kind != forwarder.OperationRemove {
			t.Fatalf("statuses %+v, operations %+v", g.statuses, g.unanswered)
		}
		g.settle(cats.ReasonNone)
		g.wantStatus(b.Transaction, cats.BindingRemoved, cats.ReasonOperator)
	})
	t.Run("an unknown transaction is answered as removed", func(t *testing.T) {
		g := newRig(t)
		g.steer(&cats.SteeringBatch{
			Removes: []cats.Remove{{Transaction: cats.Transaction{1}, Epoch: epoch1, Half: cats.EgressHalf, Reason: cats.ReasonIdle}},
			Drains:  []cats.Drain{{Transaction: cats.Transaction{2}, Epoch: epoch1, Half: cats.EgressHalf, Reason: cats.ReasonHard}},
		})
		g.wantStatus(cats.Transaction{1}, cats.BindingRemoved, cats.ReasonIdle)
		g.wantStatus(cats.Transaction{2}, cats.BindingRemoved, cats.ReasonHard)
	})
	t.Run("a removal that fails is tried again", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(51000))
		g.steer(&cats.SteeringBatch{Removes: []cats.Remove{{Transaction: b.Transaction, Epoch: epoch1, Half: cats.IngressHalf}}})
		g.settle(cats.ReasonCommitFailed)
		g.pass(time.Second)
		if len(g.unanswered) != 1 || g.unanswered[0].Kind != forwarder.OperationRemove {
			t.Fatalf("operations %+v", g.unanswered)
		}
		g.settle(cats.ReasonNone)
		g.wantStatus(b.Transaction, cats.BindingRemoved, cats.ReasonNone)
	})
	t.Run("an undone commit ends the pending flow", func(t *testing.T) {
		g := newRig(t)
		h, r := g.open(tcp(51000))
		g.steer(installBatch(cats.IngressHalf, binding(r)))
		g.steer(&cats.SteeringBatch{Removes: []cats.Remove{{Transaction: r.Transaction, Epoch: epoch1, Half: cats.IngressHalf, Reason: cats.ReasonTimeout}}})
		g.settle(cats.ReasonNone)
		g.wantDropped(h, cats.ReasonCommitFailed)
		g.wantStatus(r.Transaction, cats.BindingRemoved, cats.ReasonTimeout)
	})
}

func TestRestart(t *testing.T) {
	t.Run("CP-10-4 the hello of a restarted forwarder carries every binding whole", func(t *testing.T) {
		g := newRig(t)
		in := g.establish(tcp(51000))
		out := g.egressBinding(1, 52000)
		g.steer(installBatch(cats.EgressHalf, out))
		g.settle(cats.ReasonNone)

		h := start(t, config("IF-1"), g.core.Snapshot())
		h.session(forwarder.SessionUp)
		hello := h.out.Send.Hello
		want := &cats.ForwarderHello{
			Name: "IF-1", BootID: "boot-1", LayoutVersion: 1, ReturnSID: returnSID, Highest: epoch1,
			Capabilities: cats.Capabilities{Encapsulations: cats.EncapNone | cats.EncapSRv6, MaxSegments: 10},
			Attachments:  []cats.ClientAttachment{{Name: "client-1", Tenant: "default"}, {Name: "client-2", Tenant: "other"}},
			Bindings:     []cats.Binding{out, in},
		}
		if d := cmp.Diff(want, hello, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); d != "" {
			t.Fatal(d)
		}
		// And it is in force: an established flow needs nobody, and its tuple is taken.
		h.wantReleased(h.arrive(tcp(51000), forwarder.ACK), in.Transaction)
		other := h.egressBinding(2, 52000)
		h.steer(installBatch(cats.EgressHalf, other))
		h.wantStatus(other.Transaction, cats.BindingRefused, cats.ReasonTupleInUse)
	})
	t.Run("CP-9-5 the provision outlives a restart", func(t *testing.T) {
		g := newRig(t)
		h := start(t, config("IF-1"), g.core.Snapshot())
		h.session(forwarder.SessionUp)
		h.steer(installBatch(cats.EgressHalf, h.egressBinding(1, 51000)))
		h.settle(cats.ReasonNone)
		h.wantStatus(cats.Transaction{9, 15: 1}, cats.BindingInstalled, cats.ReasonNone)
	})
}

func TestProvision(t *testing.T) {
	t.Run("CP-9-5 only what is in place is acknowledged", func(t *testing.T) {
		g := newRig(t)
		p := provision(2, epoch1)
		g.steer(&cats.SteeringBatch{Provision: p})
		if g.out.Provision != p || g.out.Send.Provisioned != nil {
			t.Fatalf("provision %v, acknowledged %v", g.out.Provision, g.out.Send.Provisioned)
		}
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 2, Deliveries: []cats.CSCIID{csciB}}})
		want := &cats.Provisioned{Forwarder: "IF-1", Generation: 2, Deliveries: []cats.CSCIID{csciB}}
		if d := cmp.Diff(want, g.out.Send.Provisioned); d != "" {
			t.Fatal(d)
		}
	})
	t.Run("CP-9-5 what is no longer in place is taken back", func(t *testing.T) {
		g := newRig(t)
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 1}})
		if a := g.out.Send.Provisioned; a == nil || a.Generation != 1 || a.Reason != cats.ReasonNone || len(a.Deliveries) != 0 {
			t.Fatalf("acknowledged %+v", a)
		}
	})
	t.Run("what could not be applied leaves the last one in force", func(t *testing.T) {
		g := newRig(t)
		p := provision(2, epoch1)
		p.Services = nil
		g.steer(&cats.SteeringBatch{Provision: p})
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 2, Reason: cats.ReasonTableFull, Detail: "no room"}})
		if a := g.out.Send.Provisioned; a == nil || a.Reason != cats.ReasonTableFull {
			t.Fatalf("acknowledged %+v", a)
		}
		g.open(tcp(51000))
		last := g.journal[len(g.journal)-1]
		if last.Kind != forwarder.JournalProvision || last.Provision.Generation != 1 {
			t.Fatalf("the journal ends with %+v", last)
		}
	})
}

func TestReload(t *testing.T) {
	g := newRig(t)
	g.step(&forwarder.Events{Attachments: []forwarder.Attachment{{Name: "client-1", Tenant: "new", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}})
	if _, r := g.open(tcp(51000)); r.Key.Tenant != "new" {
		t.Fatalf("request %+v", r)
	}
	m := g.packet(tcp(51001), forwarder.SYN)
	m.Attachment = "client-2"
	g.step(&forwarder.Events{Misses: []forwarder.Miss{m}})
	g.wantDropped(m.Handle, cats.ReasonUnauthorized)
}
