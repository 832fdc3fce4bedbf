package forwarder

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/margay-net/margay/cats"
)

// identity names one half of a binding at this forwarder.
type identity struct {
	transaction cats.Transaction
	half        cats.Half
}

// phase tells how far the data plane is with a half.
type phase uint8

const (
	installing phase = iota // asked for, not confirmed: no packet may rely on it
	inForce                 // confirmed
	removing                // asked to go; its tuple is free already
)

// record is one half of a binding and what is known of its life.
type record struct {
	Record // what is in force, or being installed for the first time
	id     identity
	key    key // client-side tuple of an ingress half, service-side tuple of an egress half
	phase  phase
	next   *cats.Binding // a newer version that the data plane has not confirmed yet
	tell   bool          // the C-PS is told when it is removed
	place  int           // on the agenda

	since    cats.Instant // in force
	lastSeen cats.Instant // of a packet of either direction
	check    cats.Instant // when inspect looks at it next
	drainEnd cats.Instant // when a forwarder without C-PS removes what drains
	reported cats.Instant // counters
	counted  bool         // counters have moved since
	ending   cats.Reason  // why its life is over, before it drains
	gone     cats.Reason  // why it is removed

	forward, reverse           cats.Usage
	forwardFlags, reverseFlags TCPFlags
}

// over tells whether the flow of r has ended, so that a new SYN of its key starts a new one.
func (r *record) over() bool { return r.Draining || r.ending != cats.ReasonNone }

// awaited is an operation that the data plane has not answered.
type awaited struct {
	id      identity
	kind    OperationKind
	version uint32
}

// operate gives the data plane one thing to do.
func (c *Core) operate(kind OperationKind, r *record, b *cats.Binding) {
	c.operation++
	c.awaited[c.operation] = awaited{r.id, kind, b.Version}
	c.out.Operations = append(c.out.Operations, Operation{ID: c.operation, Kind: kind, Half: r.Half, Binding: *b, Draining: r.Draining})
}

// keyOf gives the tuple that only one half of its kind may have.
func (c *Core) keyOf(half cats.Half, b *cats.Binding) key {
	if half == cats.IngressHalf {
		return tupleKey(c.numberOf(b.Match.Attachment), b.Match.Tuple)
	}
	return tupleKey(anyAttachment, b.Reverse.Service)
}

func (c *Core) index(half cats.Half) map[key]*record {
	if half == cats.IngressHalf {
		return c.byClient
	}
	return c.byService
}

// restore takes a half that survived the last run and is in force.
func (c *Core) restore(s Record) {
	r := &record{Record: s, id: identity{s.Binding.Transaction, s.Half}, phase: inForce, place: nowhere, since: c.now, lastSeen: c.now}
	if s.Binding.Decided > 0 {
		r.since = min(c.now, s.Binding.Decided)
	}
	r.key = c.keyOf(s.Half, &s.Binding)
	c.records[r.id] = r
	c.index(s.Half)[r.key] = r
	if s.Draining {
		c.stats.Draining++
		r.drainEnd = c.now
		if s.Half == cats.EgressHalf {
			r.drainEnd = c.drainEnd(s.Half)
		}
	}
	c.lookAgain(r)
}

// install takes the order to install one half of a binding, or a newer version of it (CP sections 7.2 and 8.4).
func (c *Core) install(i *cats.Install) {
	b := &i.Binding
	if !c.fence(b.Shard, b.Epoch) {
		detail := c.staleOrder("binding", b.Transaction, b.Shard, b.Epoch)
		c.refuseInstall(i, cats.ReasonStaleEpoch, detail)
		return
	}
	if r := c.records[identity{b.Transaction, i.Half}]; r != nil {
		c.reinstall(r, i)
		return
	}
	if c.removed.has(identity{b.Transaction, i.Half}) {
		c.refuseInstall(i, cats.ReasonTimeout, "the order came after the one to remove this half")
		return
	}
	if err := c.checkInstall(i); err != nil {
		c.refuseInstall(i, cats.ReasonOf(err), err.Error())
		return
	}
	r := &record{Record: Record{Half: i.Half, Binding: *b}, id: identity{b.Transaction, i.Half}, key: c.keyOf(i.Half, b), place: nowhere}
	if old := c.index(i.Half)[r.key]; old != nil {
		c.supersede(old) // an ingress half that was confirmed too late; an egress half was refused above
	}
	c.records[r.id] = r
	c.index(i.Half)[r.key] = r
	c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalPut, Record: r.Record})
	c.operate(OperationInstall, r, b)
}

