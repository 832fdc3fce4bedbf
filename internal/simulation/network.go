package simulation

import (
	"time"

	"github.com/margay-net/margay/cats"
)

// session is one connection between a forwarder and the C-PS. What is under way when it ends is lost.
type session struct {
	number uint64
	open   bool
	opened cats.Instant // when the C-PS has the Hello; nothing arrives earlier
}

// connect opens a session after a while, as a reconnecting client does.
func (n *node) connect() {
	w, incarnation := n.world, n.incarnation
	w.after(w.chance.between(time.Millisecond, 300*time.Millisecond), func() {
		if n.core == nil || n.incarnation != incarnation || n.session != nil {
			return
		}
		if w.cps.core == nil {
			n.connect()
			return
		}
		w.cps.sessions++
		n.session = &session{number: w.cps.sessions, open: true}
		n.sessionUp()
	})
}

// disconnect breaks the session of a forwarder; both ends notice, each in its time.
func (n *node) disconnect() {
	s := n.session
	if s == nil {
		return
	}
	s.open = false
	n.session = nil
	w := n.world
	w.log("%s loses session %d", n.name, s.number)
	w.after(w.chance.between(0, 100*time.Millisecond), func() { w.cps.closed(n.name, s.number) })
	if n.core != nil {
		n.sessionDown()
		n.connect()
	}
}

// send carries a message over a forwarder's session, or loses, doubles, delays it. A stream that loses a message breaks
// sooner or later, so that the next session's Hello tells what is where. The message that opens a session is neither lost
// nor overtaken: without it there is no session.
func (w *world) send(n *node, s *session, opening bool, deliver func()) {
	arrival := w.now.Add(w.chance.between(50*time.Microsecond, 5*time.Millisecond))
	if w.faults && w.chance.happens(10) {
		arrival = arrival.Add(w.chance.between(0, 700*time.Millisecond))
	}
	if opening {
		s.opened = arrival
	} else if w.faults && w.chance.happens(25) {
		w.result.Lost++
		w.after(w.chance.between(0, 2*time.Second), func() {
			if n.session == s {
				n.disconnect()
			}
		})
		return
	}
	arrive := func() {
		if s.open {
			deliver()
		}
	}
	w.at(max(arrival, s.opened+1), arrive)
	if opening {
		return
	}
	if w.faults && w.chance.happens(20) {
		w.at(max(arrival, s.opened+1).Add(w.chance.between(0, 100*time.Millisecond)), arrive)
	}
}
