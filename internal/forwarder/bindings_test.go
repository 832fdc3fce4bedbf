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
	elsewhere := netip.MustParseAddrPort("198.51.100.11:443")
	for what, change := range map[string]func(*cats.Binding){
		"flow": func(b *cats.Binding) {
			*b = binding(cats.ServiceRequest{Transaction: b.Transaction, Key: cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: tcp(51001)}})
		},
		"tenant of the flow": func(b *cats.Binding) { b.Match.Tenant = "other" },
		"instance":           func(b *cats.Binding) { b.CSCIID = "198.51.100.11:443" },
		"locator":            func(b *cats.Binding) { b.Locator.Address, b.Reverse.Service.Source = elsewhere, elsewhere },
		"egress":             func(b *cats.Binding) { b.Egress = "EF-1" },
		"egress attachment":  func(b *cats.Binding) { b.Attachment = transitSID },
	} {
		t.Run("CP-8.5-3 a new version cannot move the binding to another "+what, func(t *testing.T) {
			g := newRig(t)
			b := g.establish(tcp(51000))
			moved := repaired(b, 1)
			change(&moved)
			moved.Version = 2
			g.steer(installBatch(cats.IngressHalf, moved))
			g.wantStatus(b.Transaction, cats.BindingRefused, cats.ReasonMalformed)
			if s, _ := g.status(b.Transaction); s.Version != 2 || s.Half != cats.IngressHalf || s.Detail == "" {
				t.Errorf("status %+v", s)
			}
			if v := g.core.Bindings(); len(v) != 1 || len(g.unanswered) != 0 || !cmp.Equal(v[0].Binding, b, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})) {
				t.Errorf("something changed: %+v, %+v", v, g.unanswered)
			}
		})
	}
	t.Run("CP-8.5-3 an egress half is not moved to another instance either", func(t *testing.T) {
		g := newRig(t)
		b := g.egressBinding(1, 51000)
		g.steer(installBatch(cats.EgressHalf, b))
		g.settle(cats.ReasonNone)
		p := provision(2, epoch1)
		p.Deliveries = append(p.Deliveries, cats.Delivery{CSCIID: "a", Locator: cats.Locator{Protocol: cats.TCP, Address: locator}, SID: attachSID})
		g.steer(&cats.SteeringBatch{Provision: p})
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 2}})
		moved := repaired(b, 2)
		moved.CSCIID = "a"
		g.steer(installBatch(cats.EgressHalf, moved))
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
		if p := g.out.Send.Provisioned; len(p) != 1 || p[0].Reason != cats.ReasonStaleEpoch {
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
		if e := h.out.Send.Hello.Obeyed(0); e != high {
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
		g.session(forwarder.SessionUp)
		want := []cats.ShardEpoch{{Shard: 0, Epoch: epoch1}, {Shard: 5, Epoch: high}}
		if h := g.out.Send.Hello; !slices.Equal(h.Highest, want) || h.Obeyed(5) != high || h.Obeyed(9) != (cats.Epoch{}) {
			t.Fatalf("hello says %+v", h.Highest)
		}
	})
}

