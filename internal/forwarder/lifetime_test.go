package forwarder_test

import (
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

// seen gives what the data plane counted for the ingress half of b until now.
func (g *rig) seen(b cats.Binding, forward, reverse uint64, forwardFlags, reverseFlags forwarder.TCPFlags) forwarder.Usage {
	half := cats.IngressHalf
	if b.Ingress != "IF-1" {
		half = cats.EgressHalf
	}
	return forwarder.Usage{
		Transaction: b.Transaction, Half: half, LastSeen: g.now,
		Forward: cats.Usage{Packets: forward, Octets: 100 * forward}, Reverse: cats.Usage{Packets: reverse, Octets: 100 * reverse},
		ForwardFlags: forwardFlags, ReverseFlags: reverseFlags,
	}
}

func TestIdle(t *testing.T) {
	for _, c := range []struct {
		name   string
		tuple  cats.Tuple
		idle   time.Duration // of the binding
		usage  func(*rig, cats.Binding) forwarder.Usage
		expect time.Duration
	}{
		{"TCP before a reply", tcp(1), 0, nil, 30 * time.Second},
		{"TCP established", tcp(1), 0, func(g *rig, b cats.Binding) forwarder.Usage { return g.seen(b, 2, 1, 0, 0) }, 2*time.Hour + 4*time.Minute},
		{"TCP established, by service", tcp(1), time.Minute, func(g *rig, b cats.Binding) forwarder.Usage { return g.seen(b, 2, 1, 0, 0) }, time.Minute},
		{"TCP closing", tcp(1), 0, func(g *rig, b cats.Binding) forwarder.Usage { return g.seen(b, 2, 1, forwarder.FIN, 0) }, 10 * time.Second},
		{"UDP before a reply", udp(1), 0, nil, 30 * time.Second},
		{"UDP", udp(1), 0, func(g *rig, b cats.Binding) forwarder.Usage { return g.seen(b, 2, 1, 0, 0) }, 300 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			_, r := g.open(c.tuple)
			b := binding(r)
			b.Idle = c.idle
			g.steer(installBatch(cats.IngressHalf, b))
			g.settle(cats.ReasonNone)
			if c.usage != nil {
				g.scan(c.usage(g, b))
			}
			g.forget()
			g.scanFor(c.expect - time.Second)
			if s, ok := g.status(b.Transaction); ok && s.Result == cats.BindingEnding {
				t.Fatal("it ended early")
			}
			g.scanFor(3 * time.Second)
			g.wantStatus(b.Transaction, cats.BindingEnding, cats.ReasonIdle)
		})
	}
	t.Run("packets of either direction refresh", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(udp(1))
		for i := range uint64(20) {
			g.scanFor(29 * time.Second)
			g.scan(g.seen(b, 1, i+1, 0, 0))
		}
		if s, ok := g.status(b.Transaction); ok && s.Result != cats.BindingCounters {
			t.Fatal(show(s, ok))
		}
	})
	t.Run("silence counts only as far as the data plane was read", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(udp(1))
		g.pass(40 * time.Second)
		if s, ok := g.status(b.Transaction); ok {
			t.Fatal(show(s, ok))
		}
		g.scan(g.seen(b, 2, 0, 0, 0))
		g.scanFor(29 * time.Second)
		if s, ok := g.status(b.Transaction); ok && s.Result == cats.BindingEnding {
			t.Fatal(show(s, ok))
		}
	})
}

func TestHard(t *testing.T) {
	g := newRig(t)
	_, r := g.open(udp(1))
	b := binding(r)
	b.Hard = time.Minute
	g.steer(installBatch(cats.IngressHalf, b))
	g.settle(cats.ReasonNone)
	for range 6 {
		g.scan(g.seen(b, 1, 1, 0, 0))
		g.pass(10 * time.Second)
	}
	g.wantStatus(b.Transaction, cats.BindingEnding, cats.ReasonHard)
}

