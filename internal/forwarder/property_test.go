package forwarder_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

// world is everything around one core: a C-PS that answers late, twice or never, and a data plane that may refuse.
type world struct {
	t      *rapid.T
	core   *forwarder.Core
	limits forwarder.Limits
	now    cats.Instant
	out    forwarder.Effects
	handle uint64
	up     bool
	epoch  cats.Epoch // of the C-PS

	held      map[uint64]cats.Tuple       // packets in, not ended yet
	open      map[cats.Tuple]*asked       // flows that the core must not ask for again
	asked     map[cats.Transaction]*asked // every request ever
	confirmed map[cats.Transaction]bool   // ingress halves that the data plane has
	waiting   []forwarder.Operation       // not answered yet
	highest   cats.Epoch                  // seen by the core
	provision map[uint64]bool             // generations that wait for an answer
	operation uint64                      // latest ID
}

type asked struct {
	request cats.ServiceRequest
	first   uint64 // the packet that caused it: the flow is pending as long as that is held
	closed  bool
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, now: cats.Instant(1_000_000 * time.Second), epoch: epoch1,
		limits: forwarder.Limits{PacketsPerFlow: 3, OctetsPerFlow: 300, Pending: 6, PendingPerTenant: 5, PendingPerClient: 3}.WithDefaults(),
		held:   map[uint64]cats.Tuple{}, open: map[cats.Tuple]*asked{}, asked: map[cats.Transaction]*asked{},
		confirmed: map[cats.Transaction]bool{}, provision: map[uint64]bool{},
	}
	cfg := config("IF-1")
	cfg.Limits = w.limits
	w.core = forwarder.New(w.now, cfg, forwarder.Restored{Provisions: []*cats.Provision{provision(1, epoch1)}})
	return w
}

// step runs the core and checks everything that must hold of its effects.
func (w *world) step(in *forwarder.Events) {
	before := w.now
	next := w.core.Step(w.now, in, &w.out)
	if next <= before {
		w.t.Fatalf("the core asks to be called at %d, it is %d", next, before)
	}
	for _, j := range w.out.Journal {
		if j.Kind == forwarder.JournalEpoch {
			if j.Epoch.Compare(w.highest) <= 0 {
				w.t.Fatalf("the epoch falls from %s to %s", w.highest, j.Epoch)
			}
			w.highest = j.Epoch
		}
	}
	for _, o := range w.out.Operations {
		if w.operation++; o.ID != w.operation {
			w.t.Fatalf("operation %d after %d", o.ID, w.operation-1)
		}
		if o.Kind == forwarder.OperationInstall && o.Binding.Epoch.Compare(w.highest) < 0 {
			w.t.Fatalf("installs at epoch %s, the highest is %s", o.Binding.Epoch, w.highest)
		}
		if o.Kind == forwarder.OperationInstall && o.Half == cats.IngressHalf {
			if a := w.asked[o.Binding.Transaction]; a == nil || a.closed && !w.confirmed[o.Binding.Transaction] {
				w.t.Fatalf("installs a binding of the closed transaction %s", o.Binding.Transaction)
			}
		}
	}
	w.waiting = append(w.waiting, w.out.Operations...)
	if w.out.Provision != nil {
		w.provision[w.out.Provision.Generation] = true
	}
	w.checkPackets()
	w.checkRequests()
	w.checkBounds()
}

func (w *world) checkPackets() {
	for _, r := range w.out.Releases {
		tuple, ok := w.held[r.Handle]
		if !ok {
			w.t.Fatalf("releases packet %d, which is not held", r.Handle)
		}
		if !w.confirmed[r.Transaction] {
			w.t.Fatalf("releases packet %d before its binding is in force", r.Handle)
		}
		if a := w.asked[r.Transaction]; a.request.Key.Tuple != tuple {
			w.t.Fatalf("releases a packet of %s by the binding of %s", tuple, a.request.Key.Tuple)
		}
		delete(w.held, r.Handle)
	}
	for _, d := range w.out.Drops {
		if _, ok := w.held[d.Handle]; !ok || d.Reason == cats.ReasonNone {
			w.t.Fatalf("drops packet %d (held %v) for %q", d.Handle, ok, d.Reason)
		}
		delete(w.held, d.Handle)
	}
	for tuple, a := range w.open {
		if _, pending := w.held[a.first]; !pending {
			a.closed = true
			delete(w.open, tuple)
		}
	}
}

func (w *world) checkRequests() {
	if len(w.out.Send.Requests) > 0 && !w.up {
		w.t.Fatal("sends a request without a session")
	}
	for _, r := range w.out.Send.Requests {
		if old := w.asked[r.Transaction]; old != nil {
			if old.closed || w.out.Send.Hello == nil {
				w.t.Fatalf("asks again for %s", r.Transaction)
			}
			continue
		}
		if other := w.open[r.Key.Tuple]; other != nil {
			w.t.Fatalf("asks for %s while %s waits", r.Key.Tuple, other.request.Transaction)
		}
		a := &asked{request: r, first: w.handle}
		for handle, tuple := range w.held {
			if tuple == r.Key.Tuple {
				a.first = min(a.first, handle)
			}
		}
		w.asked[r.Transaction], w.open[r.Key.Tuple] = a, a
	}
}

