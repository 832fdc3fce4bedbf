package csma

import (
	"fmt"
	"slices"

	"github.com/margay-net/margay/cats"
)

// validate gives nil, or the reason why a report must not reach the cache (C-SMA sections 4.2 and 12). One fault in it
// refuses the whole report.
func (c *Core) validate(now cats.Instant, r *Report) error {
	i := c.cache.instances[r.CSCIID]
	if i == nil || i.agent != r.Agent {
		return fmt.Errorf("agent %q may not report on instance %q: %w", r.Agent, r.CSCIID, cats.ReasonUnauthorized)
	}
	if r.Site != c.config.Site {
		return fmt.Errorf("instance %q claims site %q, this is %q: %w", r.CSCIID, r.Site, c.config.Site, cats.ReasonUnauthorized)
	}
	for k := range r.Services {
		s := &r.Services[k]
		if !slices.Contains(i.services, s.CSID) {
			return fmt.Errorf("instance %q may not report on service %q: %w", r.CSCIID, s.CSID, cats.ReasonUnauthorized)
		}
		// Every earlier one is granted and different, so that there are at most as many as grants.
		if slices.ContainsFunc(r.Services[:k], func(o cats.ServiceReport) bool { return o.CSID == s.CSID }) {
			return fmt.Errorf("instance %q reports service %q twice: %w", r.CSCIID, s.CSID, cats.ReasonMalformed)
		}
		if err := checkValues(s); err != nil {
			return fmt.Errorf("instance %q, service %q: %w", r.CSCIID, s.CSID, err)
		}
	}
	return i.checkOrder(now, r)
}

// checkValues is range validation (C-SMA section 4.2). How long a text and how many extensions there may be, the message
// form limits.
func checkValues(s *cats.ServiceReport) error {
	if s.Health > cats.Unhealthy {
		return fmt.Errorf("health %v: %w", s.Health, cats.ReasonMalformed)
	}
	return s.Metrics.CheckRange()
}

// checkOrder is sequence validation (C-SMA section 4.2): only a report above the last accepted one counts.
func (i *instance) checkOrder(now cats.Instant, r *Report) error {
	if limit := uint64(now.Add(maxAhead).Wall().UnixMilli()); r.Epoch > limit {
		return fmt.Errorf("instance %q: epoch %d is more than %v ahead of the clock: %w", r.CSCIID, r.Epoch, maxAhead, cats.ReasonRange)
	}
	switch {
	case r.Epoch == i.epoch && r.Sequence == i.sequence && i.sequence != 0:
		return fmt.Errorf("instance %q: report %d.%d was accepted before: %w", r.CSCIID, r.Epoch, r.Sequence, cats.ReasonReplay)
	case r.Epoch < i.epoch || r.Epoch == i.epoch && r.Sequence <= i.sequence:
		return fmt.Errorf("instance %q: report %d.%d is not above %d.%d: %w", r.CSCIID, r.Epoch, r.Sequence, i.epoch, i.sequence, cats.ReasonSequence)
	}
	return nil
}
