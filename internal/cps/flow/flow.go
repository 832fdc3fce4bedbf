// Package flow is the centralized flow state machine of CP section 10: the eight states and the transitions of its
// Figure 3, with the ones that its text implies, as one table. Every other transition is refused.
package flow

import (
	"fmt"

	"github.com/margay-net/margay/cats"
)

// Event is what happens to a flow.
type Event uint8

// The events of Figure 3, and those that its text implies.
const (
	NewPacket       Event = iota // a classified packet without a binding
	Selected                     // the service selection found a destination
	Rejected                     // unresolved, no candidate, a limit
	PathJoined                   // a usable path reply
	NoPath                       // no path, or one that cannot be used
	Committed                    // both forwarders have their half
	CommitFailed                 // a forwarder has not
	Deadline                     // the deadline of the transaction passed
	Ended                        // idle, hard expiry, FIN in both directions, RST, service-finished
	Repaired                     // a new path to the same instance
	InstanceFailed               // the instance is gone, and the flow can go on elsewhere as a new one
	ReconnectNeeded              // the instance is gone, and the client has to connect again
	NewConnection                // a new SYN of the key
	Cleaned                      // both halves are out of the forwarders
	eventCount
)

var eventNames = [eventCount]string{
	"new-packet", "selected", "rejected", "path-joined", "no-path", "committed", "commit-failed", "deadline", "ended",
	"repaired", "instance-failed", "reconnect-needed", "new-connection", "cleaned",
}

// String gives the event in lower case.
func (e Event) String() string {
	if e < eventCount {
		return eventNames[e]
	}
	return fmt.Sprintf("invalid(%d)", uint8(e))
}

// Events lists all events.
func Events() []Event {
	all := make([]Event, eventCount)
	for i := range all {
		all[i] = Event(i)
	}
	return all
}

type step struct {
	from  cats.FlowState
	event Event
}

var table = map[step]cats.FlowState{
	{cats.Absent, NewPacket}: cats.Pending,

	{cats.Pending, Selected}: cats.DestinationSelected,
	{cats.Pending, Rejected}: cats.Failed,
	{cats.Pending, Deadline}: cats.Failed,

	{cats.DestinationSelected, PathJoined}: cats.BindingReady,
	{cats.DestinationSelected, NoPath}:     cats.Failed,
	{cats.DestinationSelected, Deadline}:   cats.Failed,

	{cats.BindingReady, Committed}:    cats.Active,
	{cats.BindingReady, CommitFailed}: cats.Failed,
	{cats.BindingReady, Deadline}:     cats.Failed,

	{cats.Active, Ended}:           cats.Draining,
	{cats.Active, Repaired}:        cats.Active,
	{cats.Active, InstanceFailed}:  cats.Failed,
	{cats.Active, ReconnectNeeded}: cats.ReconnectRequired,

	{cats.Draining, Cleaned}:       cats.Absent,
	{cats.Draining, NewConnection}: cats.Absent,

	{cats.Failed, Cleaned}: cats.Absent,

	{cats.ReconnectRequired, Cleaned}: cats.Absent,
}

// Next gives the state after an event, or an error where the event may not happen in that state.
func Next(from cats.FlowState, event Event) (cats.FlowState, error) {
	to, ok := table[step{from, event}]
	if !ok {
		return from, fmt.Errorf("flow state %s has no transition for %s", from, event)
	}
	return to, nil
}
