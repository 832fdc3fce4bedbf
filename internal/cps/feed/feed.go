// Package feed orders the updates of one source, a C-SMA or a C-NMA: it tells a new update from a repeated one, and a
// DELTA that builds on what was applied from one that has to be preceded by a FULL (C-SMA sections 8.3 and 9.3).
package feed

import (
	"fmt"

	"github.com/margay-net/margay/cats"
)

// Position is the last applied update of a source. The zero Position: nothing was applied.
type Position struct {
	Epoch    uint64
	Sequence uint64
}

// Verdict is what becomes of an update.
type Verdict uint8

// Apply: it is next. Repeated: it was applied before, acknowledge it and change nothing. NeedFull: it builds on
// something else than what was applied. Refuse: it may not be taken; the error tells why.
const (
	Apply Verdict = iota
	Repeated
	NeedFull
	Refuse
)

// Judge places an update after p. The caller moves to Next after it has applied the update.
func (p Position) Judge(h *cats.UpdateHeader) (Verdict, error) {
	switch {
	case h.Epoch == 0 || h.Sequence == 0:
		return Refuse, fmt.Errorf("epoch %d and sequence %d must both be above 0: %w", h.Epoch, h.Sequence, cats.ReasonMalformed)
	case h.Kind > cats.UpdateWithdraw:
		return Refuse, fmt.Errorf("update kind %s: %w", h.Kind, cats.ReasonUnknownType)
	case h.Epoch < p.Epoch:
		return Refuse, fmt.Errorf("epoch %d is below %d, which was applied: %w", h.Epoch, p.Epoch, cats.ReasonSequence)
	case h.Epoch == p.Epoch && h.Sequence <= p.Sequence:
		return Repeated, nil
	case h.Kind == cats.UpdateFull:
		return Apply, nil
	case h.Epoch != p.Epoch || h.Base != p.Sequence:
		return NeedFull, nil
	}
	return Apply, nil
}

// Next is the position after the update has been applied.
func Next(h *cats.UpdateHeader) Position { return Position{Epoch: h.Epoch, Sequence: h.Sequence} }