// reinstall takes a binding that is here already: the same version is answered again, a higher one replaces it.
func (c *Core) reinstall(r *record, i *cats.Install) {
	b := &i.Binding
	latest := r.Binding.Version
	if r.next != nil {
		latest = r.next.Version
	}
	switch {
	case r.phase == removing || b.Version < latest:
		c.refuseInstall(i, cats.ReasonStaleState, fmt.Sprintf("version %d of the binding came after version %d", b.Version, latest))
	case b.Version == latest:
		if r.phase == inForce && r.next == nil {
			c.report(r, cats.BindingInstalled, cats.ReasonNone, "")
		}
	case r.phase == installing:
		c.refuseInstall(i, cats.ReasonCommitFailed, fmt.Sprintf("version %d is being installed", latest))
	default:
		if err := c.checkBinding(i.Half, b); err != nil {
			c.refuseInstall(i, cats.ReasonOf(err), err.Error())
			return
		}
		if moved := moves(&r.Binding, b); moved != "" {
			c.refuseInstall(i, cats.ReasonMalformed, "a new version of a binding cannot change "+moved)
			return
		}
		next := *b
		r.next = &next
		changed := r.Record
		changed.Binding = next
		c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalPut, Record: changed})
		c.operate(OperationInstall, r, &next)
	}
}

// moves tells what a newer version of a binding changes of what stays for a flow's life: only the paths to its instance
// can be repaired (CP section 8.5). Empty: nothing.
func moves(old, b *cats.Binding) string {
	switch {
	case b.Match != old.Match:
		return fmt.Sprintf("its flow from %s to %s", old.Match, b.Match)
	case b.CSCIID != old.CSCIID:
		return fmt.Sprintf("its instance from %s to %s", old.CSCIID, b.CSCIID)
	case b.Locator != old.Locator:
		return fmt.Sprintf("its locator from %s to %s", old.Locator, b.Locator)
	case b.Egress != old.Egress || b.Attachment != old.Attachment:
		return fmt.Sprintf("its egress attachment from %s at %s to %s at %s", old.Attachment, old.Egress, b.Attachment, b.Egress)
	}
	return ""
}

// checkInstall says why a half that is new here cannot be installed.
func (c *Core) checkInstall(i *cats.Install) error {
	b := &i.Binding
	if i.Half == cats.IngressHalf {
		p := c.pending[b.Transaction]
		if p == nil {
			c.stats.LateInstalls++
			return fmt.Errorf("transaction %s is closed: %w", b.Transaction, cats.ReasonTimeout)
		}
		if b.Match != p.flow {
			return fmt.Errorf("the binding matches %s, the flow is %s: %w", b.Match, p.flow, cats.ReasonMalformed)
		}
	}
	if err := c.checkBinding(i.Half, b); err != nil {
		return err
	}
	if old := c.byService[c.keyOf(i.Half, b)]; i.Half == cats.EgressHalf && old != nil {
		return fmt.Errorf("%s is in use by transaction %s: %w", b.Reverse.Service, old.id.transaction, cats.ReasonTupleInUse)
	}
	return nil
}

