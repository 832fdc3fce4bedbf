package csma

import (
	"slices"

	"github.com/margay-net/margay/cats"
)

// Core is the state of one C-SMA. It is not safe for concurrent use; its owner calls Step from one goroutine.
type Core struct {
	config  Config
	epoch   uint64
	cache   cache
	views   []*view      // one per C-PS, in the order of the configuration
	started cats.Instant // first Step
	settled bool         // the first FULL may go out
	effects *Effects     // of the running Step
}

// New gives the Core of a freshly started C-SMA. The configuration must pass Config.Check; epoch must be higher than
// that of every earlier start and stored before the first update is sent.
func New(config Config, epoch uint64) *Core {
	c := &Core{epoch: epoch, started: cats.Never}
	c.cache.instances = make(map[cats.CSCIID]*instance)
	c.cache.services = make(map[cats.CSID][]*row)
	c.configure(0, config)
	return c
}

// Step takes the events up to now, writes what to do into effects (after a Reset), and gives the time by which it
// wants to be called again if nothing happens before.
func (c *Core) Step(now cats.Instant, events *Events, effects *Effects) cats.Instant {
	effects.Reset()
	c.effects = effects
	c.started = min(c.started, now)
	if events.Config != nil {
		c.configure(now, *events.Config)
	}
	for _, s := range events.Sessions {
		c.session(now, s)
	}
	for i := range events.Reports {
		r := &events.Reports[i]
		err := c.validate(now, r)
		if err == nil {
			c.accept(now, r)
		}
		effects.Outcomes = append(effects.Outcomes, err)
	}
	deadline := c.age(now)
	c.settle(now)
	if !c.settled {
		deadline = min(deadline, c.started.Add(c.config.Interval))
	}
	for _, v := range c.views {
		deadline = min(deadline, c.flush(now, v))
	}
	c.effects = nil
	return deadline
}

// settle lets the first FULL out. A FULL removes at the C-PS whatever it leaves out, so a C-SMA that was restarted
// first hears all its instances, or waits for one interval.
func (c *Core) settle(now cats.Instant) {
	if c.settled {
		return
	}
	c.settled = now >= c.started.Add(c.config.Interval)
	for _, i := range c.cache.instances {
		if i.sequence == 0 {
			return
		}
	}
	c.settled = true
}

// configure takes a configuration over. Rows whose grant is gone are withdrawn.
func (c *Core) configure(now cats.Instant, config Config) {
	c.config = config
	old := c.cache.instances
	c.cache.instances = make(map[cats.CSCIID]*instance, len(config.Grants))
	for _, g := range config.Grants {
		i := &instance{agent: g.Agent, services: g.Services, rows: make(map[cats.CSID]*row, len(g.Services))}
		if o := old[g.CSCIID]; o != nil && o.agent == g.Agent {
			i.epoch, i.sequence, i.rows = o.epoch, o.sequence, o.rows
		}
		c.cache.instances[g.CSCIID] = i
	}
	c.dropUngranted(now)
	c.configureViews()
}

func (c *Core) dropUngranted(now cats.Instant) {
	for _, l := range []*rowList{&c.cache.fresh, &c.cache.stale, &c.cache.faded} {
		for r := l.front; r != nil; {
			next := r.next
			if i := c.cache.instances[r.csci]; i == nil || !slices.Contains(i.services, r.cs) || i.rows[r.cs] != r {
				c.remove(now, r, false)
			}
			r = next
		}
	}
	for c.cache.length() > c.config.MaxRows {
		c.remove(now, c.cache.oldest(), true)
	}
}

// accept brings a valid report into the cache.
func (c *Core) accept(now cats.Instant, r *Report) {
	i := c.cache.instances[r.CSCIID]
	i.epoch, i.sequence = r.Epoch, r.Sequence
	for k := range r.Services {
		c.update(now, i, &r.SCIReport, &r.Services[k])
	}
	if !r.Full {
		return
	}
	for _, id := range i.services {
		if old := i.rows[id]; old != nil && (old.epoch != r.Epoch || old.sequence != r.Sequence) {
			c.remove(now, old, false)
		}
	}
}

func (c *Core) update(now cats.Instant, i *instance, report *cats.SCIReport, s *cats.ServiceReport) {
	r := i.rows[s.CSID]
	if r == nil {
		for c.cache.length() >= c.config.MaxRows {
			c.remove(now, c.cache.oldest(), true)
		}
		r = &row{csci: report.CSCIID, cs: s.CSID, reporting: cats.ReportingActive}
		r.priceAt, r.reputationAt, r.securityAt, r.extensionsAt = never, never, never, never
		c.cache.insert(r)
	}
	before := r.state()
	r.take(now, report, s, now.Add(-quasiStaticTTL*c.config.Interval))
	c.cache.move(r, cats.ReportingHealthy)
	c.changed(r, before)
	for _, v := range c.views {
		v.note(now, r, &c.config)
	}
}

// never is before every instant of a value's last report.
const never cats.Instant = -1 << 62

// age moves silent rows from HEALTHY to STALE to FAILED (C-SMA sections 5.2 and 10.1) and gives the next such moment.
func (c *Core) age(now cats.Instant) cats.Instant {
	stale := dynamicTTL * c.config.Interval
	failed := stale + graceTTL*c.config.Interval
	for r := c.cache.fresh.front; r != nil && now >= r.updated.Add(stale); r = c.cache.fresh.front {
		before := r.state()
		c.cache.move(r, cats.ReportingStale)
		c.changed(r, before)
		for _, v := range c.views {
			v.note(now, r, &c.config)
		}
	}
	for r := c.cache.stale.front; r != nil && now >= r.updated.Add(failed); r = c.cache.stale.front {
		before := r.state()
		c.cache.move(r, cats.ReportingFailed)
		r.health, r.metrics.GAS, r.metrics.InFlight = cats.Unhealthy, 0, 0
		c.changed(r, before)
		for _, v := range c.views {
			v.withdraw(now, r, &c.config)
		}
	}
	deadline := cats.Never
	if r := c.cache.fresh.front; r != nil {
		deadline = r.updated.Add(stale)
	}
	if r := c.cache.stale.front; r != nil {
		deadline = min(deadline, r.updated.Add(failed))
	}
	return deadline
}

// remove takes a row out of the cache and withdraws it from every C-PS that has it.
func (c *Core) remove(now cats.Instant, r *row, evicted bool) {
	for _, v := range c.views {
		v.withdraw(now, r, &c.config)
		delete(v.told, r)
	}
	before := r.state()
	before.Evicted = evicted
	r.reporting, r.health = cats.ReportingFailed, cats.HealthUnknown
	c.changed(r, before)
	c.cache.remove(r)
}

// state gives the beginning of a transition of r.
func (r *row) state() Change {
	return Change{CSCIID: r.csci, CSID: r.cs, ReportingFrom: r.reporting, HealthFrom: r.health}
}

// changed notes the transition of r since before, if there was one.
func (c *Core) changed(r *row, before Change) {
	before.Reporting, before.Health = r.reporting, r.health
	if before.Evicted || before.Reporting != before.ReportingFrom || before.Health != before.HealthFrom {
		c.effects.Changes = append(c.effects.Changes, before)
	}
}

// Counts are the sizes of the cache, for metrics.
type Counts struct {
	Instances, Services, Healthy, Stale, Failed int
}

// Counts gives how much the cache holds.
func (c *Core) Counts() Counts {
	return Counts{
		Instances: len(c.cache.instances), Services: len(c.cache.services),
		Healthy: c.cache.fresh.length, Stale: c.cache.stale.length, Failed: c.cache.faded.length,
	}
}
