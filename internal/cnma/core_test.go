package cnma

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-net/margay/cats"
)

const (
	refresh = 10 * time.Second
	start   = cats.Instant(1_800_000_000_000_000_000)
)

func topology(delay uint32) Topology {
	return Topology{
		Source: "static",
		Nodes:  []cats.Node{{Name: "R1", SID: netip.MustParseAddr("2001:db8:0:f1::1")}, {Name: "IF-1"}},
		Links:  []cats.Link{{From: "R1", To: "IF-1", DelayUS: delay}, {From: "IF-1", To: "R1", DelayUS: delay}},
	}
}

// bench is a core with a clock.
type bench struct {
	t    *testing.T
	core *Core
	now  cats.Instant
	out  Effects
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, core: New(Config{Name: "cnma-1", Epoch: 5, Refresh: refresh}), now: start}
}

// step takes events and gives what was sent as "peer KIND seq/base", and the time until the next step.
func (b *bench) step(in Events) (string, time.Duration) {
	next := b.core.Step(b.now, &in, &b.out)
	var sent []string
	for _, s := range b.out.Sends {
		sent = append(sent, fmt.Sprintf("%s %s %d/%d", s.Peer, s.Update.Kind, s.Update.Sequence, s.Update.Base))
	}
	if next == cats.Never {
		return strings.Join(sent, ", "), never
	}
	return strings.Join(sent, ", "), next.Sub(b.now)
}

func (b *bench) want(what string, in Events, want string, wantNext time.Duration) {
	b.t.Helper()
	got, next := b.step(in)
	if got != want || next != wantNext {
		b.t.Errorf("%s: sent %q, next in %s; want %q, next in %s", what, got, next, want, wantNext)
	}
}

func said(peer string, session uint64, kind cats.FeedbackKind, epoch, sequence uint64) Events {
	return Events{Sessions: []SessionEvent{{Peer: peer, Session: session, Feedback: cats.Feedback{Kind: kind, Epoch: epoch, Sequence: sequence}}}}
}

func hello(session, epoch, sequence uint64) Events {
	return said("cps-1", session, cats.FeedbackHello, epoch, sequence)
}

func reports(t Topology) Events { return Events{Topologies: []Topology{t}} }

var closed = Events{Sessions: []SessionEvent{{Peer: "cps-1", Session: 1, Closed: true}}}

const never = time.Duration(-1)

func TestFirstUpdate(t *testing.T) {
	b := newBench(t)
	b.want("a C-PS before the topology", hello(1, 0, 0), "", never)
	b.want("the topology", reports(topology(500)), "cps-1 FULL 1/0", refresh)
	got := b.out.Sends[0].Update
	want := cats.NetworkUpdate{
		UpdateHeader: cats.UpdateHeader{Source: "cnma-1", Epoch: 5, Sequence: 1, Timestamp: start.Wall(), Kind: cats.UpdateFull, TTL: 30 * time.Second},
		Nodes:        []cats.Node{{Name: "IF-1"}, {Name: "R1", SID: netip.MustParseAddr("2001:db8:0:f1::1")}},
		Links:        []cats.Link{{From: "IF-1", To: "R1", DelayUS: 500}, {From: "R1", To: "IF-1", DelayUS: 500}},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("update (-want +got):\n%s", d)
	}
}

// connected is a bench whose C-PS was sent its first FULL.
func connected(t *testing.T) *bench {
	b := newBench(t)
	b.step(reports(topology(500)))
	b.want("hello", hello(1, 0, 0), "cps-1 FULL 1/0", refresh)
	return b
}

func TestRefreshKeepsAlive(t *testing.T) {
	b := connected(t)
	b.now = b.now.Add(refresh - 1)
	b.want("just before", Events{}, "", 1)
	b.now = b.now.Add(1)
	b.want("10 s", Events{}, "cps-1 REFRESH 2/1", refresh)
	if u := b.out.Sends[0].Update; u.Nodes != nil || u.Links != nil || u.TTL != 3*refresh {
		t.Errorf("refresh %+v", u)
	}
	b.now = b.now.Add(refresh + time.Second)
	b.want("late", Events{}, "cps-1 REFRESH 3/2", refresh)
}

