package sci

import (
	"time"

	"github.com/margay-net/margay/cats"
)

// Link is a change of the connection to the C-SMA.
type Link uint8

// The link changes. After LinkUp everything is reported anew, after LinkDown nothing is.
const (
	LinkUp Link = iota
	LinkDown
)

// Probe asks for one health check of a service. Its outcome comes back as an Observation with the same Serial.
type Probe struct {
	CSID   cats.CSID
	Serial uint64
}

// Observation is the outcome of a Probe.
type Observation struct {
	Probe
	OK bool
}

// HealthChange is a transition of a service's health, for the log.
type HealthChange struct {
	CSID     cats.CSID
	From, To cats.Health
}

// Events are what happened since the last Step.
type Events struct {
	Config       *Config // replaces the configuration; nil: unchanged; must pass Config.Check
	Links        []Link  // in order
	Observations []Observation
}

// Effects are what a Step wants done. The slices are reused: carry them out before the next Step.
type Effects struct {
	Probes  []Probe
	Reports []cats.SCIReport
	Changes []HealthChange
}

// Reset empties e and keeps its memory.
func (e *Effects) Reset() {
	e.Probes, e.Reports, e.Changes = e.Probes[:0], e.Reports[:0], e.Changes[:0]
}

// Reporter is the core of an SCI agent. It is not safe for concurrent use; its owner calls Step from one goroutine.
type Reporter struct {
	config   Config
	epoch    uint64
	sequence uint64
	serial   uint64
	services []*service // in the order of the configuration
	linked   bool
	full     cats.Instant // when the next full report is due
}

// service is what the Reporter keeps of one service.
type service struct {
	Service
	tracker  Tracker
	probe    uint64       // serial of the check under way; 0: none
	next     cats.Instant // when the next check is due
	reported cats.ServiceReport
	told     bool // reported is what the C-SMA has
}

// New gives the Reporter of a freshly started SCI. The configuration must pass Config.Check; epoch must be higher than
// that of every earlier start: max(stored + 1, now in ms), stored before the first report is sent.
func New(config Config, epoch uint64) *Reporter {
	r := &Reporter{epoch: epoch}
	r.configure(config)
	return r
}

// Step takes the events up to now, writes what to do into effects (after a Reset), and gives the time by which it
// wants to be called again if nothing happens before.
func (r *Reporter) Step(now cats.Instant, events *Events, effects *Effects) cats.Instant {
	effects.Reset()
	if events.Config != nil {
		r.configure(*events.Config)
		r.full = now
	}
	for _, l := range events.Links {
		r.linked = l == LinkUp
		r.full = now
	}
	for _, o := range events.Observations {
		r.observe(now, o, effects)
	}
	deadline := cats.Never
	for _, s := range r.services {
		deadline = min(deadline, r.check(now, s, effects))
	}
	if r.linked {
		r.report(now, effects)
		deadline = min(deadline, r.full)
	}
	return deadline
}

// configure takes a configuration over; services that stay keep their health.
func (r *Reporter) configure(config Config) {
	old := r.services
	r.config, r.services = config, make([]*service, 0, len(config.Services))
	for _, wanted := range config.Services {
		s := &service{}
		for _, o := range old {
			if o.CSID == wanted.CSID {
				s = o
			}
		}
		s.Service, s.tracker.Rules, s.tracker.Interval = wanted, config.Rules, wanted.CheckInterval
		r.services = append(r.services, s)
	}
}

func (r *Reporter) observe(now cats.Instant, o Observation, effects *Effects) {
	for _, s := range r.services {
		if s.CSID != o.CSID || s.probe != o.Serial || o.Serial == 0 {
			continue
		}
		s.probe = 0
		from := s.tracker.Health()
		if s.tracker.Observe(now, o.OK) {
			effects.Changes = append(effects.Changes, HealthChange{s.CSID, from, s.tracker.Health()})
		}
	}
}

// check asks for the next health check of s when it is due and none is under way, and ages its health.
func (r *Reporter) check(now cats.Instant, s *service, effects *Effects) cats.Instant {
	from := s.tracker.Health()
	if s.tracker.Age(now) {
		effects.Changes = append(effects.Changes, HealthChange{s.CSID, from, s.tracker.Health()})
	}
	if s.probe == 0 && now >= s.next {
		r.serial++
		s.probe, s.next = r.serial, now.Add(s.CheckInterval)
		effects.Probes = append(effects.Probes, Probe{s.CSID, s.probe})
	}
	deadline := s.tracker.Deadline()
	if s.probe == 0 {
		deadline = min(deadline, s.next)
	}
	return deadline
}

// report sends every service when the interval is over, and before that only those that changed.
func (r *Reporter) report(now cats.Instant, effects *Effects) {
	full := now >= r.full
	var services []cats.ServiceReport
	for _, s := range r.services {
		current := r.measure(s)
		if full || !s.told || differs(&current, &s.reported) {
			s.reported, s.told = current, true
			services = append(services, current)
		}
	}
	if full {
		r.full = now.Add(r.config.Interval)
	}
	if len(services) == 0 {
		return
	}
	r.sequence++
	effects.Reports = append(effects.Reports, cats.SCIReport{
		CSCIID: r.config.CSCIID, Site: r.config.Site,
		Epoch: r.epoch, Sequence: r.sequence, Timestamp: now.Wall(), Interval: r.config.Interval,
		Full: full, Services: services,
	})
}

// measure gives the report on s as it is now.
func (r *Reporter) measure(s *service) cats.ServiceReport {
	health := s.tracker.Health()
	report := cats.ServiceReport{CSID: s.CSID, Version: s.Version, Health: health, Metrics: s.metrics()}
	report.Metrics.GAS = Weighted(Slots(s.Resources, s.MaxSlots), health, r.config.Degraded)
	switch health {
	case cats.Healthy:
		report.Healthy = 1
	case cats.Degraded:
		report.Degraded = 1
	case cats.Unhealthy:
		report.Failing = 1
	default:
		report.Unknown = 1
	}
	return report
}

// differs tells whether a change is worth a report at once.
func differs(a, b *cats.ServiceReport) bool {
	x, y := &a.Metrics, &b.Metrics
	return a.Health != b.Health || a.Version != b.Version || x.GAS != y.GAS || x.ComputingTimeMS != y.ComputingTimeMS ||
		x.Price != y.Price || x.Reputation != y.Reputation || x.SecurityLevel != y.SecurityLevel
}

// Health gives the health of a service, and false where the Reporter has no such service.
func (r *Reporter) Health(id cats.CSID) (cats.Health, bool) {
	for _, s := range r.services {
		if s.CSID == id {
			return s.tracker.Health(), true
		}
	}
	return cats.HealthUnknown, false
}

// DefaultInterval, DefaultCheckInterval and DefaultDegraded are the settled defaults of docs/by-reference.md sections 2
// and 6.
const (
	DefaultInterval      = 5 * time.Second
	DefaultCheckInterval = time.Second
	DefaultDegraded      = 0.5
)
