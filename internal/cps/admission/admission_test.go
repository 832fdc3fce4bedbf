package admission

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

func key(tenant, source string) *cats.FlowKey {
	return &cats.FlowKey{Attachment: "c", Tenant: tenant, Tuple: cats.Tuple{Protocol: cats.TCP,
		Source: netip.MustParseAddrPort(source), Target: netip.MustParseAddrPort("192.0.2.100:443")}}
}

func TestPendingLimits(t *testing.T) {
	limits := &Limits{Total: 4, PerTenant: 3, PerClient: 2}
	enter := func(t *testing.T, p *Pending, k *cats.FlowKey) {
		t.Helper()
		if err := p.Enter(limits, k); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(t *testing.T, p *Pending, k *cats.FlowKey) {
		t.Helper()
		before := p.Total()
		if err := p.Enter(limits, k); !errors.Is(err, cats.ReasonOverload) {
			t.Fatalf("%v, want overload", err)
		}
		if p.Total() != before {
			t.Fatal("a refused one was counted")
		}
	}
	t.Run("per client, whatever its port", func(t *testing.T) {
		var p Pending
		enter(t, &p, key("t", "192.0.2.1:1"))
		enter(t, &p, key("t", "192.0.2.1:2"))
		refused(t, &p, key("t", "192.0.2.1:3"))
		enter(t, &p, key("t", "192.0.2.2:1"))
		p.Leave(key("t", "192.0.2.1:1"))
		enter(t, &p, key("t", "192.0.2.1:3"))
	})
	t.Run("an IPv6 client is its /64", func(t *testing.T) {
		var p Pending
		enter(t, &p, key("t", "[2001:db8::1]:1"))
		enter(t, &p, key("t", "[2001:db8::2]:1"))
		refused(t, &p, key("t", "[2001:db8::3]:1"))
		enter(t, &p, key("t", "[2001:db8:0:1::3]:1"))
	})
	t.Run("per tenant and in all", func(t *testing.T) {
		var p Pending
		for _, s := range []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"} {
			enter(t, &p, key("t", s))
		}
		refused(t, &p, key("t", "192.0.2.4:1"))
		enter(t, &p, key("u", "192.0.2.4:1"))
		refused(t, &p, key("u", "192.0.2.5:1"))
	})
}

func TestGenerations(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.10")
	check := func(g *Generations, now time.Duration, value uint16) error {
		return g.Check(cats.Instant(now), "IF-1", client, "S1", value)
	}
	t.Run("CP-8.2-1 a lower request generation is stale, an equal one a retry", func(t *testing.T) {
		g := NewGenerations(120*time.Second, 10)
		for _, v := range []uint16{5, 5, 6, 65535 / 2} {
			if err := check(g, 0, v); err != nil {
				t.Fatalf("%d: %v", v, err)
			}
		}
		if err := check(g, 0, 6); !errors.Is(err, cats.ReasonStaleState) {
			t.Fatalf("%v, want stale-state", err)
		}
	})
	t.Run("serial arithmetic wraps", func(t *testing.T) {
		g := NewGenerations(120*time.Second, 10)
		if err := errors.Join(check(g, 0, 65535), check(g, 0, 2)); err != nil {
			t.Fatal(err)
		}
		if check(g, 0, 65535) == nil {
			t.Fatal("65535 after 2 was taken")
		}
	})
	t.Run("it is forgotten after its time, which use renews", func(t *testing.T) {
		g := NewGenerations(120*time.Second, 10)
		if err := errors.Join(check(g, 0, 9), check(g, 100*time.Second, 9)); err != nil {
			t.Fatal(err)
		}
		if check(g, 219*time.Second, 1) == nil {
			t.Error("it was forgotten too early")
		}
		if err := check(g, 220*time.Second, 1); err != nil {
			t.Errorf("it was kept too long: %v", err)
		}
	})
	t.Run("each source address counts its own, also within one /64", func(t *testing.T) {
		g := NewGenerations(120*time.Second, 10)
		first, second := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
		for _, step := range []struct {
			client netip.Addr
			value  uint16
			stale  bool
		}{{first, 9, false}, {second, 1, false}, {second, 2, false}, {first, 8, true}, {second, 1, true}, {first, 10, false}} {
			if err := g.Check(0, "IF-1", step.client, "S1", step.value); errors.Is(err, cats.ReasonStaleState) != step.stale || err != nil && !step.stale {
				t.Errorf("%s, generation %d: %v", step.client, step.value, err)
			}
		}
	})
	t.Run("use does not make it grow", func(t *testing.T) {
		g := NewGenerations(120*time.Second, 10)
		for i := range 10_000 {
			if err := check(g, time.Duration(i)*time.Millisecond, 1); err != nil {
				t.Fatal(err)
			}
		}
		if len(g.entries) != 1 || len(g.queue) != 1 {
			t.Errorf("%d entries, %d queued", len(g.entries), len(g.queue))
		}
	})
	t.Run("the oldest goes when there are too many", func(t *testing.T) {
		g := NewGenerations(120*time.Second, 100)
		for i := range 10_000 {
			address := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			if err := g.Check(0, "IF-1", address, "S1", 1); err != nil {
				t.Fatal(err)
			}
		}
		if len(g.entries) > 100 || len(g.queue) > 100 {
			t.Errorf("%d entries, %d queued", len(g.entries), len(g.queue))
		}
	})
}
