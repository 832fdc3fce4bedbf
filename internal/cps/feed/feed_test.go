package feed

import (
	"errors"
	"testing"

	"github.com/margay-net/margay/cats"
)

func TestJudge(t *testing.T) {
	at := Position{Epoch: 5, Sequence: 7}
	for _, c := range []struct {
		name   string
		from   Position
		header cats.UpdateHeader
		want   Verdict
		reason cats.Reason
	}{
		{"SM-8.3-2 the first FULL applies", Position{}, cats.UpdateHeader{Epoch: 5, Sequence: 1, Kind: cats.UpdateFull}, Apply, 0},
		{"SM-9.3-1 a DELTA before any FULL needs one", Position{}, cats.UpdateHeader{Epoch: 5, Sequence: 1, Kind: cats.UpdateDelta}, NeedFull, 0},
		{"SM-8.3-2 the next DELTA applies", at, cats.UpdateHeader{Epoch: 5, Sequence: 8, Base: 7, Kind: cats.UpdateDelta}, Apply, 0},
		{"SM-8.3-2 a DELTA on another base needs a FULL", at, cats.UpdateHeader{Epoch: 5, Sequence: 9, Base: 8, Kind: cats.UpdateDelta}, NeedFull, 0},
		{"SM-8.3-2 a REFRESH on another base needs a FULL", at, cats.UpdateHeader{Epoch: 5, Sequence: 9, Base: 8, Kind: cats.UpdateRefresh}, NeedFull, 0},
		{"SM-8.3-2 a WITHDRAW on another base needs a FULL", at, cats.UpdateHeader{Epoch: 5, Sequence: 9, Base: 8, Kind: cats.UpdateWithdraw}, NeedFull, 0},
		{"SM-8.3-2 a FULL applies over a gap", at, cats.UpdateHeader{Epoch: 5, Sequence: 20, Kind: cats.UpdateFull}, Apply, 0},
		{"SM-8.3-2 a repeat is known", at, cats.UpdateHeader{Epoch: 5, Sequence: 7, Base: 6, Kind: cats.UpdateDelta}, Repeated, 0},
		{"SM-8.3-2 an older sequence is known", at, cats.UpdateHeader{Epoch: 5, Sequence: 3, Kind: cats.UpdateFull}, Repeated, 0},
		{"SM-8.3-2 an older epoch is refused", at, cats.UpdateHeader{Epoch: 4, Sequence: 99, Kind: cats.UpdateFull}, Refuse, cats.ReasonSequence},
		{"SM-9.3-1 a DELTA of a new epoch needs a FULL", at, cats.UpdateHeader{Epoch: 6, Sequence: 1, Base: 7, Kind: cats.UpdateDelta}, NeedFull, 0},
		{"SM-9.3-1 a FULL of a new epoch applies", at, cats.UpdateHeader{Epoch: 6, Sequence: 1, Kind: cats.UpdateFull}, Apply, 0},
		{"an update without sequence is malformed", at, cats.UpdateHeader{Epoch: 6, Kind: cats.UpdateFull}, Refuse, cats.ReasonMalformed},
		{"an unknown kind is refused", at, cats.UpdateHeader{Epoch: 6, Sequence: 1, Kind: 9}, Refuse, cats.ReasonUnknownType},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.from.Judge(&c.header)
			if got != c.want {
				t.Errorf("verdict %d, want %d (%v)", got, c.want, err)
			}
			if c.reason != 0 && !errors.Is(err, c.reason) {
				t.Errorf("error %v, want %v", err, c.reason)
			}
		})
	}
}
