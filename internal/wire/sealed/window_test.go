package sealed

import (
	"errors"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

func header(source string, epoch, sequence uint64, timestamp time.Time) *cats.UpdateHeader {
	return &cats.UpdateHeader{Source: source, Epoch: epoch, Sequence: sequence, Timestamp: timestamp}
}

func TestWindow(t *testing.T) {
	t.Run("timestamp outside the tolerance", func(t *testing.T) {
		for _, test := range []struct {
			off time.Duration
			ok  bool
		}{
			{0, true},
			{DefaultTolerance, true}, {-DefaultTolerance, true},
			{DefaultTolerance + time.Millisecond, false}, {-DefaultTolerance - time.Millisecond, false},
			{-24 * 365 * time.Hour, false},
		} {
			err := NewWindow(0).Accept(moment, header("csma-1", 1, 1, moment.Add(test.off)))
			if test.ok && err != nil || !test.ok && !errors.Is(err, cats.ReasonReplay) {
				t.Errorf("%s off: error %v", test.off, err)
			}
		}
	})

	t.Run("configured tolerance", func(t *testing.T) {
		w := NewWindow(time.Second)
		if err := w.Accept(moment, header("csma-1", 1, 1, moment.Add(2*time.Second))); !errors.Is(err, cats.ReasonReplay) {
			t.Errorf("error %v", err)
		}
	})

	t.Run("a nonce is accepted once", func(t *testing.T) {
		w := NewWindow(0)
		if err := w.Accept(moment, header("csma-1", 1, 5, moment)); err != nil {
			t.Fatal(err)
		}
		if err := w.Accept(moment, header("csma-1", 1, 5, moment)); !errors.Is(err, cats.ReasonReplay) {
			t.Errorf("error %v", err)
		}
	})

	t.Run("SM-8.3-2 stale and out-of-order updates are exposed by epoch and sequence", func(t *testing.T) {
		w := NewWindow(0)
		for _, test := range []struct {
			epoch, sequence uint64
			reason          cats.Reason
		}{
			{7, 3, cats.ReasonNone},
			{7, 5, cats.ReasonNone},     // a gap is the update logic's to notice, by base_seq
			{7, 4, cats.ReasonSequence}, // out of order
			{6, 9, cats.ReasonSequence}, // of before the source's restart
			{8, 1, cats.ReasonNone},     // the source restarted
			{7, 6, cats.ReasonSequence},
			{8, 1, cats.ReasonReplay},
			{8, 2, cats.ReasonNone},
		} {
			err := w.Accept(moment, header("csma-1", test.epoch, test.sequence, moment))
			if test.reason == cats.ReasonNone && err != nil || test.reason != cats.ReasonNone && !errors.Is(err, test.reason) {
				t.Errorf("%d/%d: error %v, want %s", test.epoch, test.sequence, err, test.reason)
			}
		}
	})

	t.Run("sources are independent", func(t *testing.T) {
		w := NewWindow(0)
		for _, source := range []string{"csma-1", "csma-2"} {
			if err := w.Accept(moment, header(source, 1, 1, moment)); err != nil {
				t.Errorf("%s: %v", source, err)
			}
		}
	})

	t.Run("a refused update changes nothing", func(t *testing.T) {
		w := NewWindow(0)
		if err := w.Accept(moment, header("csma-1", 9, 9, moment.Add(time.Hour))); err == nil {
			t.Fatal("accepted an update from the future")
		}
		if err := w.Accept(moment, header("csma-1", 1, 1, moment)); err != nil {
			t.Errorf("the refused update was remembered: %v", err)
		}
	})

	t.Run("restored after a restart", func(t *testing.T) {
		w := NewWindow(0)
		w.Restore("csma-1", Nonce{4, 7})
		w.Restore("csma-1", Nonce{3, 9})
		if got := w.Last("csma-1"); got != (Nonce{4, 7}) {
			t.Fatalf("last %s", got)
		}
		if err := w.Accept(moment, header("csma-1", 4, 7, moment)); !errors.Is(err, cats.ReasonReplay) {
			t.Errorf("error %v", err)
		}
	})
}
