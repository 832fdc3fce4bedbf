package forwarder

import (
	"container/list"
	"fmt"

	"github.com/margay-net/margay/cats"
)

// announcement is request metadata that waits for its flow.
type announcement struct {
	flow        cats.FlowKey
	key         key
	by          string
	identity    Identity
	constraints cats.Constraints
	generation  uint16
	expires     cats.Instant
	raised      bool // the data plane was asked to hand this flow up
}

// announcements are those that wait: one for each key, the first to expire in front.
type announcements struct {
	byKey  map[key]*list.Element // of order
	order  list.List             // of *announcement
	caller cats.Tally[string]    // how many each caller has
}

func (a *announcements) len() int { return a.order.Len() }

func (a *announcements) get(k key) *announcement {
	if e := a.byKey[k]; e != nil {
		return e.Value.(*announcement)
	}
	return nil
}

// put files an announcement in place of the last one of its key. It expires after every other.
func (a *announcements) put(n *announcement) {
	a.remove(n.key)
	a.byKey[n.key] = a.order.PushBack(n)
	a.caller.Add(n.by)
}

// remove takes out that of a key, if there is one, and gives it.
func (a *announcements) remove(k key) *announcement {
	e := a.byKey[k]
	if e == nil {
		return nil
	}
	delete(a.byKey, k)
	removed := a.order.Remove(e).(*announcement)
	a.caller.Remove(removed.by)
	return removed
}

// first gives the one that expires first; nil: there is none.
func (a *announcements) first() *announcement {
	if e := a.order.Front(); e != nil {
		return e.Value.(*announcement)
	}
	return nil
}

// next gives when the first one expires.
func (a *announcements) next() cats.Instant {
	if first := a.first(); first != nil {
		return first.expires
	}
	return cats.Never
}

// announce keeps the metadata of a coming flow and answers the caller (CP section 6, Mode B).
func (c *Core) announce(a *Announcement) {
	answer := AnnounceAnswer{Token: a.Token}
	csid, err := c.keepAnnouncement(a)
	if err != nil {
		answer.Reason, answer.Detail = cats.ReasonOf(err), err.Error()
		c.audit(Audit{Event: "announce-refused", Reason: answer.Reason, By: a.By, Detail: answer.Detail})
	} else {
		answer.CSID, answer.For = csid, c.cfg.Limits.AnnounceLife
	}
	c.out.Answers = append(c.out.Answers, answer)
}

func (c *Core) keepAnnouncement(a *Announcement) (cats.CSID, error) {
	if err := checkTuple(a.Tuple); err != nil {
		return "", err
	}
	at, err := c.attachmentOf(a)
	if err != nil {
		return "", err
	}
	csid, err := c.services.identify(a.Tuple, a.Identity)
	if err != nil {
		return "", err
	}
	k := tupleKey(c.numberOf(at.Name), a.Tuple)
	if c.pendingByKey[k] != nil {
		return "", fmt.Errorf("the flow is being decided without it: %w", cats.ReasonStaleState)
	}
	if err := c.admitAnnouncement(k, a.By); err != nil {
		return "", err
	}
	kept := &announcement{
		flow: cats.FlowKey{Attachment: at.Name, Tenant: at.Tenant, Tuple: a.Tuple}, key: k, by: a.By,
		identity: a.Identity, constraints: a.Constraints, generation: a.Generation,
	}
	service, known := c.services.service(a.Tuple.Protocol, a.Tuple.Target)
	if known {
		csid = service
	}
	kept.raised = !known
	c.await(kept)
	return csid, nil
}

// admitAnnouncement applies the limits in all and for each caller; one that replaces the caller's own takes no room.
func (c *Core) admitAnnouncement(k key, by string) error {
	l, old := &c.cfg.Limits, c.announced.get(k)
	switch {
	case old == nil && c.announced.len() >= l.Announcements:
		return fmt.Errorf("%d announcements wait already: %w", c.announced.len(), cats.ReasonOverload)
	case (old == nil || old.by != by) && c.announced.caller.Of(by) >= l.AnnouncedByOne:
		return fmt.Errorf("%d announcements of %s wait already: %w", c.announced.caller.Of(by), by, cats.ReasonOverload)
	}
	return nil
}

// raise has the data plane hand a flow up, once in a Step however often it is announced.
func (c *Core) raise(f AnnouncedFlow) {
	for i := range c.out.Announced {
		if c.out.Announced[i].Key == f.Key {
			c.out.Announced[i] = f
			return
		}
	}
	c.out.Announced = append(c.out.Announced, f)
}

// attachmentOf gives the attachment that an announced flow will come in on: the named one, or the one with the longest
// prefix that holds the source.
func (c *Core) attachmentOf(a *Announcement) (found *Attachment, err error) {
	source := a.Tuple.Source.Addr()
	if a.Attachment != "" {
		if at, ok := c.admits(a.Attachment, source); ok {
			return at, nil
		}
		return nil, fmt.Errorf("the source %s is outside the client attachment %q of %s: %w", source, a.Attachment, c.cfg.Name, cats.ReasonUnauthorized)
	}
	longest := -1
	for i := range c.cfg.Attachments {
		if at := &c.cfg.Attachments[i]; at.match(source) > longest {
			found, longest = at, at.match(source)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("the source %s is outside every client attachment of %s: %w", source, c.cfg.Name, cats.ReasonUnauthorized)
	}
	return found, nil
}

// await lets an announcement wait for its flow, or for the flow's next try.
func (c *Core) await(a *announcement) {
	a.expires = c.now.Add(c.cfg.Limits.AnnounceLife)
	if a.raised { // also while the flow is pending, up to its deadline
		c.raise(AnnouncedFlow{a.flow, c.cfg.Limits.AnnounceLife + c.cfg.Limits.PendingDeadline})
	}
	c.announced.put(a)
}

// giveBack keeps the announcement of a flow that failed, since only an admitted flow has used it: what the client sends
// again must not pass without the constraints that it was refused by (CP section 11).
func (c *Core) giveBack(a *announcement) {
	if a != nil && c.announced.get(a.key) == nil && c.announced.len() < c.cfg.Limits.Announcements {
		c.await(a)
		return
	}
	c.lower(a)
}

// lower ends what an announcement asked of the data plane.
func (c *Core) lower(a *announcement) {
	if a == nil || !a.raised || c.announced.get(a.key) != nil {
		return
	}
	c.out.Announced = append(c.out.Announced, AnnouncedFlow{Key: a.flow})
}

func (c *Core) expireAnnouncements() {
	for c.announced.next() <= c.now {
		a := c.announced.first()
		c.announced.remove(a.key)
		c.lower(a)
		c.stats.AnnounceLost++
	}
}
