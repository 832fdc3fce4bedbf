package forwarder

import (
	"github.com/margay-net/margay/cats"
)

// BindingView is one half of a binding as an operator sees it.
type BindingView struct {
	Record
	InForce  bool         // the data plane confirmed it
	Since    cats.Instant // in force
	LastSeen cats.Instant // of a packet of either direction, as of the last scan
	Forward  cats.Usage
	Reverse  cats.Usage
	PathUp   bool
}

// Bindings lists the halves that are here, by transaction and half, without those that are being removed.
func (c *Core) Bindings() []BindingView {
	var all []BindingView
	for _, r := range c.inOrder() {
		if r.phase == removing {
			continue
		}
		_, down := c.down[r.firstHop()]
		all = append(all, BindingView{Record: r.Record, InForce: r.phase == inForce, Since: r.since, LastSeen: r.lastSeen,
			Forward: r.forward, Reverse: r.reverse, PathUp: !down})
	}
	return all
}

// PendingView is a pending flow as an operator sees it.
type PendingView struct {
	Transaction cats.Transaction
	Key         cats.FlowKey
	Packets     int
	Octets      int
	Deadline    cats.Instant
}

// Pending lists the flows that wait for a decision or its commit, in the order they came.
func (c *Core) Pending() []PendingView {
	var all []PendingView
	for _, p := range c.pendingInOrder() {
		all = append(all, PendingView{Transaction: p.transaction, Key: p.flow, Packets: len(p.held), Octets: p.octets, Deadline: p.deadline})
	}
	return all
}

// Snapshot gives what a journal has to hold to restore this core.
func (c *Core) Snapshot() Restored {
	s := Restored{Epochs: make(map[cats.Shard]cats.Epoch, len(c.epochs)), Provisions: inShardOrder(c.provisioning())}
	for shard, epoch := range c.epochs {
		s.Epochs[shard] = epoch
	}
	for _, r := range c.inOrder() {
		if r.phase == removing {
			continue
		}
		latest := r.Record
		if r.next != nil {
			latest.Binding = *r.next
		}
		s.Records = append(s.Records, latest)
	}
	return s
}
