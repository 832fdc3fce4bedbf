package cps

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/flow"
)

// record is one flow: its transaction from the request to the removal of its binding.
type record struct {
	binding  cats.Binding // complete from BINDING_READY on; before, what the request gave
	request  cats.ServiceRequest
	state    cats.FlowState
	ingress  half
	egress   half
	counted  bool         // among the pending transactions
	expires  cats.Instant // of the transaction, while it is not ACTIVE
	deadline cats.Instant // of the present step; cats.Never: none
	joined   []cats.Transaction
	reason   cats.Reason // why it ended
	began    cats.Instant

	forward, reverse cats.Usage // as last reported by the owner
	pathUp           [2]bool    // as last reported, by half
}

// half is where one half of a binding is.
type half uint8

const (
	halfNone       half = iota // not at the forwarder
	halfInstalling             // ordered, not answered
	halfInstalled
	halfUnheard  // its forwarder has no session and may have it: it tells in its next Hello
	halfRemoving // ordered out, not answered
)

// bothHalves are the halves of a binding, the ingress half first.
var bothHalves = [...]cats.Half{cats.IngressHalf, cats.EgressHalf}

func (r *record) transaction() cats.Transaction { return r.binding.Transaction }

func (r *record) instance() catalogue.Instance {
	return catalogue.Instance{CSID: r.binding.CSID, CSCIID: r.binding.CSCIID}
}

// underway tells whether the transaction still waits for its outcome.
func (r *record) underway() bool {
	return r.state == cats.Pending || r.state == cats.DestinationSelected || r.state == cats.BindingReady
}

// standing gives where one half of the flow is.
func (r *record) standing(which cats.Half) *half {
	if which == cats.EgressHalf {
		return &r.egress
	}
	return &r.ingress
}

// holder names the forwarder that carries out one half; empty: not decided yet. One forwarder may have both.
func (r *record) holder(which cats.Half) string { return holder(&r.binding, which) }

func holder(b *cats.Binding, which cats.Half) string {
	if which == cats.EgressHalf {
		return b.Egress
	}
	return b.Ingress
}

// at gives where one half is, if it is the forwarder's and has one of the given standings.
func (r *record) at(forwarder string, which cats.Half, standings ...half) *half {
	if s := r.standing(which); r.holder(which) == forwarder && slices.Contains(standings, *s) {
		return s
	}
	return nil
}

// move takes a transition of the state machine. One that the table refuses is a mistake in this program: it is counted
// and audited, and the flow stays as it is.
func (c *Core) move(r *record, event flow.Event) bool {
	to, err := flow.Next(r.state, event)
	if err != nil {
		c.counters.RefusedTransitions++
		c.audit(Audit{Event: "state-machine-mistake", Transaction: r.transaction(), Detail: err.Error()})
		return false
	}
	c.states[r.state]--
	r.state = to
	c.states[r.state]++
	if r.counted && !r.underway() {
		r.counted = false
		c.pending.Leave(&r.request.Key)
	}
	return true
}

// keep files a new record.
func (c *Core) keep(r *record) {
	r.deadline = cats.Never
	c.flows[r.transaction()] = r
	c.states[r.state]++
	c.relate(r, r.binding.Ingress)
	c.relate(r, r.binding.Egress)
}

// relate files a record with a forwarder that carries a half of it, or will.
func (c *Core) relate(r *record, forwarder string) {
	if forwarder != "" {
		c.forwarder(forwarder).flows[r] = struct{}{}
	}
}

// detach frees what other flows may want: the key and the service-side tuple.
func (c *Core) detach(r *record) {
	if c.byKey[r.binding.Match] == r {
		delete(c.byKey, r.binding.Match)
	}
	if c.byTuple[r.binding.Reverse.Service] == r {
		delete(c.byTuple, r.binding.Reverse.Service)
	}
}

// forget closes a flow whose halves are out; late messages of it will be known as such.
func (c *Core) forget(r *record) {
	c.detach(r)
	c.ledger.Credit(r.transaction())
	r.deadline = cats.Never
	delete(c.flows, r.transaction())
	c.states[r.state]--
	for _, name := range [...]string{r.binding.Ingress, r.binding.Egress} {
		if f := c.forwarders[name]; f != nil {
			delete(f.flows, r)
		}
	}
	c.closed.add(r.transaction(), r.reason)
}

// closed remembers the transactions that ended last, and why.
type closed struct {
	reasons map[cats.Transaction]cats.Reason
	ring    []cats.Transaction
	most    int
	next    int
}

func newClosed(most int) closed {
	return closed{reasons: make(map[cats.Transaction]cats.Reason), most: max(most, 1)}
}

func (c *closed) add(t cats.Transaction, reason cats.Reason) {
	if _, known := c.reasons[t]; known {
		return
	}
	c.reasons[t] = reason
	if len(c.ring) < c.most {
		c.ring = append(c.ring, t)
		return
	}
	delete(c.reasons, c.ring[c.next])
	c.ring[c.next] = t
	c.next = (c.next + 1) % c.most
}

func (c *closed) reason(t cats.Transaction) (cats.Reason, bool) {
	reason, known := c.reasons[t]
	return reason, known
}

// refusal is why a request ends without a binding.
type refusal struct {
	reason cats.Reason
	stage  string
	detail string
}

func refuse(reason cats.Reason, format string, arguments ...any) *refusal {
	return &refusal{reason: reason, detail: fmt.Sprintf(format, arguments...)}
}

// refuseBy makes a refusal of an error that wraps a cats.Reason.
func refuseBy(err error) *refusal {
	return &refusal{reason: cmp.Or(cats.ReasonOf(err), cats.ReasonMalformed), detail: err.Error()}
}