func (w *world) checkBounds() {
	pending := w.core.Pending()
	tenants, clients, packets := map[string]int{}, map[netip.Addr]int{}, 0
	for _, p := range pending {
		tenants[p.Key.Tenant]++
		clients[p.Key.Tuple.Source.Addr()]++
		packets += p.Packets
		if p.Packets == 0 || p.Packets > w.limits.PacketsPerFlow || p.Octets > w.limits.OctetsPerFlow {
			w.t.Fatalf("%s holds %d packets, %d octets", p.Key, p.Packets, p.Octets)
		}
		if p.Deadline <= w.now {
			w.t.Fatalf("%s waits past its deadline", p.Key)
		}
		if tenants[p.Key.Tenant] > w.limits.PendingPerTenant || clients[p.Key.Tuple.Source.Addr()] > w.limits.PendingPerClient {
			w.t.Fatalf("too many wait: %v %v", tenants, clients)
		}
	}
	if s := w.out.Stats; len(pending) > w.limits.Pending || s.Pending != len(pending) || s.HeldPackets != packets || packets != len(w.held) {
		w.t.Fatalf("%d flows with %d packets wait, %d are held; stats %+v", len(pending), packets, len(w.held), s)
	}
}

func (w *world) flow() cats.Tuple {
	source := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, 3).Draw(w.t, "client"))}), uint16(rapid.IntRange(1, 4).Draw(w.t, "port")))
	if rapid.Bool().Draw(w.t, "udp") {
		return cats.Tuple{Protocol: cats.UDP, Source: source, Target: dnsAddr}
	}
	return cats.Tuple{Protocol: cats.TCP, Source: source, Target: serviceAddr}
}

// packets come in, some of one key.
func (w *world) arrive(*rapid.T) {
	var in forwarder.Events
	for range rapid.IntRange(1, 6).Draw(w.t, "packets") {
		w.handle++
		m := forwarder.Miss{Handle: w.handle, Attachment: "client-1", Tuple: w.flow(), Length: uint32(rapid.IntRange(40, 200).Draw(w.t, "length"))}
		if m.Tuple.Protocol == cats.TCP {
			m.Flags = rapid.SampledFrom([]forwarder.TCPFlags{forwarder.SYN, forwarder.SYN, forwarder.ACK, forwarder.RST}).Draw(w.t, "flags")
		}
		w.held[m.Handle] = m.Tuple
		in.Misses = append(in.Misses, m)
	}
	w.step(&in)
}

// answer is a message of the C-PS for a transaction it knows, however old, and sometimes of an owner that is gone.
func (w *world) answer(*rapid.T) {
	if len(w.asked) == 0 || !w.up {
		return
	}
	a := w.asked[cats.Transaction{0xb0, 0x07, 15: byte(rapid.IntRange(1, len(w.asked)).Draw(w.t, "transaction"))}]
	if a == nil {
		return
	}
	b := binding(a.request)
	b.Epoch = w.epoch
	if rapid.IntRange(0, 9).Draw(w.t, "old owner") == 0 {
		b.Epoch = cats.Epoch{Term: rapid.Uint64Range(0, w.epoch.Term).Draw(w.t, "term")}
	}
	b.Version = uint32(rapid.IntRange(1, 3).Draw(w.t, "version"))
	batch := &cats.SteeringBatch{}
	switch rapid.IntRange(0, 5).Draw(w.t, "order") {
	case 0:
		batch.Refusals = []cats.Refuse{{Transaction: b.Transaction, Epoch: b.Epoch, Reason: cats.ReasonNoCandidate}}
	case 1:
		batch.Removes = []cats.Remove{{Transaction: b.Transaction, Epoch: b.Epoch, Half: cats.IngressHalf, Reason: cats.ReasonOperator}}
	case 2:
		batch.Drains = []cats.Drain{{Transaction: b.Transaction, Epoch: b.Epoch, Half: cats.IngressHalf, Reason: cats.ReasonOperator}}
	default:
		batch.Installs = []cats.Install{{Half: cats.IngressHalf, Binding: b}}
	}
	w.step(&forwarder.Events{Steering: []*cats.SteeringBatch{batch}})
}

// settle lets the data plane answer some of what waits, in order.
func (w *world) settle(*rapid.T) {
	var in forwarder.Events
	for range rapid.IntRange(0, len(w.waiting)).Draw(w.t, "answered") {
		o := w.waiting[0]
		w.waiting = w.waiting[1:]
		r := forwarder.Result{Operation: o.ID}
		if rapid.IntRange(0, 5).Draw(w.t, "outcome") == 0 {
			r.Reason = cats.ReasonTableFull
		} else if o.Half == cats.IngressHalf {
			if o.Kind != forwarder.OperationDrain {
				w.confirmed[o.Binding.Transaction] = o.Kind == forwarder.OperationInstall
			}
		}
		in.Results = append(in.Results, r)
	}
	w.step(&in)
}

