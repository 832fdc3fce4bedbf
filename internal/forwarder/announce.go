package forwarder

import (
	"errors"
	"fmt"

	"github.com/margay-net/margay/cats"
)

// announcement is request metadata that waits for its flow.
type announcement struct {
	flow        cats.FlowKey
	key         key
	identity    Identity
	constraints cats.Constraints
	generation  uint16
	expires     cats.Instant
	raised      bool // the data plane was asked to hand this flow up
}

// announce keeps the metadata of a coming flow and answers the caller (CP section 6, Mode B).
func (c *Core) announce(a *Announcement) {
	answer := AnnounceAnswer{Token: a.Token}
	csid, err := c.keepAnnouncement(a)
	if err != nil {
		answer.Reason, answer.Detail = reasonOf(err), err.Error()
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
	if c.announced[k] == nil && len(c.announced) >= c.cfg.Limits.Announcements {
		return "", fmt.Errorf("%d announcements wait already: %w", len(c.announced), cats.ReasonOverload)
	}
	kept := &announcement{
		flow: cats.FlowKey{Attachment: at.Name, Tenant: at.Tenant, Tuple: a.Tuple}, key: k,
		identity: a.Identity, constraints: a.Constraints, generation: a.Generation,
		expires: c.now.Add(c.cfg.Limits.AnnounceLife),
	}
	service, known := c.services.service(a.Tuple.Protocol, a.Tuple.Target)
	if known {
		csid = service
	} else {
		kept.raised = true // also while the flow is pending, up to its deadline
		c.out.Announced = append(c.out.Announced, AnnouncedFlow{kept.flow, c.cfg.Limits.AnnounceLife + c.cfg.Limits.PendingDeadline})
	}
	c.announced[k] = kept
	c.announceDue.add(kept.expires, k)
	return csid, nil
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

// takeAnnouncement gives the announcement of a flow, once. The data plane goes on handing the flow up until lower.
func (c *Core) takeAnnouncement(k key) *announcement {
	a := c.announced[k]
	if a != nil {
		delete(c.announced, k)
		c.stats.AnnounceUsed++
	}
	return a
}

// lower ends what an announcement asked of the data plane.
func (c *Core) lower(a *announcement) {
	if a == nil || !a.raised || c.announced[a.key] != nil {
		return
	}
	c.out.Announced = append(c.out.Announced, AnnouncedFlow{Key: a.flow})
}

func (c *Core) expireAnnouncements() {
	for {
		due, ok := c.announceDue.take(c.now)
		if !ok {
			return
		}
		if a := c.announced[due.what]; a != nil && a.expires <= c.now {
			delete(c.announced, due.what)
			c.lower(a)
			c.stats.AnnounceLost++
		}
	}
}

// reasonOf gives the reason that err wraps; every error of this package wraps one.
func reasonOf(err error) cats.Reason {
	var r cats.Reason
	if errors.As(err, &r) {
		return r
	}
	return cats.ReasonMalformed
}