func TestFinished(t *testing.T) {
	for _, c := range []struct {
		name             string
		forward, reverse forwarder.TCPFlags
		want             bool
	}{
		{"FIN both ways", forwarder.FIN, forwarder.FIN, true},
		{"FIN one way", forwarder.FIN, 0, false},
		{"RST of the client", forwarder.RST, 0, true},
		{"RST of the instance", 0, forwarder.RST, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			b := g.establish(tcp(1))
			g.scan(g.seen(b, 3, 3, c.forward, c.reverse))
			g.scanFor(3 * time.Second) // nothing follows an RST that counts
			s, ok := g.status(b.Transaction)
			if got := ok && s.Result == cats.BindingEnding && s.Reason == cats.ReasonFinished; got != c.want {
				t.Fatal(show(s, ok))
			}
			if c.want && (s.Forward.Packets != 3 || s.Reverse.Octets != 300) {
				t.Fatalf("counters %+v %+v", s.Forward, s.Reverse)
			}
		})
	}
	t.Run("an RST that packets follow ends nothing", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(1))
		for i := range uint64(20) {
			g.scan(g.seen(b, 3+i, 3+i, forwarder.RST, 0))
			g.pass(time.Second)
		}
		if s, ok := g.status(b.Transaction); ok && s.Result == cats.BindingEnding {
			t.Fatal(show(s, ok))
		}
	})
	t.Run("answers alone do not make a TCP flow established", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(1))
		g.scan(g.seen(b, 1, 6, 0, 0))
		g.scanFor(40 * time.Second)
		g.wantStatus(b.Transaction, cats.BindingEnding, cats.ReasonIdle)
	})
	t.Run("FIN both ways in two scans", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(1))
		g.scan(g.seen(b, 3, 3, forwarder.FIN, 0))
		g.scan(g.seen(b, 3, 4, 0, forwarder.FIN))
		g.wantStatus(b.Transaction, cats.BindingEnding, cats.ReasonFinished)
	})
}

func TestDraining(t *testing.T) {
	end := func(g *rig, b cats.Binding) {
		g.scan(g.seen(b, 3, 3, forwarder.FIN, forwarder.FIN))
	}
	drain := func(b cats.Binding) *cats.SteeringBatch {
		return &cats.SteeringBatch{Drains: []cats.Drain{{Transaction: b.Transaction, Epoch: epoch1, Half: cats.IngressHalf, Reason: cats.ReasonFinished}}}
	}
	t.Run("with a session the C-PS orders drain and removal", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(1))
		end(g, b)
		if len(g.unanswered) != 0 {
			t.Fatalf("drained alone: %+v", g.unanswered)
		}
		g.steer(drain(b))
		if len(g.unanswered) != 1 || g.unanswered[0].Kind != forwarder.OperationDrain {
			t.Fatalf("operations %+v", g.unanswered)
		}
		g.settle(cats.ReasonNone)
		if v := g.core.Bindings(); len(v) != 1 || !v[0].Draining || v[0].Reason != cats.ReasonFinished {
			t.Fatalf("bindings %+v", v)
		}
		g.pass(time.Minute)
		if len(g.unanswered) != 0 {
			t.Fatalf("removed alone: %+v", g.unanswered)
		}
	})
	t.Run("an end that is not answered is reported again", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(1))
		end(g, b)
		g.forget()
		g.pass(5 * time.Second)
		g.wantStatus(b.Transaction, cats.BindingEnding, cats.ReasonFinished)
	})
	t.Run("without a session it drains and removes alone, and reports later", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(1))
		g.session(forwarder.SessionDown)
		end(g, b)
		g.settle(cats.ReasonNone)
		if v := g.core.Bindings(); len(v) != 1 || !v[0].Draining {
			t.Fatalf("bindings %+v", v)
		}
		g.pass(5 * time.Second)
		g.settle(cats.ReasonNone)
		if v := g.core.Bindings(); len(v) != 0 || len(g.statuses) != 0 {
			t.Fatalf("bindings %+v, statuses %+v", v, g.statuses)
		}
		g.session(forwarder.SessionUp)
		if len(g.out.Send.Hello.Bindings) != 0 {
			t.Fatalf("hello %+v", g.out.Send.Hello.Bindings)
		}
		g.wantStatus(b.Transaction, cats.BindingRemoved, cats.ReasonFinished)
	})
	t.Run("an end that the C-PS did not live to answer is handled alone", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(1))
		end(g, b)
		g.session(forwarder.SessionDown)
		if len(g.unanswered) != 1 || g.unanswered[0].Kind != forwarder.OperationDrain {
			t.Fatalf("operations %+v", g.unanswered)
		}
		g.settle(cats.ReasonNone)
		g.session(forwarder.SessionUp)
		g.wantStatus(b.Transaction, cats.BindingEnding, cats.ReasonFinished)
	})
	t.Run("the egress leaves ends to the ingress while there is a session", func(t *testing.T) {
		g := newRig(t)
		b := g.egressBinding(1, 51000)
		g.steer(installBatch(cats.EgressHalf, b))
		g.settle(cats.ReasonNone)
		g.forget()
		g.scan(g.seen(b, 3, 3, forwarder.FIN, forwarder.FIN))
		g.pass(time.Minute)
		if s, ok := g.status(b.Transaction); ok && s.Result != cats.BindingCounters || len(g.unanswered) != 0 {
			t.Fatal(show(s, ok))
		}
		g.session(forwarder.SessionDown)
		if len(g.unanswered) != 1 || g.unanswered[0].Kind != forwarder.OperationDrain {
			t.Fatalf("operations %+v", g.unanswered)
		}
	})
	t.Run("a new SYN of an ended key begins a new flow", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(1))
		end(g, b)
		g.steer(drain(b))
		g.settle(cats.ReasonNone)
		g.wantReleased(g.arrive(tcp(1), forwarder.ACK), b.Transaction)
		h, r := g.open(tcp(1))
		g.wantHeld(h)
		if r.Transaction == b.Transaction || len(g.unanswered) != 1 || g.unanswered[0].Kind != forwarder.OperationRemove {
			t.Fatalf("request %+v, operations %+v", r, g.unanswered)
		}
		g.settle(cats.ReasonNone)
		g.wantStatus(b.Transaction, cats.BindingRemoved, cats.ReasonSuperseded)
		g.steer(installBatch(cats.IngressHalf, binding(r)))
		g.settle(cats.ReasonNone)
		g.wantReleased(h, r.Transaction)
	})
	t.Run("a draining half stays so over a restart", func(t *testing.T) {
		g := newRig(t)
		b := g.establish(tcp(1))
		g.steer(drain(b))
		h := start(t, config("IF-1"), g.core.Snapshot())
		h.pass(5 * time.Second)
		if len(h.unanswered) != 1 || h.unanswered[0].Kind != forwarder.OperationRemove {
			t.Fatalf("operations %+v", h.unanswered)
		}
	})
}

