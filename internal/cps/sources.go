package cps

import (
	"fmt"
	"maps"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/feed"
)

// source is a C-SMA and its session.
type source struct {
	Source
	session   uint64
	connected bool
}

// replaceSources takes the sources of a new domain. A connected one is asked for everything: the new catalogue may take
// rows that the last one left out.
func (c *Core) replaceSources(sources []Source) {
	before := c.sources
	c.sources = make(map[string]*source, len(sources))
	for _, s := range sources {
		now := &source{Source: s}
		if old := before[s.Name]; old != nil {
			now.session, now.connected = old.session, old.connected
		}
		c.sources[s.Name] = now
	}
	for _, name := range slices.Sorted(maps.Keys(c.sources)) {
		if s := c.sources[name]; s.connected {
			c.replySource(s, SourceNeedFull, SourceReply{Detail: "the catalogue has changed"})
		}
	}
}

// mayReport tells whether a source may report on a deployment (CP section 12).
func (c *Core) mayReport(name string, d *catalogue.Deployment) bool {
	s := c.sources[name]
	return s != nil && s.Site == d.Site && slices.Contains(s.Services, d.CSID)
}

// sourceEvent takes what happened on the session of a C-SMA.
func (c *Core) sourceEvent(e *SourceEvent) {
	s := c.sources[e.Name]
	if s == nil {
		detail := fmt.Sprintf("the domain has no C-SMA %s; add it to the C-PS's configuration", e.Name)
		c.audit(Audit{Event: "source-refused", Subject: e.Name, Reason: cats.ReasonUnauthorized, Detail: detail})
		if !e.Closed {
			c.out.SourceReplies = append(c.out.SourceReplies, SourceReply{Source: e.Name, Session: e.Session,
				Kind: SourceRefused, Reason: cats.ReasonUnauthorized, Detail: detail})
		}
		return
	}
	switch {
	case e.Session < s.session:
	case e.Closed:
		s.connected = s.connected && e.Session != s.session
	case e.Opened:
		s.session, s.connected = e.Session, true
		c.replySource(s, SourceHello, SourceReply{})
	case e.Update != nil && e.Session == s.session:
		c.metricUpdate(s, e.Update)
	}
}

// replySource sends a reply; its position is the last applied one.
func (c *Core) replySource(s *source, kind SourceReplyKind, reply SourceReply) {
	reply.Source, reply.Session, reply.Kind = s.Name, s.session, kind
	if kind != SourceRefused {
		p := c.cst.Position(s.Name)
		reply.Epoch, reply.Sequence = p.Epoch, p.Sequence
	}
	c.out.SourceReplies = append(c.out.SourceReplies, reply)
}

// metricUpdate takes an update of a C-SMA into the CST. It moves no flow: it affects new admissions only, except that
// an instance which a valid report calls UNHEALTHY has failed (CP sections 8.5 and 10).
func (c *Core) metricUpdate(s *source, u *cats.MetricUpdate) {
	if err := s.mayUpdate(u); err != nil {
		c.refuseUpdate(s, u, err)
		return
	}
	result := c.cst.Apply(c.now, u, func(record *cats.Record) error { return c.admitRecord(s, record) })
	switch result.Verdict {
	case feed.Refuse:
		c.refuseUpdate(s, u, result.Err)
	case feed.NeedFull:
		c.replySource(s, SourceNeedFull, SourceReply{
			Detail: fmt.Sprintf("%s %d.%d builds on %d, applied is %d.%d", u.Kind, u.Epoch, u.Sequence, u.Base, result.Position.Epoch, result.Position.Sequence),
		})
	case feed.Repeated:
		c.replySource(s, SourceAck, SourceReply{})
	case feed.Apply:
		c.counters.Updates++
		reply := SourceReply{}
		for _, left := range result.Rejected {
			refused := refuseBy(left.Err)
			c.counters.RejectedRecords++
			c.audit(Audit{Event: "record-refused", Subject: s.Name, Reason: refused.reason, Detail: left.Instance.String() + ": " + refused.detail})
			reply.Rejected = append(reply.Rejected, RejectedRecord{
				CSID: left.Instance.CSID, CSCIID: left.Instance.CSCIID, Reason: refused.reason, Detail: refused.detail,
			})
		}
		c.replySource(s, SourceAck, reply)
		for _, instance := range result.Failed {
			c.failInstance(instance)
		}
	}
}

func (s *source) mayUpdate(u *cats.MetricUpdate) error {
	switch {
	case u.Source != s.Name:
		return fmt.Errorf("the update names source %q, its session is that of %s: %w", u.Source, s.Name, cats.ReasonUnauthorized)
	case u.Site != s.Site:
		return fmt.Errorf("the update is for site %q, %s reports on %s: %w", u.Site, s.Name, s.Site, cats.ReasonUnauthorized)
	case u.TTL <= 0 && u.Kind != cats.UpdateWithdraw:
		return fmt.Errorf("the update has no ttl: %w", cats.ReasonMalformed)
	}
	return nil
}

func (c *Core) admitRecord(s *source, record *cats.Record) error {
	if !slices.Contains(s.Services, record.CSID) {
		return fmt.Errorf("%s may not report on service %s: %w", s.Name, record.CSID, cats.ReasonUnauthorized)
	}
	d := c.catalogue.Deployment(catalogue.Instance{CSID: record.CSID, CSCIID: record.CSCIID})
	switch {
	case d == nil:
		return fmt.Errorf("the catalogue has no such deployment: %w", cats.ReasonUnauthorized)
	case d.Site != s.Site:
		return fmt.Errorf("it is at site %s, %s reports on %s: %w", d.Site, s.Name, s.Site, cats.ReasonUnauthorized)
	}
	return nil
}

func (c *Core) refuseUpdate(s *source, u *cats.MetricUpdate, err error) {
	reason := cats.ReasonOf(err)
	c.audit(Audit{Event: "update-refused", Subject: s.Name, Reason: reason, Detail: err.Error()})
	c.replySource(s, SourceRefused, SourceReply{Epoch: u.Epoch, Sequence: u.Sequence, Reason: reason, Detail: err.Error()})
}
