package simulation

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

// slot names one half of a binding at one forwarder.
type slot struct {
	transaction cats.Transaction
	half        cats.Half
}

// planeEntry is one half in the data plane, with what it counted.
type planeEntry struct {
	binding  cats.Binding
	draining bool
	usage    forwarder.Usage
}

// node is a forwarder: its core, which a crash takes, and what a crash of the agent leaves: journal and data plane.
type node struct {
	world       *world
	name        string
	number      byte
	incarnation uint64
	core        *forwarder.Core // nil while the agent is down
	out         forwarder.Effects
	session     *session // nil: none
	wake        cats.Instant

	records    map[slot]forwarder.Record // the journal
	epochs     map[cats.Shard]cats.Epoch
	provisions []*cats.Provision
	plane      map[slot]*planeEntry
	byKey      map[cats.FlowKey]slot // ingress halves of the plane

	held    map[uint64]bool // packets that the core has to answer
	handles uint64
}

func newNode(w *world, name string, number byte) *node {
	return &node{
		world: w, name: name, number: number,
		records: map[slot]forwarder.Record{}, epochs: map[cats.Shard]cats.Epoch{},
		plane: map[slot]*planeEntry{}, byKey: map[cats.FlowKey]slot{},
	}
}

// boot starts the agent from its journal, after it has made the data plane agree with it.
func (n *node) boot() {
	n.incarnation++
	n.world.log("%s boots with %d records", n.name, len(n.records))
	n.held = map[uint64]bool{}
	restored := forwarder.Restored{Epochs: map[cats.Shard]cats.Epoch{}, Provisions: n.provisions}
	for shard, epoch := range n.epochs {
		restored.Epochs[shard] = epoch
	}
	for _, s := range sortedSlots(n.records) {
		restored.Records = append(restored.Records, n.records[s])
		n.install(s.half, n.records[s].Binding, n.records[s].Draining)
	}
	for _, s := range sortedSlots(n.plane) {
		if _, kept := n.records[s]; !kept {
			n.remove(s)
		}
	}
	config := forwarder.Config{
		Name: n.name, BootID: "boot", Identity: [8]byte{n.number, byte(n.incarnation >> 8), byte(n.incarnation)}, LayoutVersion: cats.LayoutVersion,
		Capabilities: cats.Capabilities{Encapsulations: cats.EncapSRv6, MaxSegments: 10},
		Limits:       forwarder.Limits{UDPIdle: 8 * time.Second, UDPUnanswered: 6 * time.Second},
	}
	if n.name == ingressName {
		config.ReturnSID = returnSID
		config.Attachments = []forwarder.Attachment{{Name: attachmentName, Tenant: tenantName, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
	}
	n.core = forwarder.New(n.world.now, config, restored)
	n.step(&forwarder.Events{})
	n.connect()
	n.scan()
}

// crash ends the agent without warning and starts it again later. Packets that it held are gone.
func (n *node) crash() {
	if n.core == nil {
		return
	}
	n.world.result.Crashes++
	n.world.log("%s crashes", n.name)
	n.core = nil
	n.incarnation++
	n.disconnect()
	n.world.after(n.world.chance.between(10*time.Millisecond, 2*time.Second), n.boot)
}

func (n *node) sessionUp()   { n.step(&forwarder.Events{Session: forwarder.SessionUp}) }
func (n *node) sessionDown() { n.step(&forwarder.Events{Session: forwarder.SessionDown}) }

// step is the shell of the core: effects in their order, with a crash possible between persisting and doing.
func (n *node) step(in *forwarder.Events) {
	w := n.world
	w.result.Steps++
	next := n.core.Step(w.now, in, &n.out)
	for i := range n.out.Journal {
		n.persist(&n.out.Journal[i])
	}
	if w.faults && len(n.out.Journal) > 0 && w.chance.happens(300) {
		n.crash()
		return
	}
	n.operate()
	n.applyProvision()
	for _, r := range n.out.Releases {
		w.checkRelease(n, r)
		n.answer(r.Handle)
		w.result.Committed++
	}
	for _, d := range n.out.Drops {
		if d.Reason == cats.ReasonNone {
			w.violated("%s dropped packet %d without a reason", n.name, d.Handle)
		}
		n.answer(d.Handle)
		w.result.Refused++
	}
	if s := n.session; s != nil && !n.out.Send.IsEmpty() {
		batch := n.out.Send
		n.logSend(&batch)
		w.send(n, s, batch.Hello != nil, func() { w.cps.receive(n.name, s.number, batch) })
	}
	n.wakeAt(next)
}

func (n *node) logSend(batch *cats.ForwarderBatch) {
	if batch.Hello != nil {
		n.world.log("%s: hello with %d bindings", n.name, len(batch.Hello.Bindings))
	}
	for _, s := range batch.Statuses {
		if s.Result != cats.BindingCounters {
			n.world.log("%s: status %s %s result %d %s", n.name, s.Transaction, s.Half, s.Result, s.Reason)
		}
	}
	for _, r := range batch.Requests {
		n.world.log("%s: request %s for %s", n.name, r.Transaction, r.Key)
	}
}

// wakeAt lets the core run again at its deadline.
func (n *node) wakeAt(next cats.Instant) {
	n.wake = next
	if next == cats.Never {
		return
	}
	incarnation := n.incarnation
	n.world.at(next, func() {
		if n.core != nil && n.incarnation == incarnation && n.wake == next {
			n.step(&forwarder.Events{})
		}
	})
}

func (n *node) persist(e *forwarder.JournalEntry) {
	s := slot{e.Record.Binding.Transaction, e.Record.Half}
	switch e.Kind {
	case forwarder.JournalPut:
		n.records[s] = e.Record
	case forwarder.JournalRemove:
		delete(n.records, s)
	case forwarder.JournalEpoch:
		n.world.checkEpoch(n, e.Shard, e.Epoch)
		n.epochs[e.Shard] = e.Epoch
	case forwarder.JournalProvision:
		n.provisions = slices.DeleteFunc(slices.Clone(n.provisions), func(p *cats.Provision) bool { return p.Shard == e.Shard })
		if e.Provision != nil {
			n.provisions = append(n.provisions, e.Provision)
		}
	}
}

// operate carries out the data-plane operations and answers them a little later.
func (n *node) operate() {
	var results []forwarder.Result
	for _, o := range n.out.Operations {
		result := forwarder.Result{Operation: o.ID}
		s := slot{o.Binding.Transaction, o.Half}
		switch o.Kind {
		case forwarder.OperationInstall:
			n.world.checkInstall(n, o)
			if n.world.faults && n.plane[s] == nil && n.world.chance.happens(60) {
				result.Reason = cats.ReasonTableFull
				break
			}
			n.install(o.Half, o.Binding, false)
		case forwarder.OperationDrain:
			if e := n.plane[s]; e != nil {
				e.draining = true
			}
		case forwarder.OperationRemove:
			n.remove(s)
		}
		n.world.log("%s: %s %s %s", n.name, o.Kind, s, result.Reason)
		results = append(results, result)
	}
	n.later(results, nil)
}

func (n *node) applyProvision() {
	p := n.out.Provision
	if p == nil {
		return
	}
	result := &forwarder.ProvisionResult{Generation: p.Generation}
	for _, d := range p.Deliveries {
		result.Deliveries = append(result.Deliveries, d.CSCIID)
	}
	n.later(nil, result)
}

func (n *node) later(results []forwarder.Result, provisioned *forwarder.ProvisionResult) {
	if len(results) == 0 && provisioned == nil {
		return
	}
	incarnation := n.incarnation
	n.world.after(n.world.chance.between(time.Microsecond, 2*time.Millisecond), func() {
		if n.core != nil && n.incarnation == incarnation {
			n.step(&forwarder.Events{Results: results, Provisioned: provisioned})
		}
	})
}

func (n *node) install(half cats.Half, b cats.Binding, draining bool) {
	s := slot{b.Transaction, half}
	e := n.plane[s]
	if e == nil {
		e = &planeEntry{usage: forwarder.Usage{Transaction: b.Transaction, Half: half, LastSeen: n.world.now}}
		n.plane[s] = e
	}
	e.binding, e.draining = b, draining
	if half == cats.IngressHalf {
		n.byKey[b.Match] = s
	}
}

func (n *node) remove(s slot) {
	e := n.plane[s]
	if e == nil {
		return
	}
	delete(n.plane, s)
	if s.half == cats.IngressHalf && n.byKey[e.binding.Match] == s {
		delete(n.byKey, e.binding.Match)
	}
}

// scan reports the usage of the data plane once a second.
func (n *node) scan() {
	incarnation := n.incarnation
	n.world.after(time.Second, func() {
		if n.core == nil || n.incarnation != incarnation {
			return
		}
		var usage []forwarder.Usage
		for _, s := range sortedSlots(n.plane) {
			usage = append(usage, n.plane[s].usage)
		}
		n.step(&forwarder.Events{Usage: usage, Scanned: n.world.now})
		if n.core != nil && n.incarnation == incarnation {
			n.scan()
		}
	})
}

// miss hands a packet up, as the ring buffer does.
func (n *node) miss(key cats.FlowKey) {
	if n.core == nil {
		return // nobody reads the ring buffer; the client sends again
	}
	n.handles++
	n.held[n.handles] = true
	n.step(&forwarder.Events{Misses: []forwarder.Miss{{Handle: n.handles, Attachment: key.Attachment, Tuple: key.Tuple, Length: 100}}})
}

func (n *node) answer(handle uint64) {
	if !n.held[handle] {
		n.world.violated("%s answered packet %d, which it does not hold", n.name, handle)
	}
	delete(n.held, handle)
}

func (s slot) String() string { return fmt.Sprintf("%s %s", s.transaction, s.half) }