// A forwarder can be ingress and egress of one flow; what it says of it names the half.
func TestBothHalvesAtOneForwarder(t *testing.T) {
	g := newRig(t)
	_, r := g.open(tcp(51000))
	b := binding(r)
	b.Egress = "IF-1"
	for _, half := range []cats.Half{cats.EgressHalf, cats.IngressHalf} {
		g.steer(installBatch(half, b))
		g.settle(cats.ReasonNone)
		if s, _ := g.status(b.Transaction); s.Result != cats.BindingInstalled || s.Half != half {
			t.Fatalf("status %+v, want that of the %s half", s, half)
		}
	}
	g.steer(&cats.SteeringBatch{Drains: []cats.Drain{{Transaction: b.Transaction, Epoch: epoch1, Half: cats.EgressHalf, Reason: cats.ReasonFinished}}})
	g.settle(cats.ReasonNone)
	t.Run("the hello names each half and its state", func(t *testing.T) {
		h := start(t, config("IF-1"), g.core.Snapshot())
		h.session(forwarder.SessionUp)
		held := h.out.Send.Hello.Bindings
		if len(held) != 2 || held[0].Half != cats.IngressHalf || held[0].State != cats.Active || held[0].Reason != cats.ReasonNone ||
			held[1].Half != cats.EgressHalf || held[1].State != cats.Draining || held[1].Reason != cats.ReasonFinished {
			t.Fatalf("%+v", held)
		}
	})
	t.Run("a removal of one half leaves the other", func(t *testing.T) {
		g.steer(&cats.SteeringBatch{Removes: []cats.Remove{{Transaction: b.Transaction, Epoch: epoch1, Half: cats.IngressHalf, Reason: cats.ReasonFinished}}})
		g.settle(cats.ReasonNone)
		if s, _ := g.status(b.Transaction); s.Result != cats.BindingRemoved || s.Half != cats.IngressHalf {
			t.Fatalf("status %+v", s)
		}
		if v := g.core.Bindings(); len(v) != 1 || v[0].Half != cats.EgressHalf {
			t.Fatalf("%+v", v)
		}
	})
	t.Run("orders about a half that is not here, or of a stale owner, are answered for that half", func(t *testing.T) {
		g.forget()
		g.steer(&cats.SteeringBatch{Removes: []cats.Remove{{Transaction: b.Transaction, Epoch: epoch1, Half: cats.IngressHalf}, {Transaction: b.Transaction, Half: cats.EgressHalf}}})
		if len(g.statuses) != 2 || g.statuses[0].Half != cats.IngressHalf || g.statuses[0].Result != cats.BindingRemoved ||
			g.statuses[1].Half != cats.EgressHalf || g.statuses[1].Result != cats.BindingRefused {
			t.Fatalf("%+v", g.statuses)
		}
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

func TestRemovalsWithoutSession(t *testing.T) {
	const most = 2
	g := newRig(t, func(c *forwarder.Config) { c.Limits.Unreported = most })
	for port := uint16(1); port <= 5; port++ {
		g.establish(tcp(port))
	}
	g.session(forwarder.SessionDown)
	for _, v := range g.core.Bindings() {
		g.scan(forwarder.Usage{Transaction: v.Binding.Transaction, Half: v.Half, LastSeen: g.now, ForwardFlags: forwarder.FIN, ReverseFlags: forwarder.FIN})
	}
	g.settle(cats.ReasonNone)
	g.pass(5 * time.Second)
	g.settle(cats.ReasonNone)
	if s := g.out.Stats; s.RemovalsLost != 5-most {
		t.Fatalf("%d removals are counted as lost, want %d", s.RemovalsLost, 5-most)
	}
	g.forget()
	g.session(forwarder.SessionUp)
	if len(g.statuses) != most {
		t.Fatalf("%d removals are told: %+v", len(g.statuses), g.statuses)
	}
}

func TestRestart(t *testing.T) {
	t.Run("CP-9-1 CP-10-4 the hello of a restarted forwarder carries its capabilities, and every binding whole", func(t *testing.T) {
		g := newRig(t)
		in := g.establish(tcp(51000))
		out := g.egressBinding(1, 52000)
		g.steer(installBatch(cats.EgressHalf, out))
		g.settle(cats.ReasonNone)

		h := start(t, config("IF-1"), g.core.Snapshot())
		h.session(forwarder.SessionUp)
		hello := h.out.Send.Hello
		want := &cats.ForwarderHello{
			Name: "IF-1", BootID: "boot-1", LayoutVersion: 1, ReturnSID: returnSID, Highest: []cats.ShardEpoch{{Epoch: epoch1}},
			Capabilities: cats.Capabilities{Encapsulations: cats.EncapNone | cats.EncapSRv6, MaxSegments: 10},
			Attachments: []cats.ClientAttachment{
				{Name: "client-1", Tenant: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:c::/48")}},
				{Name: "client-2", Tenant: "other", Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}},
			},
			Bindings: []cats.HeldBinding{
				{Half: cats.EgressHalf, State: cats.Active, Binding: out}, {Half: cats.IngressHalf, State: cats.Active, Binding: in},
			},
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
		want := []cats.Provisioned{{Forwarder: "IF-1", Generation: 2, Deliveries: []cats.CSCIID{csciB}}}
		if d := cmp.Diff(want, g.out.Send.Provisioned); d != "" {
			t.Fatal(d)
		}
	})
	t.Run("CP-9-5 what is no longer in place is taken back", func(t *testing.T) {
		g := newRig(t)
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 1}})
		if a := g.out.Send.Provisioned; len(a) != 1 || a[0].Generation != 1 || a[0].Reason != cats.ReasonNone || len(a[0].Deliveries) != 0 {
			t.Fatalf("acknowledged %+v", a)
		}
	})
	t.Run("what could not be applied leaves the last one in force", func(t *testing.T) {
		g := newRig(t)
		p := provision(2, epoch1)
		p.Services = nil
		g.steer(&cats.SteeringBatch{Provision: p})
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 2, Reason: cats.ReasonTableFull, Detail: "no room"}})
		if a := g.out.Send.Provisioned; len(a) != 1 || a[0].Reason != cats.ReasonTableFull {
			t.Fatalf("acknowledged %+v", a)
		}
		g.open(tcp(51000))
		last := g.journal[len(g.journal)-1]
		if last.Kind != forwarder.JournalProvision || last.Provision.Generation != 1 {
			t.Fatalf("the journal ends with %+v", last)
		}
	})
}

