package datapath

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/margay-net/margay/cats"
)

func TestInstall(t *testing.T) {
	n := newDomain(t)
	f, g := tcp4, udp6
	entries := append(f.ingress("client-1", pathForward, hopClient), g.egress(pathReturn)...)
	for i := range entries {
		entries[i].Shard, entries[i].Epoch = 3, cats.Epoch{Term: 1 << 40, Counter: 9}
	}
	must(t, n.Install(entries))
	n.expectEntries(t, entries)

	t.Run("the same transaction amends and keeps its usage", func(t *testing.T) {
		n.run(t, "client0", ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 9, flags: "FA"}.octets(t)))
		before := n.usage(t)[entries[0].Key]
		if before.Packets != 1 || !before.FIN {
			t.Fatalf("usage %+v", before)
		}
		changed := entries[0]
		changed.Path, changed.Version, changed.Epoch, changed.Shard = pathNative, 2, cats.Epoch{Term: 1 << 41}, 4
		must(t, n.Install([]Entry{changed}))
		n.expectEntries(t, append([]Entry{changed}, entries[1:]...))
		if after := n.usage(t)[entries[0].Key]; after != before {
			t.Errorf("usage went from %+v to %+v", before, after)
		}
		must(t, n.Install(entries[:1]))
	})
	t.Run("another transaction is refused, and takes nothing", func(t *testing.T) {
		other := slices.Clone(append(udp4.ingress("client-1", pathForward, hopClient), entries[1]))
		for i := range other {
			other[i].Transaction[15] = 99
		}
		err := n.Install(other)
		if !errors.Is(err, cats.ReasonTupleInUse) || !strings.Contains(err.Error(), transaction.String()) {
			t.Errorf("error %v, want tuple-in-use that names transaction %s", err, transaction)
		}
		n.expectEntries(t, entries)
	})
	t.Run("what fails is undone to what was", func(t *testing.T) {
		changed := entries[0]
		changed.Path = pathNative
		bad := entries[1]
		bad.Transaction[15] = 99
		if err := n.Install([]Entry{udp4.ingress("client-1", pathForward, hopClient)[0], changed, bad}); err == nil {
			t.Error("no error")
		}
		n.expectEntries(t, entries)
	})
	t.Run("the same transaction never moves to another instance", func(t *testing.T) {
		moved := entries[0]
		moved.Rewrite = ap("198.51.100.11:443")
		if err := n.Install([]Entry{moved}); !errors.Is(err, cats.ReasonMalformed) {
			t.Errorf("error %v", err)
		}
		n.expectEntries(t, entries)
	})
	t.Run("draining", func(t *testing.T) {
		must(t, n.SetDraining(entries[2].Key, transaction, true))
		want := slices.Clone(entries)
		want[2].Draining = true
		n.expectEntries(t, want)
		must(t, n.SetDraining(entries[2].Key, transaction, false))
		n.expectEntries(t, entries)
		for _, c := range []struct {
			key         Key
			transaction cats.Transaction
		}{{entries[0].Key, cats.Transaction{9}}, {udp4.ingressKey("client-1"), transaction}} {
			if err := n.SetDraining(c.key, c.transaction, true); !errors.Is(err, ErrNotInstalled) {
				t.Errorf("draining %s of %s: %v, want ErrNotInstalled", c.key.Tuple, c.transaction, err)
			}
		}
	})
	t.Run("removal", func(t *testing.T) {
		must(t, n.Remove([]Key{entries[0].Key, udp4.ingressKey("client-1"), entries[3].Key}))
		n.expectEntries(t, []Entry{entries[1], entries[2]})
	})
}

func (n *node) expectEntries(t testing.TB, want []Entry) {
	t.Helper()
	have, err := n.Entries()
	must(t, err)
	byKey := func(all []Entry) map[Key]Entry {
		m := make(map[Key]Entry)
		for _, e := range all {
			m[e.Key] = e
		}
		return m
	}
	if !maps.Equal(byKey(have), byKey(want)) || len(have) != len(want) {
		t.Errorf("entries:\n got %+v\nwant %+v", have, want)
	}
}