// checkBinding says why a binding cannot work here: a forwarder that it does not name, halves that do not fit each
// other, no delivery rule, or a path beyond the capabilities.
func (c *Core) checkBinding(half cats.Half, b *cats.Binding) error {
	names, headPath := b.Ingress, &b.Path
	if half == cats.EgressHalf {
		names, headPath = b.Egress, &b.Reverse.Path
	}
	toClient := cats.Tuple{Protocol: b.Locator.Protocol, Source: b.Locator.Address, Target: b.Match.Tuple.Source}
	switch {
	case names != c.cfg.Name:
		return fmt.Errorf("the %s half of this binding is for %q, this is %s: %w", half, names, c.cfg.Name, cats.ReasonMalformed)
	case checkTuple(b.Match.Tuple) != nil || checkTuple(b.Reverse.Service) != nil:
		return fmt.Errorf("%s and %s: %w", b.Match, b.Reverse.Service, cats.ReasonMalformed)
	case b.Locator.Protocol != b.Match.Tuple.Protocol || b.Reverse.Service != toClient ||
		b.Reverse.Client != b.Match.Tuple.Reverse() || b.Reverse.Restore != b.Match.Tuple.Target:
		return fmt.Errorf("the reverse half of the binding does not undo its forward half: %w", cats.ReasonMalformed)
	}
	if half == cats.EgressHalf {
		if err := c.delivers(b); err != nil {
			return err
		}
	}
	return c.canPush(headPath)
}

// canPush says why this forwarder cannot be the headend of a path (CP section 8.3).
func (c *Core) canPush(p *cats.Path) error {
	can := c.cfg.Capabilities
	var needs cats.Encapsulation
	switch p.Kind {
	case cats.PathSRv6:
		needs = cats.EncapSRv6
		if len(p.Segments) == 0 || len(p.Segments) > int(can.MaxSegments) {
			return fmt.Errorf("a list of %d segments, %s pushes 1 to %d: %w", len(p.Segments), c.cfg.Name, can.MaxSegments, cats.ReasonCapabilityMismatch)
		}
	case cats.PathSRMPLS:
		needs = cats.EncapSRMPLS
	case cats.PathTunnel:
		needs = cats.EncapIPIP | cats.EncapVXLAN
	case cats.PathNative:
		needs = cats.EncapNone
	}
	if can.Encapsulations&needs == 0 {
		return fmt.Errorf("%s cannot push a path of kind %d: %w", c.cfg.Name, p.Kind, cats.ReasonCapabilityMismatch)
	}
	return nil
}

// settle takes the data plane's answer to an operation.
func (c *Core) settle(result *Result) {
	a, ok := c.awaited[result.Operation]
	if !ok {
		return
	}
	delete(c.awaited, result.Operation)
	if result.Reason != cats.ReasonNone {
		c.audit(Audit{Event: "operation-failed", Reason: result.Reason, Transaction: a.id.transaction,
			Detail: fmt.Sprintf("%s of the %s half: %s", a.kind, a.id.half, result.Detail)})
	}
	r := c.records[a.id]
	switch {
	case r == nil:
	case a.kind == OperationInstall && r.phase == installing:
		c.settleInstall(r, result)
	case a.kind == OperationInstall && r.phase == inForce && r.next != nil && r.next.Version == a.version:
		c.settleVersion(r, result)
	case a.kind == OperationRemove && r.phase == removing:
		c.settleRemove(r, result)
	}
}

// settleInstall confirms a first installation; held packets go only now (CP section 8.4).
func (c *Core) settleInstall(r *record, result *Result) {
	p := c.pending[r.id.transaction]
	if r.Half == cats.EgressHalf {
		p = nil
	}
	if result.Reason != cats.ReasonNone {
		c.stats.InstallsFailed++
		c.report(r, cats.BindingRefused, result.Reason, result.Detail)
		c.journalRemove(r)
		c.erase(r)
		if p != nil {
			c.fail(p, cats.ReasonCommitFailed, cats.ReasonCommitFailed)
		}
		return
	}
	if p == nil && r.Half == cats.IngressHalf {
		c.stats.LateInstalls++
		c.report(r, cats.BindingRefused, cats.ReasonTimeout, "the deadline passed while the binding was installed")
		c.takeOut(r, cats.ReasonTimeout)
		return
	}
	c.stats.Installed++
	r.phase, r.since, r.lastSeen = inForce, c.now, c.now
	c.lookAgain(r)
	if p != nil {
		c.release(p)
	}
	c.report(r, cats.BindingInstalled, cats.ReasonNone, "")
}

// settleVersion confirms or gives up a newer version; the older one is in force until then.
func (c *Core) settleVersion(r *record, result *Result) {
	next := r.next
	r.next = nil
	if result.Reason != cats.ReasonNone {
		c.stats.InstallsFailed++
		c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalPut, Record: r.Record})
		c.reportOf(next.Version, r, cats.BindingRefused, result.Reason, result.Detail)
		return
	}
	r.Binding = *next
	c.lookAgain(r)
	c.report(r, cats.BindingInstalled, cats.ReasonNone, "")
}