func (w *world) wait(*rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.Int64Range(1, int64(1500*time.Millisecond)).Draw(w.t, "time")))
	w.step(&forwarder.Events{Scanned: w.now})
}

func (w *world) session(*rapid.T) {
	change := rapid.SampledFrom([]forwarder.Session{forwarder.SessionUp, forwarder.SessionUp, forwarder.SessionDown}).Draw(w.t, "session")
	w.up = change == forwarder.SessionUp
	if w.up && rapid.Bool().Draw(w.t, "new owner") {
		w.epoch.Term++
	}
	w.step(&forwarder.Events{Session: change})
	if w.up != (w.out.Send.Hello != nil) {
		w.t.Fatal("a hello is the beginning of a session, and only that")
	}
	if w.up && w.out.Send.Hello.Obeyed(0) != w.highest {
		w.t.Fatalf("the hello says %s, the highest seen is %s", w.out.Send.Hello.Obeyed(0), w.highest)
	}
}

func (w *world) usage(*rapid.T) {
	var in forwarder.Events
	in.Scanned = w.now
	for _, v := range w.core.Bindings() {
		u := forwarder.Usage{Transaction: v.Binding.Transaction, Half: v.Half, LastSeen: w.now}
		u.ForwardFlags = rapid.SampledFrom([]forwarder.TCPFlags{0, 0, forwarder.FIN, forwarder.RST}).Draw(w.t, "flags")
		in.Usage = append(in.Usage, u)
	}
	w.step(&in)
}

// restart replaces the core by one that starts from its journal, with the session down and the held packets gone.
func (w *world) restart() {
	snapshot := w.core.Snapshot()
	cfg := config("IF-1")
	cfg.Limits = w.limits
	cfg.Identity = [8]byte{0xb0, 0x08}
	w.core = forwarder.New(w.now, cfg, snapshot)
	w.up = false
	clear(w.held)
	w.operation, w.waiting = 0, nil
	w.step(&forwarder.Events{})
}

func TestProperties(t *testing.T) {
	t.Run("CP-8.1-3 CP-10-2 CP-8.4-1 whatever happens in whatever order", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t)
			w.session(t)
			t.Repeat(map[string]func(*rapid.T){
				"arrive": w.arrive, "arrive again": w.arrive, "answer": w.answer, "answer again": w.answer,
				"settle": w.settle, "settle again": w.settle, "wait": w.wait, "session": w.session, "usage": w.usage,
			})
			// Nothing waits for ever.
			w.now = w.now.Add(w.limits.PendingDeadline)
			w.step(&forwarder.Events{})
			if len(w.held) != 0 {
				t.Fatalf("%d packets are held past their deadline", len(w.held))
			}
			// And nothing that ended takes up room: a new client is served at once.
			w.now = w.now.Add(w.limits.HoldDown)
			w.step(&forwarder.Events{Session: forwarder.SessionUp})
			fresh := cats.Tuple{Protocol: cats.UDP, Source: netip.MustParseAddrPort("192.0.2.77:7"), Target: dnsAddr}
			w.handle++
			w.held[w.handle], w.up = fresh, true
			w.step(&forwarder.Events{Misses: []forwarder.Miss{{Handle: w.handle, Attachment: "client-1", Tuple: fresh, Length: 60}}})
			if len(w.out.Send.Requests) != 1 || len(w.held) != 1 {
				t.Fatalf("a new flow is not served: %+v", w.out)
			}
			highest := w.highest
			w.restart()
			w.step(&forwarder.Events{Session: forwarder.SessionUp})
			if w.out.Send.Hello.Obeyed(0) != highest {
				t.Fatalf("the epoch did not outlive the restart: %s, was %s", w.out.Send.Hello.Obeyed(0), highest)
			}
		})
	})
	t.Run("equal histories give equal effects", func(t *testing.T) {
		run := func() (log string) {
			g := newRig(t)
			var in forwarder.Events
			for p := range uint16(50) {
				in.Misses = append(in.Misses, g.packet(udp(p+1), 0))
			}
			g.step(&in)
			batch := &cats.SteeringBatch{}
			for _, r := range g.requests {
				batch.Installs = append(batch.Installs, cats.Install{Half: cats.IngressHalf, Binding: binding(r)})
			}
			g.steer(batch)
			g.settle(cats.ReasonNone)
			g.session(forwarder.SessionDown)
			for range 60 {
				g.pass(time.Second)
				g.scan()
				log += fmt.Sprint(g.out)
			}
			g.session(forwarder.SessionUp)
			hello := *g.out.Send.Hello
			g.out.Send.Hello = nil
			return log + fmt.Sprint(g.out, hello)
		}
		if first, second := run(), run(); first != second {
			t.Fatal("two runs differ")
		}
	})
}