func TestTableFull(t *testing.T) {
	n := newDomain(t) // 128 bindings, 256 entries
	at := func(port int) []Entry {
		f := udp4
		f.client = netip.AddrPortFrom(f.client.Addr(), uint16(port))
		return f.ingress("client-1", pathForward, hopClient)
	}
	var want []Entry
	for i := range 128 {
		must(t, n.Install(at(1000+i)))
		want = append(want, at(1000+i)...)
	}
	for range 3 {
		if err := n.Install(at(5000)); !errors.Is(err, cats.ReasonTableFull) || !strings.Contains(err.Error(), "256") {
			t.Fatalf("error %v, want table-full that names the capacity", err)
		}
	}
	n.expectEntries(t, want)
	must(t, n.Remove([]Key{want[10].Key, want[11].Key}), n.Install(at(5000)))
	n.expectEntries(t, append(slices.Delete(want, 10, 12), at(5000)...))
}

func TestInstallMalformed(t *testing.T) {
	n := newDomain(t)
	good := tcp4.ingress("client-1", pathForward, hopClient)
	for name, change := range map[string]func([]Entry){
		"no attachment":             func(e []Entry) { e[0].Key.Attachment = 0 },
		"an attachment in reverse":  func(e []Entry) { e[1].Key.Attachment = 1 },
		"no kind":                   func(e []Entry) { e[0].Key.Kind = kindCount },
		"two families":              func(e []Entry) { e[0].Key.Tuple.Target = tcp6.service },
		"another family of locator": func(e []Entry) { e[0].Rewrite = tcp6.locator },
		"no locator":                func(e []Entry) { e[0].Rewrite = netip.AddrPort{} },
		"a locator at the egress":   func(e []Entry) { e[0].Key = Key{Kind: EgressForward, Tuple: tcp4.delivered()} },
		"no address":                func(e []Entry) { e[0].Key.Tuple.Source = netip.AddrPort{} },
		"a mapped address":          func(e []Entry) { e[0].Rewrite = ap("[::ffff:198.51.100.21]:443") },
		"ICMP":                      func(e []Entry) { e[0].Key.Tuple.Protocol = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := slices.Clone(good)
			change(bad)
			slices.Reverse(bad) // the good one goes first, and must not stay
			if err := n.Install(bad); !errors.Is(err, cats.ReasonMalformed) {
				t.Errorf("error %v, want malformed", err)
			}
			n.expectEntries(t, nil)
		})
	}
}

// TestManyEntries reads more than one batch.
func TestManyEntries(t *testing.T) {
	n := newNode(t)
	must(t, n.Close(), Unload(n.pins))
	config := n.config()
	config.Bindings = 4000
	n.open(t, config)
	want := make(map[Key]bool)
	for i := range 3500 {
		f := udp6
		f.client = netip.AddrPortFrom(f.client.Addr(), uint16(i+1))
		must(t, n.Install(f.egress(pathReturn)))
		for _, e := range f.egress(pathReturn) {
			want[e.Key] = true
		}
	}
	seen := make(map[Key]bool)
	must(t, n.Usage(func(u Usage) { seen[u.Key] = true }))
	if !maps.Equal(seen, want) {
		t.Errorf("saw %d entries, want %d", len(seen), len(want))
	}
}

func TestPaths(t *testing.T) {
	n := newNode(t)
	want := map[uint32]Path{
		1:  {Kind: cats.PathNative, NextHop: 5},
		2:  {cats.PathSRv6, ingressSource, []netip.Addr{deliverSID}, 6},
		3:  {cats.PathSRv6, egressSource, []netip.Addr{transitSID1, transitSID2, deliverSID}, 0},
		63: {cats.PathSRv6, egressSource, slices.Repeat([]netip.Addr{transitSID1}, MaxSegments), 0},
	}
	for id, p := range want {
		must(t, n.PutPath(id, p))
	}
	have, err := n.Paths()
	must(t, err)
	if !reflect.DeepEqual(have, want) {
		t.Errorf("paths %+v, want %+v", have, want)
	}
	must(t, n.DeletePath(2))
	delete(want, 2)
	if have, err = n.Paths(); err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("paths %+v, want %+v", have, want)
	}
	for name, p := range map[string]Path{
		"SR-MPLS":     {Kind: cats.PathSRMPLS},
		"tunnel":      {Kind: cats.PathTunnel},
		"11 segments": {Kind: cats.PathSRv6, Source: ingressSource, Segments: slices.Repeat([]netip.Addr{transitSID1}, 11)},
		"no segment":  {Kind: cats.PathSRv6, Source: ingressSource},
	} {
		if err := n.PutPath(4, p); !errors.Is(err, cats.ReasonCapabilityMismatch) {
			t.Errorf("%s: error %v, want capability-mismatch", name, err)
		}
	}
	for name, p := range map[string]Path{
		"no source":       {Kind: cats.PathSRv6, Segments: []netip.Addr{deliverSID}},
		"an IPv4 segment": {Kind: cats.PathSRv6, Source: ingressSource, Segments: []netip.Addr{addr("192.0.2.1")}},
	} {
		if err := n.PutPath(4, p); !errors.Is(err, cats.ReasonMalformed) {
			t.Errorf("%s: error %v, want malformed", name, err)
		}
	}
	for _, id := range []uint32{0, 64} {
		if n.PutPath(id, want[1]) == nil || n.DeletePath(id) == nil || n.PutNextHop(id, NextHop{}) == nil {
			t.Errorf("id %d was taken", id)
		}
	}
	hops := map[uint32]NextHop{7: {3, coreMAC, clientMAC, 0, 1500}, 63: {4, coreMAC, someMAC, 4094, 9000}}
	for id, h := range hops {
		must(t, n.PutNextHop(id, h))
	}
	must(t, n.PutNextHop(9, NextHop{MTU: 1500}))
	if got, err := n.NextHops(); err != nil || !maps.Equal(got, hops) {
		t.Errorf("next hops %+v, error %v, want %+v", got, err, hops)
	}
}