func TestProvisionsOfShards(t *testing.T) {
	other := &cats.Provision{
		Generation: 7, Shard: 5, Epoch: epoch1,
		Services:   []cats.ServiceRule{{Number: 9, CSID: "S9", Prefix: netip.MustParsePrefix("192.0.2.109/32"), Protocol: cats.TCP, Port: 443}},
		Deliveries: []cats.Delivery{{CSCIID: "nine", Locator: cats.Locator{Protocol: cats.TCP, Address: locator}, SID: transitSID}, provision(1, epoch1).Deliveries[0]},
	}
	nine := tcp(51009)
	nine.Target = netip.MustParseAddrPort("192.0.2.109:443")
	both := func(t *testing.T) *rig {
		g := newRig(t)
		g.steer(&cats.SteeringBatch{Provision: other})
		p := g.out.Provision
		if p == nil || len(p.Services) != 4 || len(p.Deliveries) != 3 {
			t.Fatalf("the data plane is given %+v, want the rules of both shards, each once", p)
		}
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: p.Generation, Deliveries: []cats.CSCIID{csciB, "nine"}}})
		return g
	}
	t.Run("a provision replaces that of its shard alone", func(t *testing.T) {
		g := both(t)
		want := []cats.Provisioned{{Forwarder: "IF-1", Shard: 5, Generation: 7, Deliveries: []cats.CSCIID{csciB, "nine"}}}
		if d := cmp.Diff(want, g.out.Send.Provisioned); d != "" {
			t.Fatal(d)
		}
		g.open(tcp(51000))
		g.open(nine)
	})
	t.Run("what is in place is acknowledged to each shard", func(t *testing.T) {
		g := both(t)
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 8, Deliveries: []cats.CSCIID{"nine"}}})
		want := []cats.Provisioned{{Forwarder: "IF-1", Generation: 1}, {Forwarder: "IF-1", Shard: 5, Generation: 7, Deliveries: []cats.CSCIID{"nine"}}}
		if d := cmp.Diff(want, g.out.Send.Provisioned); d != "" {
			t.Fatal(d)
		}
	})
	t.Run("two in one message are put in force together", func(t *testing.T) {
		g := newRig(t)
		g.step(&forwarder.Events{Steering: []*cats.SteeringBatch{{Provision: provision(2, epoch1)}, {Provision: other}}})
		if g.out.Provision.Generation != 9 {
			t.Fatalf("generation %d", g.out.Provision.Generation)
		}
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 9}})
		if p := g.out.Send.Provisioned; len(p) != 2 || p[0].Generation != 2 || p[1].Shard != 5 || p[1].Generation != 7 {
			t.Fatalf("acknowledged %+v", p)
		}
		g.open(nine)
	})
	t.Run("one that cannot be applied leaves the other shard's, and is gone from the journal", func(t *testing.T) {
		g := newRig(t)
		g.steer(&cats.SteeringBatch{Provision: other})
		g.step(&forwarder.Events{Provisioned: &forwarder.ProvisionResult{Generation: 8, Reason: cats.ReasonTableFull}})
		if p := g.out.Send.Provisioned; len(p) != 1 || p[0].Shard != 5 || p[0].Reason != cats.ReasonTableFull {
			t.Fatalf("acknowledged %+v", p)
		}
		g.wantDropped(g.arrive(nine, forwarder.SYN), cats.ReasonUnknownService)
		g.open(tcp(51000))
		last := g.journal[len(g.journal)-1]
		if last.Kind != forwarder.JournalProvision || last.Shard != 5 || last.Provision != nil {
			t.Fatalf("the journal ends with %+v", last)
		}
	})
	t.Run("CP-9-5 a binding needs the delivery rule of its own shard", func(t *testing.T) {
		g := newRig(t)
		b := g.egressBinding(1, 1)
		b.Shard = 5
		g.steer(installBatch(cats.EgressHalf, b))
		g.wantStatus(b.Transaction, cats.BindingRefused, cats.ReasonCommitFailed)
		g = both(t)
		g.steer(installBatch(cats.EgressHalf, b))
		g.settle(cats.ReasonNone)
		g.wantStatus(b.Transaction, cats.BindingInstalled, cats.ReasonNone)
	})
	t.Run("the provisions of all shards outlive a restart", func(t *testing.T) {
		s := both(t).core.Snapshot()
		if r := s.Rules(); len(s.Provisions) != 2 || len(r.Services) != 4 || len(r.Deliveries) != 3 {
			t.Fatalf("%+v", s.Provisions)
		}
		h := start(t, config("IF-1"), s)
		h.session(forwarder.SessionUp)
		h.open(tcp(51000))
		h.open(nine)
	})
}

