package forwarder

import (
	"time"

	"github.com/margay-net/margay/cats"
)

// usage takes what the data plane counted for a half.
func (c *Core) usage(u *Usage) {
	r := c.records[identity{u.Transaction, u.Half}]
	if r == nil || r.phase != inForce {
		return
	}
	r.counted = r.counted || r.forward != u.Forward || r.reverse != u.Reverse
	r.forward, r.reverse = u.Forward, u.Reverse
	if u.LastSeen > 0 {
		r.lastSeen = u.LastSeen
	}
	forward, reverse := r.forwardFlags, r.reverseFlags
	r.forwardFlags |= u.ForwardFlags
	r.reverseFlags |= u.ReverseFlags
	if (forward != r.forwardFlags || reverse != r.reverseFlags) && !r.over() {
		c.lookAgain(r)
	}
	if due := r.reported.Add(c.cfg.Limits.CounterInterval); r.counted && due < r.check {
		c.schedule(r, max(due, c.now))
	}
}

// reportCounters reports the counters of r if they have moved and it is time; it tells when to look again.
func (c *Core) reportCounters(r *record) (again cats.Instant) {
	if !r.counted || !c.up {
		return cats.Never
	}
	if due := r.reported.Add(c.cfg.Limits.CounterInterval); c.now < due {
		return due
	}
	c.report(r, cats.BindingCounters, cats.ReasonNone, "")
	return cats.Never
}

// resetSilence is how long nothing may follow an RST before it counts: one with a wrong sequence number ends nothing, and
// the packets go on (RFC 5961 section 3).
const resetSilence = 2 * time.Second

// closed tells whether TCP ended the flow: FIN in both directions, or RST and nothing after it. Where an RST may still
// count, again is when to look.
func (c *Core) closed(r *record) (over bool, again cats.Instant) {
	if r.forwardFlags&r.reverseFlags&FIN != 0 {
		return true, 0
	}
	if (r.forwardFlags|r.reverseFlags)&RST == 0 {
		return false, cats.Never
	}
	silent := r.lastSeen.Add(resetSilence)
	if silent <= c.scanned {
		return true, 0
	}
	return false, max(silent, c.now.Add(time.Second))
}

// halfOpen tells whether a flow is not known to be wanted by both ends: the instance has not answered, or the client has
// sent nothing but one packet.
func (r *record) halfOpen() bool {
	return r.reverse.Packets == 0 || r.Binding.Match.Tuple.Protocol == cats.TCP && r.forward.Packets < 2
}

// idleLimit gives after how much silence r is over (RFC 5382 and RFC 4787, where the binding says nothing).
func (c *Core) idleLimit(r *record) time.Duration {
	l := &c.cfg.Limits
	idle, unanswered := l.UDPIdle, l.UDPUnanswered
	if r.Binding.Match.Tuple.Protocol == cats.TCP {
		idle, unanswered = l.TCPIdle, l.TCPHalfOpen
	}
	if r.Binding.Idle > 0 {
		idle = r.Binding.Idle
	}
	switch {
	case r.halfOpen():
		return min(idle, unanswered)
	case r.forwardFlags|r.reverseFlags != 0:
		return min(idle, l.TCPClosing)
	}
	return idle
}

// life tells why the life of r is over now; if it is not, when to look again.
func (c *Core) life(r *record) (end cats.Reason, again cats.Instant) {
	over, again := c.closed(r)
	if over {
		return cats.ReasonFinished, 0
	}
	if r.Binding.Hard > 0 {
		hard := r.since.Add(r.Binding.Hard)
		if hard <= c.now {
			return cats.ReasonHard, 0
		}
		again = min(again, hard)
	}
	idle := max(r.lastSeen, r.since).Add(c.idleLimit(r))
	switch {
	case idle > c.now:
		again = min(again, idle)
	case idle <= c.scanned:
		return cats.ReasonIdle, 0
	default: // packets since the last scan may have refreshed it
		again = min(again, c.now.Add(time.Second))
	}
	return cats.ReasonNone, again
}

// schedule has inspect look at r at a later time.
func (c *Core) schedule(r *record, at cats.Instant) { c.agenda.put(r, at) }

// lookAgain has inspect look at r in this Step, or in the next.
func (c *Core) lookAgain(r *record) { c.schedule(r, c.now) }

func (c *Core) inspectDue() {
	for c.agenda.next() <= c.now {
		r := c.agenda[0]
		c.schedule(r, cats.Never)
		c.inspect(r)
	}
}

// inspect moves r on if its time has come. With a session the ingress reports an end and the C-PS orders the rest at
// both forwarders; without, each drains and removes alone (CP section 10).
func (c *Core) inspect(r *record) {
	repeat := c.now.Add(c.cfg.Limits.Repeat)
	switch {
	case r.phase == removing:
		c.operate(OperationRemove, r, &r.Binding)
		return
	case r.phase == installing:
		return
	case r.Draining:
		c.inspectDraining(r, repeat)
		return
	case r.ending == cats.ReasonNone:
		end, again := c.life(r)
		if end == cats.ReasonNone {
			c.schedule(r, min(again, c.reportCounters(r)))
			return
		}
		if r.Half == cats.EgressHalf && c.up {
			c.schedule(r, repeat) // the ingress reports it
			return
		}
		r.ending = end
	}
	if !c.up {
		c.beginDraining(r, r.ending)
		return
	}
	c.report(r, cats.BindingEnding, r.ending, "")
	c.schedule(r, repeat)
}

func (c *Core) inspectDraining(r *record, repeat cats.Instant) {
	switch {
	case c.now < r.drainEnd:
		c.schedule(r, r.drainEnd)
	case c.up:
		if r.Half == cats.IngressHalf {
			c.report(r, cats.BindingEnding, r.Reason, "")
		}
		c.schedule(r, repeat)
	default:
		r.tell = true
		c.takeOut(r, r.Reason)
	}
}

// pathChange takes that a next hop was found or lost, and reports the path status of every binding that begins there.
func (c *Core) pathChange(p *PathChange) {
	_, wasDown := c.down[p.Segment]
	if p.Up != wasDown {
		return // nothing new
	}
	if p.Up {
		delete(c.down, p.Segment)
	} else {
		c.down[p.Segment] = p.Detail
	}
	for _, r := range c.inOrder() {
		if r.phase == inForce && r.firstHop() == p.Segment {
			c.report(r, cats.BindingCounters, cats.ReasonNone, p.Detail)
		}
	}
}
