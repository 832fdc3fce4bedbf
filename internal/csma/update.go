package csma

import "github.com/margay-net/margay/cats"

// flush makes the updates that a C-PS is due now and gives the time of the next.
func (c *Core) flush(now cats.Instant, v *view) cats.Instant {
	if !v.open || !c.settled {
		return cats.Never
	}
	if now >= v.full {
		c.sendFull(now, v)
	}
	if len(v.withdrawn) > 0 {
		c.send(now, v, cats.UpdateWithdraw, v.withdrawn)
		v.removal, v.withdrawn = v.sequence, nil
	}
	if v.critical || len(v.queue) > 0 && now >= v.routine {
		c.sendDelta(now, v)
	}
	if now >= v.refresh {
		c.send(now, v, cats.UpdateRefresh, nil)
	}
	deadline := min(v.full, v.refresh)
	if len(v.queue) > 0 {
		deadline = min(deadline, v.routine)
	}
	return deadline
}

// sendFull replaces at the C-PS all that it has of this C-SMA. FAILED rows are not in it: they are withdrawn.
func (c *Core) sendFull(now cats.Instant, v *view) {
	records := make([]cats.Record, 0, c.cache.fresh.length+c.cache.stale.length)
	for _, l := range []*rowList{&c.cache.fresh, &c.cache.stale} {
		for r := l.front; r != nil; r = r.next {
			records = append(records, v.tell(now, r))
		}
	}
	v.dequeue()
	v.withdrawn = nil
	c.send(now, v, cats.UpdateFull, records)
	v.removal, v.unapplied = v.sequence, v.sequence
	v.full = now.Add(c.config.Heartbeat)
}

// sendDelta tells the queued rows, unless what made them worth it is gone again.
func (c *Core) sendDelta(now cats.Instant, v *view) {
	records := make([]cats.Record, 0, len(v.queue))
	for _, r := range v.dequeue() {
		if r.reporting != cats.ReportingFailed && v.told[r].urgency(r, &c.config.Thresholds) != negligible {
			records = append(records, v.tell(now, r))
		}
	}
	if len(records) > 0 {
		c.send(now, v, cats.UpdateDelta, records)
	}
}

// tell gives the record of r for the next update and notes it as told.
func (v *view) tell(now cats.Instant, r *row) cats.Record {
	t := v.entry(r)
	*t = told{record: r.record(now), sequence: v.sequence + 1, current: true}
	return t.record
}

// send makes one update. Whatever it is, it holds off the next routine one and the next REFRESH.
func (c *Core) send(now cats.Instant, v *view, kind cats.UpdateKind, records []cats.Record) {
	v.sequence++
	base := v.base
	if kind == cats.UpdateFull {
		base = 0
	}
	c.effects.Updates = append(c.effects.Updates, Outgoing{v.cps, cats.MetricUpdate{
		UpdateHeader: cats.UpdateHeader{
			Source: c.config.Name, Site: c.config.Site, Epoch: c.epoch, Sequence: v.sequence, Kind: kind, Base: base, TTL: c.config.TTL,
		},
		Records: records,
	}})
	v.base = v.sequence
	v.refresh = now.Add(c.config.Heartbeat / 2)
	if kind != cats.UpdateRefresh {
		v.routine = now.Add(c.config.MinInterval)
	}
}
