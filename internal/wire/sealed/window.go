package sealed

import (
	"fmt"
	"time"

	"github.com/margay-net/margay/cats"
)

// DefaultTolerance is how far a timestamp may be from the receiver's clock, either way (C-SMA section 8.3).
const DefaultTolerance = 30 * time.Second

// Nonce is what orders the updates of one source: its epoch grows over restarts, its sequence within an epoch.
type Nonce struct{ Epoch, Sequence uint64 }

// String gives "epoch/sequence".
func (n Nonce) String() string { return fmt.Sprintf("%d/%d", n.Epoch, n.Sequence) }

func (n Nonce) less(o Nonce) bool {
	return n.Epoch < o.Epoch || n.Epoch == o.Epoch && n.Sequence < o.Sequence
}

// A Window refuses updates that are too old, from the future, or not newer than the last one of their source (C-SMA
// section 8.3). Make it with NewWindow.
type Window struct {
	tolerance time.Duration
	last      map[string]Nonce
}

// NewWindow gives a window of the tolerance, DefaultTolerance where it is zero.
func NewWindow(tolerance time.Duration) *Window {
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	return &Window{tolerance: tolerance, last: make(map[string]Nonce)}
}

// Last gives the nonce of the last update accepted from a source; zero where there was none.
func (w *Window) Last(source string) Nonce { return w.last[source] }

// Restore sets the last nonce of a source from what was stored before a restart; it never lowers it.
func (w *Window) Restore(source string, n Nonce) {
	if w.last[source].less(n) {
		w.last[source] = n
	}
}

// Accept checks an update at now, the receiver's wall clock, and remembers its nonce. It is called once the seal and the
// sender of the update are verified; an update that it refuses changes nothing. A timestamp outside the tolerance and a
// repeated nonce are cats.ReasonReplay, a lower nonce is cats.ReasonSequence.
func (w *Window) Accept(now time.Time, h *cats.UpdateHeader) error {
	if off := h.Timestamp.Sub(now); off > w.tolerance || off < -w.tolerance {
		return fmt.Errorf("timestamp %s of %s is %s from this clock, at most %s is accepted; compare the clocks of both hosts: %w",
			h.Timestamp.Format(time.RFC3339Nano), h.Source, off.Round(time.Millisecond), w.tolerance, cats.ReasonReplay)
	}
	n, last := Nonce{h.Epoch, h.Sequence}, w.last[h.Source]
	switch {
	case n == last:
		return fmt.Errorf("update %s of %s was accepted before: %w", n, h.Source, cats.ReasonReplay)
	case n.less(last):
		return fmt.Errorf("update %s of %s is older than %s, the last one accepted: %w", n, h.Source, last, cats.ReasonSequence)
	}
	w.last[h.Source] = n
	return nil
}