func TestReload(t *testing.T) {
	g := newRig(t)
	g.step(&forwarder.Events{Attachments: []forwarder.Attachment{{Name: "client-1", Tenant: "new", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}})
	if all := g.out.Send.Attachments; len(all) != 1 || all[0].Tenant != "new" || len(all[0].Prefixes) != 1 {
		t.Fatalf("the C-PS is told %+v", all)
	}
	if _, r := g.open(tcp(51000)); r.Key.Tenant != "new" {
		t.Fatalf("request %+v", r)
	}
	m := g.packet(tcp(51001), forwarder.SYN)
	m.Attachment = "client-2"
	g.step(&forwarder.Events{Misses: []forwarder.Miss{m}})
	g.wantDropped(m.Handle, cats.ReasonUnauthorized)

	g.session(forwarder.SessionDown)
	g.step(&forwarder.Events{Attachments: []forwarder.Attachment{}})
	if g.out.Send.Attachments != nil {
		t.Fatalf("without a session it sends %+v", g.out.Send)
	}
	if g.session(forwarder.SessionUp); len(g.out.Send.Hello.Attachments) != 0 || g.out.Send.Attachments != nil {
		t.Fatalf("the next session begins with %+v", g.out.Send)
	}
}

// An order to install that was overtaken by the one to remove must leave nothing behind.
func TestLateInstallAfterRemoval(t *testing.T) {
	g := newRig(t)
	b := g.egressBinding(7, 51000)
	for range 3 {
		g.steer(&cats.SteeringBatch{Removes: []cats.Remove{{Transaction: b.Transaction, Epoch: epoch1, Half: cats.EgressHalf, Reason: cats.ReasonCommitFailed}}})
	}
	g.wantStatus(b.Transaction, cats.BindingRemoved, cats.ReasonCommitFailed)
	g.steer(installBatch(cats.EgressHalf, b))
	g.wantStatus(b.Transaction, cats.BindingRefused, cats.ReasonTimeout)
	if len(g.unanswered) != 0 || len(g.core.Bindings()) != 0 {
		t.Fatalf("operations %+v, bindings %+v", g.unanswered, g.core.Bindings())
	}
	g.pass(11 * time.Second) // longer than any order is under way
	g.steer(installBatch(cats.EgressHalf, b))
	g.settle(cats.ReasonNone)
	g.wantStatus(b.Transaction, cats.BindingInstalled, cats.ReasonNone)
}