func (c *Core) settleRemove(r *record, result *Result) {
	if result.Reason != cats.ReasonNone {
		c.schedule(r, c.now.Add(time.Second)) // inspect tries again
		return
	}
	c.stats.Removed++
	if r.tell {
		c.report(r, cats.BindingRemoved, r.gone, "")
	}
	c.erase(r)
}

// drain marks a half as DRAINING: its packets pass and refresh nothing (CP section 10).
func (c *Core) drain(d *cats.Drain) {
	id := identity{d.Transaction, d.Half}
	if !c.fence(d.Shard, d.Epoch) {
		c.refuseOrder(id, c.staleOrder("drain", d.Transaction, d.Shard, d.Epoch))
		return
	}
	r := c.records[id]
	switch {
	case r == nil:
		c.reportGone(id, d.Reason)
	case r.phase == inForce:
		c.beginDraining(r, d.Reason)
	}
}

func (c *Core) beginDraining(r *record, reason cats.Reason) {
	if r.Draining {
		return
	}
	c.stats.Draining++
	r.Draining, r.Reason = true, reason
	r.drainEnd = c.drainEnd(r.Half)
	c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalPut, Record: r.Record})
	c.operate(OperationDrain, r, &r.Binding)
	c.schedule(r, r.drainEnd)
}

// drainEnd is when a forwarder without C-PS removes a half that begins to drain now. The egress waits twice as long: it
// has to outlast an ingress that began later, since the ingress's half goes first (CP section 10).
func (c *Core) drainEnd(half cats.Half) cats.Instant {
	if half == cats.EgressHalf {
		return c.now.Add(2 * c.cfg.Limits.Draining)
	}
	return c.now.Add(c.cfg.Limits.Draining)
}

// remove takes a half out by order of the C-PS.
func (c *Core) remove(o *cats.Remove) {
	id := identity{o.Transaction, o.Half}
	if !c.fence(o.Shard, o.Epoch) {
		c.refuseOrder(id, c.staleOrder("removal", o.Transaction, o.Shard, o.Epoch))
		return
	}
	c.removed.add(c.now, id)
	r := c.records[id]
	if r == nil {
		c.reportGone(id, o.Reason)
		return
	}
	r.tell = true
	if r.phase == removing {
		return
	}
	if p := c.pending[o.Transaction]; p != nil && o.Half == cats.IngressHalf {
		c.fail(p, cats.ReasonCommitFailed, cats.ReasonCommitFailed)
	}
	c.takeOut(r, o.Reason)
}

// supersede takes out the ended half of a key whose new flow begins (CP section 10).
func (c *Core) supersede(r *record) {
	r.tell = true
	c.takeOut(r, cats.ReasonSuperseded)
}

// takeOut asks the data plane to forget r and frees its tuple.
func (c *Core) takeOut(r *record, reason cats.Reason) {
	if r.Draining {
		c.stats.Draining--
	}
	r.phase, r.gone, r.next = removing, reason, nil
	c.unindex(r)
	c.schedule(r, cats.Never)
	c.journalRemove(r)
	c.operate(OperationRemove, r, &r.Binding)
}

func (c *Core) journalRemove(r *record) {
	c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalRemove, Record: r.Record})
}

func (c *Core) erase(r *record) {
	c.unindex(r)
	c.schedule(r, cats.Never)
	delete(c.records, r.id)
}

func (c *Core) unindex(r *record) {
	if index := c.index(r.Half); index[r.key] == r {
		delete(index, r.key)
	}
}

// firstHop gives the address that the packets which r sends into the network go to first.
func (r *record) firstHop() netip.Addr {
	path, plain := &r.Binding.Path, r.Binding.Locator.Address.Addr()
	if r.Half == cats.EgressHalf {
		path, plain = &r.Binding.Reverse.Path, r.Binding.Reverse.Service.Target.Addr()
	}
	if len(path.Segments) > 0 {
		return path.Segments[0]
	}
	return plain
}