// TestProvisionRefusals proves that bad input gives one error that names it, and changes nothing.
func TestProvisionRefusals(t *testing.T) {
	n := newDomain(t)
	rule := func(prefix string) cats.ServiceRule {
		return cats.ServiceRule{Number: 8, CSID: "S8", Prefix: prefixes(prefix)[0], Protocol: cats.TCP, Port: 443}
	}
	must(t, n.SetDeliveries([]Delivery{tcp4.delivery(deliverSID, 1)}))
	other := addr("2001:db8:0:e2::99")
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"the same service twice":    {n.SetServices([]cats.ServiceRule{rule("192.0.2.9/24"), rule("192.0.2.8/24")}), "192.0.2.8/24"},
		"a mapped prefix":           {n.SetServices([]cats.ServiceRule{rule("::ffff:192.0.2.0/120")}), "S8"},
		"a SID twice":               {n.SetDeliveries([]Delivery{tcp4.delivery(deliverSID, 1), udp4.delivery(deliverSID, 1)}), deliverSID.String()},
		"a locator twice":           {n.SetDeliveries([]Delivery{tcp4.delivery(deliverSID, 1), tcp4.delivery(other, 1)}), other.String()},
		"a delivery by return SID":  {n.SetDeliveries([]Delivery{tcp4.delivery(returnSID, 1)}), returnSID.String()},
		"an IPv4 SID":               {n.SetDeliveries([]Delivery{tcp4.delivery(addr("192.0.2.1"), 1)}), "192.0.2.1"},
		"a return SID of delivery":  {n.SetReturnSID(deliverSID), deliverSID.String()},
		"a multicast return SID":    {n.SetReturnSID(addr("ff02::1")), "ff02::1"},
		"an IPv4 block":             {n.SetLocalBlock(prefixes("192.0.2.0/24")[0]), "192.0.2.0"},
		"an IPv4 domain":            {n.SetDomainBlock(prefixes("2001:db8:9::/48", "192.0.2.0/24")), "192.0.2.0"},
		"a domain of everything":    {n.SetDomainBlock(prefixes("::/0")), "::"},
		"an ICMP locator":           {n.SetDeliveries([]Delivery{{SID: other, Locator: cats.Locator{Protocol: 1, Address: tcp4.locator}}}), "neither tcp nor udp"},
		"hold-down without reason":  {n.HoldDown(tcp4.ingressKey("x"), cats.ReasonNone, 1), "reason"},
		"hold-down of reverse":      {n.HoldDown(Key{Kind: IngressReverse, Tuple: tcp4.reverse()}, cats.ReasonTimeout, 1), "ingress-forward"},
		"announcement of reverse":   {n.Announce(Key{Kind: EgressForward, Tuple: tcp4.reverse()}, 1), "ingress-forward"},
		"next hop with VLAN 4095":   {n.PutNextHop(1, NextHop{VLAN: 4095}), "4095"},
		"attachment without device": {n.setAttachments(t, "nosuch0", "nosuch0"), "nosuch0"},
		"two owners of a prefix":    {n.setAttachments(t, "client0", "client0"), "192.0.2.0/24"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that says %s", name, c.err, c.says)
		}
	}
	// All as before.
	n.expectMiss(t, "client0", ethernet(n.mac["client0"], clientMAC, packet{tuple: udp6.forward(), ttl: 9}.octets(t)))
	n.expectDrop(t, "core0", n.arriving(outer{ingressSource, []netip.Addr{deliverSID}, 0, 0, 9, 60},
		packet{tuple: tcp4.delivered(), ttl: 20}.octets(t)), cats.ReasonNoBinding)
	n.expectDrop(t, "core0", n.arriving(outer{ingressSource, []netip.Addr{returnSID}, 0, 0, 9, 60},
		packet{tuple: tcp4.reverse(), ttl: 20}.octets(t)), cats.ReasonNoBinding)
}

