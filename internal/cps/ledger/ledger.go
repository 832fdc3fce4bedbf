// Package ledger counts the slots that admitted flows hold at each instance, so that between two reports no more are
// admitted than were reported (CP section 3, Global Available Slots). Reports are ceilings: what a flow holds is
// debited in the step of its selection and credited once, by transaction, when the flow begins to drain or fails.
package ledger

import (
	"fmt"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// Ledger holds the debits of one core. The zero Ledger is empty.
type Ledger struct {
	debits map[cats.Transaction]debit
	sums   map[catalogue.Instance]uint64
}

type debit struct {
	instance catalogue.Instance
	slots    uint32
}

// Debit takes slots of an instance for a transaction. A transaction that holds slots already is refused and changes
// nothing.
func (l *Ledger) Debit(t cats.Transaction, i catalogue.Instance, slots uint32) error {
	if held, ok := l.debits[t]; ok {
		return fmt.Errorf("transaction %s already holds %d slots of %s: %w", t, held.slots, held.instance, cats.ReasonDuplicate)
	}
	if l.debits == nil {
		l.debits = make(map[cats.Transaction]debit)
		l.sums = make(map[catalogue.Instance]uint64)
	}
	l.debits[t] = debit{i, slots}
	l.sums[i] += uint64(slots)
	return nil
}

// Credit gives the slots of a transaction back; it tells whether there were any, so that a second credit is seen to do
// nothing.
func (l *Ledger) Credit(t cats.Transaction) bool {
	held, ok := l.debits[t]
	if !ok {
		return false
	}
	delete(l.debits, t)
	if l.sums[held.instance] -= uint64(held.slots); l.sums[held.instance] == 0 {
		delete(l.sums, held.instance)
	}
	return true
}

// Debited gives the slots of an instance that are held.
func (l *Ledger) Debited(i catalogue.Instance) uint64 { return l.sums[i] }

// Effective gives the slots of an instance that are left of what it reports; never below 0, also where it reports less
// than is held.
func (l *Ledger) Effective(i catalogue.Instance, gas uint32) uint32 {
	held := l.sums[i]
	if held >= uint64(gas) {
		return 0
	}
	return gas - uint32(held)
}

// Flows gives the number of transactions that hold slots.
func (l *Ledger) Flows() int { return len(l.debits) }
