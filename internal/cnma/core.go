package cnma

import (
	"slices"
	"strings"
	"time"

	"github.com/margay-net/margay/cats"
)

// lifetimes is how many refreshes fit in the lifetime of what a C-PS was told: it outlives two that are lost.
const lifetimes = 3

// mostEpoch is the highest epoch that is believed; it is far beyond any clock's milliseconds, and leaves room above it.
const mostEpoch = 1 << 62

// fullGap is the least time between two FULL updates that a C-PS asks for.
const fullGap = time.Second

// Config is what a Core is made with.
type Config struct {
	Name    string        // of the C-NMA; equals its certificate's
	Epoch   uint64        // higher than that of any run before, positive
	Refresh time.Duration // between updates while nothing changes, positive; the ttl is three times as long
}

// Events are what happened since the last Step; they are taken in the order of the fields.
type Events struct {
	Topologies []Topology
	Sessions   []SessionEvent
}

// Topology is everything that one source now says. It replaces what that source said before; whoever made it must not
// change it afterwards.
type Topology struct {
	Source string
	Nodes  []cats.Node
	Links  []cats.Link
}

// SessionEvent is something that happened on a session with a C-PS: its end, or what the C-PS said. Its hello opens the
// session.
type SessionEvent struct {
	Peer     string // name of the C-PS
	Session  uint64 // numbered by the shell from 1; a higher one replaces a lower one of the same peer
	Closed   bool
	Feedback cats.Feedback // unless Closed
}

// Effects are what a Step wants done, in the order of the fields. The next Step uses the slices again.
type Effects struct {
	Refusals []Refusal
	Epoch    uint64 // not 0: to be made durable before anything is sent
	Sends    []Send
}

// Refusal says that a topology was not taken; what its source said before still holds.
type Refusal struct {
	Source string
	Err    error // names the nodes and links at fault
}

// Send is an update for a C-PS; it is lost if that session is over. Its nodes and links must not be changed.
type Send struct {
	Peer    string
	Session uint64
	Update  cats.NetworkUpdate
}

// Core is the state machine; it belongs to one goroutine.
type Core struct {
	name    string
	refresh time.Duration

	epoch    uint64
	sequence uint64 // of the last update to any C-PS

	sources    map[string]Topology
	generation uint64 // grows with each change; 0: no source has reported
	nodes      []cats.Node
	links      []cats.Link

	peers map[string]*peer
	order []*peer // by name, so that equal events have equal effects
}

// peer is what is known of one C-PS. It stays when its session ends, for the next one.
type peer struct {
	name    string
	session uint64
	open    bool
	last    uint64 // sequence that it applied last, if nothing was lost
	full    uint64 // sequence of a FULL that carried the topology of now; 0: it was sent none
	sent    cats.Instant
	due     cats.Instant // of the next update
}

// New makes a core that knows no topology and no C-PS yet.
func New(c Config) *Core {
	return &Core{name: c.Name, refresh: c.Refresh, epoch: c.Epoch, sources: map[string]Topology{}, peers: map[string]*peer{}}
}

// Generation gives the number of the topology that is sent out; it grows with each change, and 0 is none.
func (c *Core) Generation() uint64 { return c.generation }

// Step takes events, fills in effects and gives the instant by which it wants to be called again, at the latest.
func (c *Core) Step(now cats.Instant, in *Events, out *Effects) cats.Instant {
	out.Refusals, out.Epoch, out.Sends = out.Refusals[:0], 0, out.Sends[:0]
	for _, t := range in.Topologies {
		c.take(now, t, out)
	}
	for i := range in.Sessions {
		c.hear(now, &in.Sessions[i], out)
	}
	next := cats.Never
	for _, p := range c.order {
		if !p.open || c.generation == 0 {
			continue
		}
		if p.due <= now {
			c.send(now, p, out)
		}
		next = min(next, p.due)
	}
	return next
}

// take replaces what one source said, all or nothing.
func (c *Core) take(now cats.Instant, t Topology, out *Effects) {
	nodes, links, err := merge(c.sources, t)
	if err != nil {
		out.Refusals = append(out.Refusals, Refusal{Source: t.Source, Err: err})
		return
	}
	c.sources[t.Source] = t
	if c.generation > 0 && slices.Equal(nodes, c.nodes) && slices.Equal(links, c.links) {
		return
	}
	c.nodes, c.links = nodes, links
	c.generation++
	c.resend(now)
}

// resend makes every C-PS get a FULL at once.
func (c *Core) resend(now cats.Instant) {
	for _, p := range c.order {
		p.full, p.due = 0, now
	}
}

func (c *Core) hear(now cats.Instant, e *SessionEvent, out *Effects) {
	p := c.peer(e.Peer)
	switch {
	case e.Session < p.session || e.Session == p.session && !p.open:
		return // of a session that is over
	case e.Closed:
		p.session, p.open = e.Session, false
		return
	case e.Session > p.session:
		if e.Feedback.Kind == cats.FeedbackHello {
			c.open(now, p, e, out)
		}
		return
	}
	switch e.Feedback.Kind {
	case cats.FeedbackNeedFull, cats.FeedbackQuery:
		p.full, p.due = 0, max(now, p.sent.Add(fullGap))
	case cats.FeedbackRefused:
		// Sending the same again at once would be refused again; by the next refresh something may have changed there.
		p.full, p.due = 0, p.sent.Add(c.refresh)
	}
}

// open begins a session. The hello tells what the C-PS still has.
func (c *Core) open(now cats.Instant, p *peer, e *SessionEvent, out *Effects) {
	p.session, p.open, p.due = e.Session, true, now
	had := e.Feedback
	if had.Epoch <= mostEpoch && (had.Epoch > c.epoch || had.Epoch == c.epoch && had.Sequence > c.sequence) {
		// It has heard from a later run of this agent, whose state is lost. It would discard all that comes before.
		c.epoch, c.sequence = had.Epoch+1, 0
		out.Epoch = c.epoch
		c.resend(now)
	}
	if had.Epoch != c.epoch || p.full == 0 || had.Sequence < p.full || had.Sequence > p.last {
		p.full = 0
		return
	}
	p.last = had.Sequence
}

func (c *Core) peer(name string) *peer {
	p := c.peers[name]
	if p == nil {
		p = &peer{name: name}
		c.peers[name] = p
		at, _ := slices.BinarySearchFunc(c.order, name, func(p *peer, name string) int { return strings.Compare(p.name, name) })
		c.order = slices.Insert(c.order, at, p)
	}
	return p
}

func (c *Core) send(now cats.Instant, p *peer, out *Effects) {
	c.sequence++
	u := cats.NetworkUpdate{UpdateHeader: cats.UpdateHeader{
		Source: c.name, Epoch: c.epoch, Sequence: c.sequence, Timestamp: now.Wall(), TTL: lifetimes * c.refresh,
	}}
	if p.full == 0 {
		u.Kind, u.Nodes, u.Links = cats.UpdateFull, c.nodes, c.links
		p.full = c.sequence
	} else {
		u.Kind, u.Base = cats.UpdateRefresh, p.last
	}
	p.last, p.sent, p.due = c.sequence, now, now.Add(c.refresh)
	out.Sends = append(out.Sends, Send{Peer: p.name, Session: p.session, Update: u})
}
