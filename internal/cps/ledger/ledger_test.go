package ledger

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

func transaction(n uint64) (t cats.Transaction) {
	binary.BigEndian.PutUint64(t[8:], n)
	return t
}

func TestSlotsAreCreditedOnce(t *testing.T) {
	i := catalogue.Instance{CSID: "S1", CSCIID: "a"}
	var l Ledger
	if err := l.Debit(transaction(1), i, 3); err != nil {
		t.Fatal(err)
	}
	if err := l.Debit(transaction(1), i, 3); !errors.Is(err, cats.ReasonDuplicate) {
		t.Errorf("second debit of one transaction: %v, want duplicate", err)
	}
	if got := l.Effective(i, 10); got != 7 {
		t.Errorf("effective %d, want 7", got)
	}
	if got := l.Effective(i, 2); got != 0 {
		t.Errorf("effective %d with less reported than held, want 0", got)
	}
	if !l.Credit(transaction(1)) || l.Credit(transaction(1)) {
		t.Error("want the first credit to count and the second not")
	}
	if got := l.Debited(i); got != 0 {
		t.Errorf("debited %d after the credit, want 0", got)
	}
}

// Whatever happens in whatever order: what is held is the sum of the transactions that hold it, never less than zero,
// and each is given back once.
func TestLedgerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		model := make(map[cats.Transaction]struct {
			i catalogue.Instance
			n uint32
		})
		instances := []catalogue.Instance{{CSID: "S1", CSCIID: "a"}, {CSID: "S1", CSCIID: "b"}, {CSID: "S2", CSCIID: "a"}}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			tr := transaction(rapid.Uint64Range(1, 20).Draw(t, "transaction"))
			held, holds := model[tr]
			if rapid.Bool().Draw(t, "debit") {
				i := rapid.SampledFrom(instances).Draw(t, "instance")
				n := rapid.Uint32Range(1, 1<<31).Draw(t, "slots")
				if err := l.Debit(tr, i, n); (err != nil) != holds {
					t.Fatalf("debit: %v, held before: %v", err, holds)
				}
				if !holds {
					held.i, held.n = i, n
					model[tr] = held
				}
			} else if l.Credit(tr) != holds {
				t.Fatalf("credit told %v, held before: %v", !holds, holds)
			} else {
				delete(model, tr)
			}
			for _, i := range instances {
				var sum uint64
				for _, h := range model {
					if h.i == i {
						sum += uint64(h.n)
					}
				}
				if l.Debited(i) != sum {
					t.Fatalf("%s: debited %d, want %d", i, l.Debited(i), sum)
				}
				gas := rapid.Uint32().Draw(t, "gas")
				if got, want := uint64(l.Effective(i, gas)), max(uint64(gas), sum)-sum; got != want {
					t.Fatalf("%s: effective %d of %d with %d held, want %d", i, got, gas, sum, want)
				}
			}
		}
	})
}
