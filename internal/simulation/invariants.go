package simulation

import (
	"bytes"
	"maps"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

// sortedSlots gives the keys of a map in an order that does not depend on chance.
func sortedSlots[V any](m map[slot]V) []slot {
	return slices.SortedFunc(maps.Keys(m), func(a, b slot) int {
		if c := bytes.Compare(a.transaction[:], b.transaction[:]); c != 0 {
			return c
		}
		return int(a.half) - int(b.half)
	})
}

// checkInstall: one key has one instance for a binding's life. A key that carries packets is not given to another
// transaction before its binding has begun to drain, and a transaction never changes its instance (CP-3-1, CP-8.5-3). A
// half that an earlier owner of the shard left uncommitted does not count: it is being undone.
func (w *world) checkInstall(n *node, o forwarder.Operation) {
	if o.Half == cats.IngressHalf {
		if s, found := n.byKey[o.Binding.Match]; found && s.transaction != o.Binding.Transaction && !n.plane[s].draining {
			w.violated("%s gives %s to transaction %s while %s carries it", n.name, o.Binding.Match, o.Binding.Transaction, s.transaction)
		}
	}
	for _, other := range w.forwarders {
		for _, half := range []cats.Half{cats.IngressHalf, cats.EgressHalf} {
			e := other.plane[slot{o.Binding.Transaction, half}]
			if e != nil && e.binding.Epoch == o.Binding.Epoch && (e.binding.CSCIID != o.Binding.CSCIID || e.binding.Locator != o.Binding.Locator) {
				w.violated("transaction %s is at %s in %s and at %s in %s", o.Binding.Transaction, e.binding.CSCIID, other.name, o.Binding.CSCIID, n.name)
			}
		}
	}
}

// checkRelease: nothing is released before both directions are committed at both forwarders (CP-7.2-1, CP-8.4-1).
func (w *world) checkRelease(n *node, r forwarder.Release) {
	if n.plane[slot{r.Transaction, cats.IngressHalf}] == nil {
		w.violated("%s released packet %d of %s without its own half", n.name, r.Handle, r.Transaction)
	}
	w.checkEgressHalf(n.plane[slot{r.Transaction, cats.IngressHalf}])
}

// checkCarried: an established flow goes where it went before, and its egress has the other half (CP-8.5-3).
func (w *world) checkCarried(e *planeEntry) {
	b := &e.binding
	if before, known := w.clients.carried[b.Transaction]; known && before != b.CSCIID {
		w.violated("transaction %s moved from %s to %s", b.Transaction, before, b.CSCIID)
	}
	w.clients.carried[b.Transaction] = b.CSCIID
	w.checkEgressHalf(e)
}

func (w *world) checkEgressHalf(e *planeEntry) {
	if e == nil {
		return
	}
	for _, n := range w.forwarders {
		if n.name == e.binding.Egress && n.plane[slot{e.binding.Transaction, cats.EgressHalf}] != nil {
			return
		}
	}
	w.violated("transaction %s carries packets without its half at %s", e.binding.Transaction, e.binding.Egress)
}

// checkAdmissions: at each admission the candidate is reported with slots, healthy enough, and the flows that hold its
// slots are no more than it reported (CP-5-2).
func (w *world) checkAdmissions(c *controller) {
	for i := range c.out.Steering {
		for _, install := range c.out.Steering[i].Batch.Installs {
			b := &install.Binding
			if _, known := c.admitted[b.Transaction]; install.Half == cats.IngressHalf || known {
				continue
			}
			c.admitted[b.Transaction] = b.CSCIID
			w.result.Admitted++
			if b.Ingress == b.Egress {
				w.result.Local++
			}
			w.checkCandidate(c, b)
		}
	}
}

func (w *world) checkCandidate(c *controller, b *cats.Binding) {
	for _, s := range c.sites {
		if s.csci != b.CSCIID {
			continue
		}
		if !s.known || s.told.Metrics.GAS == 0 || s.told.Health != cats.Healthy && s.told.Health != cats.Degraded {
			w.violated("%s was admitted to %s, known %t, GAS %d, health %s", b.Transaction, s.csci, s.known, s.told.Metrics.GAS, s.told.Health)
		}
		holders := 0
		for _, f := range c.core.Flows(w.now) {
			if f.Binding.CSCIID == s.csci && (f.State == cats.DestinationSelected || f.State == cats.BindingReady || f.State == cats.Active) {
				holders++
			}
		}
		if holders > int(s.told.Metrics.GAS) {
			w.violated("%d flows hold slots of %s, which reported %d", holders, s.csci, s.told.Metrics.GAS)
		}
	}
}

// checkEpoch: the highest epoch that a forwarder has seen never falls, over its restarts too (CP-13.2-1).
func (w *world) checkEpoch(n *node, shard cats.Shard, epoch cats.Epoch) {
	if epoch.Compare(n.epochs[shard]) < 0 {
		w.violated("%s took epoch %s after %s", n.name, epoch, n.epochs[shard])
	}
}

// checkAgreement: once faults and traffic have ended, every packet was released or dropped by a reason, and the C-PS,
// both forwarders' records and both data planes hold the same bindings (CP section 10).
func (w *world) checkAgreement() {
	want := map[slot]bool{}
	for _, f := range w.cps.core.Flows(w.now) {
		if f.State != cats.Active && f.State != cats.Draining {
			w.violated("flow %s is still %s", f.Binding.Transaction, f.State)
		}
		want[slot{f.Binding.Transaction, cats.IngressHalf}] = true
		want[slot{f.Binding.Transaction, cats.EgressHalf}] = true
	}
	have := map[slot]bool{}
	for _, n := range w.forwarders {
		if len(n.held) > 0 {
			w.violated("%s still holds %d packets", n.name, len(n.held))
		}
		inCore := map[slot]bool{}
		for _, b := range n.core.Bindings() {
			inCore[slot{b.Binding.Transaction, b.Half}] = true
		}
		for _, s := range sortedSlots(n.plane) {
			have[s] = true
			if _, journalled := n.records[s]; !journalled || !inCore[s] {
				w.violated("%s has %s in the data plane, journal %t, core %t", n.name, s, journalled, inCore[s])
			}
		}
		if len(inCore) != len(n.plane) || len(n.records) != len(n.plane) {
			w.violated("%s has %d halves in its core, %d in its journal, %d in its data plane", n.name, len(inCore), len(n.records), len(n.plane))
		}
	}
	for _, s := range sortedSlots(want) {
		if !have[s] {
			w.violated("the C-PS has %s, no data plane does", s)
		}
	}
	for _, s := range sortedSlots(have) {
		if !want[s] {
			w.violated("a data plane has %s, the C-PS does not", s)
		}
	}
}