func TestChangeIsSentAtOnce(t *testing.T) {
	b := connected(t)
	b.now = b.now.Add(time.Millisecond)
	b.want("change", reports(topology(900)), "cps-1 FULL 2/0", refresh)
	if b.core.Generation() != 2 || b.out.Sends[0].Update.Links[0].DelayUS != 900 {
		t.Errorf("generation %d, links %v", b.core.Generation(), b.out.Sends[0].Update.Links)
	}
	same := topology(900)
	slices.Reverse(same.Nodes)
	b.now = b.now.Add(time.Second)
	b.want("the same in another order", reports(same), "", refresh-time.Second)
	if b.core.Generation() != 2 {
		t.Errorf("generation %d after the same topology again, want 2", b.core.Generation())
	}
}

func TestReconnection(t *testing.T) {
	for _, c := range []struct {
		name            string
		epoch, sequence uint64
		want            string
	}{
		{"kept everything", 5, 2, "cps-1 REFRESH 3/2"},
		{"missed the last refresh", 5, 1, "cps-1 REFRESH 3/1"},
		{"kept nothing", 0, 0, "cps-1 FULL 3/0"},
		{"kept an earlier run's", 4, 9, "cps-1 FULL 3/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := connected(t)
			b.now = b.now.Add(refresh)
			b.step(Events{})
			b.want("closed", closed, "", never)
			b.now = b.now.Add(time.Minute)
			b.want("silent while closed", Events{}, "", never)
			b.want("hello", hello(2, c.epoch, c.sequence), c.want, refresh)
		})
	}
	t.Run("the topology changed meanwhile", func(t *testing.T) {
		b := connected(t)
		b.step(closed)
		b.want("change", reports(topology(1)), "", never)
		b.want("hello", hello(2, 5, 1), "cps-1 FULL 2/0", refresh)
	})
	t.Run("the FULL was lost", func(t *testing.T) {
		b := connected(t)
		b.step(reports(topology(1))) // FULL 2
		b.step(closed)
		b.want("hello", hello(2, 5, 1), "cps-1 FULL 3/0", refresh)
	})
	t.Run("a new session replaces the old one", func(t *testing.T) {
		b := connected(t)
		b.want("hello", hello(2, 5, 1), "cps-1 REFRESH 2/1", refresh)
		b.want("the end of the old one", closed, "", refresh)
		b.want("a word of the old one", said("cps-1", 1, cats.FeedbackNeedFull, 5, 1), "", refresh)
	})
}

// A C-PS that has seen a later run of this agent would discard everything: its state was lost, and it starts above.
func TestLostEpoch(t *testing.T) {
	for name, had := range map[string]cats.Feedback{"later run": {Epoch: 8, Sequence: 3}, "further in this run": {Epoch: 5, Sequence: 3}} {
		t.Run(name, func(t *testing.T) {
			b := connected(t)
			b.step(said("cps-2", 1, cats.FeedbackHello, 0, 0))
			b.step(closed)
			b.want("hello", hello(2, had.Epoch, had.Sequence), "cps-1 FULL 1/0, cps-2 FULL 2/0", refresh)
			want := had.Epoch + 1
			if b.out.Epoch != want || b.out.Sends[0].Update.Epoch != want {
				t.Errorf("epoch %d to be stored and %d sent, want %d", b.out.Epoch, b.out.Sends[0].Update.Epoch, want)
			}
			if b.step(Events{}); b.out.Epoch != 0 {
				t.Errorf("epoch %d is to be stored again", b.out.Epoch)
			}
		})
	}
}

func TestImpossibleEpoch(t *testing.T) {
	b := connected(t)
	b.want("hello", hello(2, 1<<64-1, 3), "cps-1 FULL 2/0", refresh)
	if b.out.Epoch != 0 || b.out.Sends[0].Update.Epoch != 5 {
		t.Errorf("epoch %d to be stored, %d sent; want none, 5", b.out.Epoch, b.out.Sends[0].Update.Epoch)
	}
}