func TestPathStatus(t *testing.T) {
	g := newRig(t)
	b := g.establish(tcp(1))
	g.step(&forwarder.Events{Paths: []forwarder.PathChange{{Segment: transitSID, Detail: "no route to it"}}})
	s, ok := g.status(b.Transaction)
	if !ok || s.Result != cats.BindingCounters || s.PathUp || s.Detail != "no route to it" {
		t.Fatal(show(s, ok))
	}
	g.forget()
	g.step(&forwarder.Events{Paths: []forwarder.PathChange{{Segment: transitSID, Detail: "no route to it"}, {Segment: attachSID, Up: true}}})
	if len(g.statuses) != 0 {
		t.Fatalf("told again: %+v", g.statuses)
	}
	g.step(&forwarder.Events{Paths: []forwarder.PathChange{{Segment: transitSID, Up: true}}})
	if s, ok := g.status(b.Transaction); !ok || !s.PathUp {
		t.Fatal(show(s, ok))
	}
}

func TestCounterReports(t *testing.T) {
	g := newRig(t)
	b := g.establish(udp(1))
	for i := range uint64(25) {
		g.pass(time.Second)
		g.scan(g.seen(b, i+1, i+1, 0, 0))
	}
	if len(g.statuses) != 2 {
		t.Fatalf("%d reports in 25 s, want one every 10 s", len(g.statuses))
	}
	if s := g.statuses[1]; s.Result != cats.BindingCounters || s.Forward.Packets < 10 || !s.PathUp {
		t.Fatalf("report %+v", s)
	}
}

// A short flow that falls silent is reported all the same, once, within the interval.
func TestCountersOfSilentFlow(t *testing.T) {
	g := newRig(t)
	b := g.establish(udp(51000))
	g.forget()
	g.scan(g.seen(b, 3, 3, 0, 0))
	g.scanFor(30 * time.Second)
	var reports []cats.BindingStatus
	for _, s := range g.statuses {
		if s.Result == cats.BindingCounters {
			reports = append(reports, s)
		}
	}
	if len(reports) != 1 || reports[0].Forward.Packets != 3 || reports[0].Reverse.Packets != 3 {
		t.Fatalf("want one report of 3 and 3 packets, have %+v", reports)
	}
}
