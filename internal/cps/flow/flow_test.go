package flow

import (
	"testing"

	"github.com/margay-net/margay/cats"
)

// The transitions of Figure 3 and of the text around it, written down apart from the table.
var legal = map[cats.FlowState]map[Event]cats.FlowState{
	cats.Absent:              {NewPacket: cats.Pending},
	cats.Pending:             {Selected: cats.DestinationSelected, Rejected: cats.Failed, Deadline: cats.Failed},
	cats.DestinationSelected: {PathJoined: cats.BindingReady, NoPath: cats.Failed, Deadline: cats.Failed},
	cats.BindingReady:        {Committed: cats.Active, CommitFailed: cats.Failed, Deadline: cats.Failed},
	cats.Active: {
		Ended: cats.Draining, Repaired: cats.Active, InstanceFailed: cats.Failed, ReconnectNeeded: cats.ReconnectRequired,
	},
	cats.Draining:          {Cleaned: cats.Absent, NewConnection: cats.Absent},
	cats.Failed:            {Cleaned: cats.Absent},
	cats.ReconnectRequired: {Cleaned: cats.Absent},
}

func TestStateMachine(t *testing.T) {
	states := []cats.FlowState{
		cats.Absent, cats.Pending, cats.DestinationSelected, cats.BindingReady, cats.Active, cats.Draining, cats.Failed,
		cats.ReconnectRequired,
	}
	t.Run("CP-10-1 eight states, Figure 3's transitions, any other refused", func(t *testing.T) {
		if len(legal) != 8 {
			t.Fatalf("%d states, want 8", len(legal))
		}
		for _, from := range states {
			for _, event := range Events() {
				to, err := Next(from, event)
				want, ok := legal[from][event]
				switch {
				case ok && (err != nil || to != want):
					t.Errorf("%s on %s: got %s, %v; want %s", from, event, to, err, want)
				case !ok && err == nil:
					t.Errorf("%s on %s: went to %s, want it refused", from, event, to)
				case !ok && to != from:
					t.Errorf("%s on %s: refused, but moved to %s", from, event, to)
				}
			}
		}
	})
}