func (n *node) setAttachments(t testing.TB, ports ...string) (refused error) {
	t.Helper()
	var all []Attachment
	for i, p := range ports {
		all = append(all, Attachment{Name: fmt.Sprint("a", i), Interface: p, Prefixes: prefixes("192.0.2.0/24")})
	}
	n.in(t, func() error {
		refused = n.SetAttachments(all)
		return nil
	})
	return refused
}

// TestReplace proves that a Set method leaves what it was given and nothing else.
func TestReplace(t *testing.T) {
	n := newDomain(t)
	f := udp4
	frame := ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 64}.octets(t))
	n.expectMiss(t, "client0", frame)
	broader := cats.ServiceRule{Number: 77, CSID: "S2", Prefix: prefixes("192.0.2.96/28")[0], Protocol: cats.UDP, Port: 53}
	must(t, n.SetServices([]cats.ServiceRule{broader}))
	if m := n.expectMiss(t, "client0", frame); m.Service != 77 {
		t.Errorf("service %d, want 77", m.Service)
	}
	exact := broader
	exact.Number, exact.Prefix = 78, prefixes("192.0.2.100/32")[0]
	must(t, n.SetServices([]cats.ServiceRule{broader, exact}))
	if m := n.expectMiss(t, "client0", frame); m.Service != 78 {
		t.Errorf("service %d, want 78, of the longer prefix", m.Service)
	}
	if err := n.setAttachments(t, "core0"); err != nil {
		t.Fatal(err)
	}
	n.expectDrop(t, "client0", frame, cats.ReasonUnauthorized)
	must(t, n.SetServices(nil))
	n.expect(t, "client0", frame, xdpPass, frame)

	must(t, n.SetDeliveries([]Delivery{f.delivery(deliverSID, hopInstance)}), n.SetDeliveries(nil), n.SetReturnSID(netip.Addr{}))
	for _, sid := range []netip.Addr{addr("2001:db8:0:9::9"), returnSID} {
		in := n.arriving(outer{ingressSource, []netip.Addr{sid}, 0, 0, 9, 60}, packet{tuple: f.reverse(), ttl: 20}.octets(t))
		n.expect(t, "core0", in, xdpPass, in)
	}
	reply := ethernet(n.mac["svc0"], instanceMAC, packet{tuple: f.reverse(), ttl: 64}.octets(t))
	n.expect(t, "svc0", reply, xdpPass, reply)
}

func TestEpochs(t *testing.T) {
	n := newNode(t)
	must(t, n.RaiseEpoch(1, cats.Epoch{Term: 5, Counter: 7}), n.RaiseEpoch(1, cats.Epoch{Term: 5, Counter: 7}),
		n.RaiseEpoch(1, cats.Epoch{Term: 6}), n.RaiseEpoch(2, cats.Epoch{}))
	if err := n.RaiseEpoch(1, cats.Epoch{Term: 5, Counter: 8}); !errors.Is(err, cats.ReasonStaleEpoch) {
		t.Errorf("a lower epoch: %v, want stale-epoch", err)
	}
	want := map[cats.Shard]cats.Epoch{1: {Term: 6}, 2: {}}
	if have, err := n.Epochs(); err != nil || !maps.Equal(have, want) {
		t.Errorf("epochs %v, error %v, want %v", have, err, want)
	}
	incarnation := n.Incarnation()
	must(t, n.Close())
	n.open(t, n.config())
	if have, err := n.Epochs(); err != nil || !maps.Equal(have, want) {
		t.Errorf("after a restart: epochs %v, error %v, want %v", have, err, want)
	}
	if n.Incarnation() != incarnation {
		t.Error("a restart changed the incarnation")
	}
	must(t, n.Close(), Unload(n.pins))
	n.open(t, n.config())
	if n.Incarnation() == incarnation {
		t.Error("new maps have the incarnation of the old")
	}
	if have, err := n.Epochs(); err != nil || len(have) != 0 {
		t.Errorf("new maps: epochs %v, error %v", have, err)
	}
}
