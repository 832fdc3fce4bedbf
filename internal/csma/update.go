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
	if now >= v.critical || v.waiting() && now >= v.routine {
		c.sendChanges(now, v)
	}
	if now >= v.refresh {
		c.send(now, v, cats.UpdateRefresh, nil)
	}
	deadline := min(v.full, v.refresh, v.critical)
	if v.waiting() {
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
	c.send(now, v, cats.UpdateFull, records)
	v.removal, v.unapplied = v.sequence, v.sequence
	v.full = now.Add(c.config.Heartbeat)
}

// sendChanges tells what waits: withdrawals in one message, changed rows in the next. Where what was critical is gone
// again, the rest waits for its time. The SCIs of what is critical pay with a token each.
func (c *Core) sendChanges(now cats.Instant, v *view) {
	v.critical = min(v.withdrawal, v.sift(&c.config.Thresholds))
	if now < v.critical && now < v.routine {
		return
	}
	message := v.sequence + 1
	for i := range v.withdrawn {
		v.buckets.take(now, v.withdrawn[i].CSCIID, message)
	}
	records := make([]cats.Record, 0, len(v.queue))
	for _, r := range v.queue {
		if t := v.told[r]; t.due != cats.Never && !t.repeat {
			v.buckets.take(now, r.csci, message)
		}
		records = append(records, v.tell(now, r))
	}
	withdrawn := v.withdrawn
	v.dequeue()
	if len(withdrawn) > 0 {
		c.send(now, v, cats.UpdateWithdraw, withdrawn)
		v.removal = v.sequence
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