func TestAskedForFull(t *testing.T) {
	for _, kind := range []cats.FeedbackKind{cats.FeedbackNeedFull, cats.FeedbackQuery} {
		t.Run(kind.String(), func(t *testing.T) {
			b := connected(t)
			b.now = b.now.Add(5 * time.Second)
			b.want("asked", said("cps-1", 1, kind, 5, 0), "cps-1 FULL 2/0", refresh)
			b.want("asked again", said("cps-1", 1, kind, 5, 0), "", fullGap)
			b.now = b.now.Add(fullGap)
			b.want("a second later", Events{}, "cps-1 FULL 3/0", refresh)
		})
	}
	t.Run("refused", func(t *testing.T) {
		b := connected(t)
		b.now = b.now.Add(time.Second)
		b.want("refused", said("cps-1", 1, cats.FeedbackRefused, 5, 1), "", refresh-time.Second)
		b.now = b.now.Add(refresh - time.Second)
		b.want("when a refresh is due", Events{}, "cps-1 FULL 2/0", refresh)
	})
	t.Run("applied", func(t *testing.T) {
		b := connected(t)
		b.want("applied", said("cps-1", 1, cats.FeedbackApplied, 5, 1), "", refresh)
	})
	t.Run("without a session", func(t *testing.T) {
		b := newBench(t)
		b.step(reports(topology(1)))
		b.want("no hello", said("cps-1", 1, cats.FeedbackNeedFull, 0, 0), "", never)
	})
}

func TestSeveralPeers(t *testing.T) {
	b := connected(t)
	b.now = b.now.Add(4 * time.Second)
	b.want("a second C-PS", said("cps-0", 1, cats.FeedbackHello, 0, 0), "cps-0 FULL 2/0", 6*time.Second)
	b.now = b.now.Add(6 * time.Second)
	b.want("refresh of the first", Events{}, "cps-1 REFRESH 3/1", 4*time.Second)
	b.now = b.now.Add(4 * time.Second)
	b.want("refresh of the second", Events{}, "cps-0 REFRESH 4/2", 6*time.Second)
	b.want("change", reports(topology(1)), "cps-0 FULL 5/0, cps-1 FULL 6/0", refresh)
}

func TestSeveralSources(t *testing.T) {
	b := connected(t)
	east := Topology{Source: "east", Nodes: []cats.Node{{Name: "R1"}, {Name: "EF-1"}}, Links: []cats.Link{{From: "R1", To: "EF-1", DelayUS: 7}}}
	b.want("another source", reports(east), "cps-1 FULL 2/0", refresh)
	u := b.out.Sends[0].Update
	if len(u.Nodes) != 3 || len(u.Links) != 3 || !u.Nodes[2].SID.IsValid() {
		t.Errorf("nodes %v, links %v", u.Nodes, u.Links)
	}
	for _, c := range []struct {
		name   string
		change func(*Topology)
		reason cats.Reason
		want   string
	}{
		{"node twice", func(t *Topology) { t.Nodes = append(t.Nodes, cats.Node{Name: "EF-1"}) }, cats.ReasonDuplicate, "node EF-1 is given twice"},
		{"node", func(t *Topology) { t.Nodes[1].SID = netip.MustParseAddr("ff02::1") }, cats.ReasonMalformed, "node EF-1: SID ff02::1"},
		{"SID of two nodes", func(t *Topology) { t.Nodes[1].SID = netip.MustParseAddr("2001:db8:0:f1::1") }, cats.ReasonDuplicate, "node R1: SID 2001:db8:0:f1::1 is also that of EF-1"},
		{"two SIDs of a node", func(t *Topology) { t.Nodes[0].SID = netip.MustParseAddr("2001:db8::2") }, cats.ReasonIdentityConflict, "node R1: SID 2001:db8::2 from east, but 2001:db8:0:f1::1 from static"},
		{"link twice", func(t *Topology) { t.Links[0].To = "IF-1" }, cats.ReasonDuplicate, "link R1 -> IF-1 is given by east and by static"},
		{"unknown node", func(t *Topology) { t.Links[0].To = "EF-9" }, cats.ReasonMalformed, "link R1 -> EF-9: node EF-9 is not in the topology"},
		{"link", func(t *Topology) { t.Links[0].DelayUS = 0 }, cats.ReasonRange, "link R1 -> EF-1: has no delay"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := Topology{Source: "east", Nodes: slices.Clone(east.Nodes), Links: slices.Clone(east.Links)}
			c.change(&bad)
			if sent, _ := b.step(reports(bad)); sent != "" || b.core.Generation() != 2 {
				t.Errorf("sent %q at generation %d", sent, b.core.Generation())
			}
			if len(b.out.Refusals) != 1 || b.out.Refusals[0].Source != "east" {
				t.Fatalf("refusals %+v", b.out.Refusals)
			}
			if err := b.out.Refusals[0].Err; !errors.Is(err, c.reason) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want reason %s, text %q", err, c.reason, c.want)
			}
		})
	}
	if b.step(Events{}); len(b.out.Refusals) != 0 {
		t.Error("a refusal is told twice")
	}
}
