package forwarder

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	core "github.com/margay-net/margay/internal/forwarder"
	"github.com/margay-net/margay/internal/observe"
)

// metrics are the daemon's own. Labels are from closed lists.
type metrics struct {
	drops         *observe.Reasons
	operations    *prometheus.CounterVec
	releaseErrors prometheus.Counter
	plane         *observe.Condition
	session       *observe.Condition
	provision     *observe.Condition

	stats    atomic.Pointer[core.Stats]        // of the last Step
	counters atomic.Pointer[datapath.Counters] // of the last scan
}

func newMetrics(a *App) *metrics {
	registry := a.base.Registry
	m := &metrics{
		drops: observe.NewReasons(registry, "margay_forwarder_held_drops_total", "Packets that were handed up and dropped, by reason, since the agent started."),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "margay_forwarder_operations_total", Help: "Changes of halves of bindings in the data plane, by operation and outcome.",
		}, []string{"operation", "reason"}),
		releaseErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "margay_forwarder_release_errors_total", Help: "Times that released packets could not be sent into the data plane.",
		}),
		plane:     a.base.Health.Condition("data-plane"),
		session:   a.base.Health.Condition("cps"),
		provision: a.base.Health.Condition("provision"),
	}
	m.session.Fails("no session yet")
	m.provision.Fails("the C-PS has not provisioned yet")
	m.stats.Store(&core.Stats{})
	registry.MustRegister(m.operations, m.releaseErrors, a.full.count, &planeCollector{m}, &statsCollector{m})
	depth := func(queue string, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "margay_forwarder_queue_depth", Help: "What waits, by queue.", ConstLabels: prometheus.Labels{"queue": queue},
		}, value))
	}
	depth("misses", func() float64 { return float64(len(a.misses)) })
	depth("events", func() float64 { return float64(len(a.events)) })
	depth("session", func() float64 { return float64(a.client.Depth()) })
	m.ports(nil, nil)
	return m
}

// ports says whether the data plane is on every port.
func (m *metrics) ports(missing []string, err error) {
	switch {
	case err != nil:
		m.plane.Fails(err.Error())
	case len(missing) > 0:
		m.plane.Fails("there is no interface " + strings.Join(missing, ", "))
	default:
		m.plane.Holds("attached to every port")
	}
}

// provisioned says what became of a provision of the C-PS, after which p is in force.
func (m *metrics) provisioned(r *core.ProvisionResult, p *cats.Provision) {
	if r.Reason != cats.ReasonNone {
		m.provision.Fails(fmt.Sprintf("generation %d was refused (%s): %s; generation %d is in force", r.Generation, r.Reason, r.Detail, p.Generation))
		return
	}
	m.provision.Holds(fmt.Sprintf("generation %d: %d service addresses, %d deliveries", p.Generation, len(p.Services), len(p.Deliveries)))
}

// exhaustion counts what was refused because a table of the data plane had no free number, and logs the first of each.
type exhaustion struct {
	log   *slog.Logger
	count *prometheus.CounterVec
	told  map[string]bool // by table
}

func newExhaustion(log *slog.Logger) *exhaustion {
	e := &exhaustion{log: log, told: make(map[string]bool), count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "margay_forwarder_table_full_total", Help: "Refusals because a table of the data plane had no free number, by table.",
	}, []string{"table"})}
	for _, table := range []string{tablePaths, tableNextHops} {
		e.count.WithLabelValues(table)
	}
	return e
}

func (e *exhaustion) refused(table string) {
	e.count.WithLabelValues(table).Inc()
	if !e.told[table] {
		e.told[table] = true
		e.log.Error("a table of the data plane is full; what needs a place in it is refused until others end. This is logged once", "table", table)
	}
}

// planeCollector gives the totals of the data plane, which outlive the agent, as of the last scan.
type planeCollector struct{ metrics *metrics }

var (
	planeDrops  = prometheus.NewDesc("margay_dataplane_drops_total", "Packets that the data plane dropped, by reason.", []string{"reason"}, nil)
	planePacket = prometheus.NewDesc("margay_dataplane_packets_total", "Packets that the data plane treated, by what it did.", []string{"action"}, nil)
	planeOctets = prometheus.NewDesc("margay_dataplane_octets_total", "Octets of IP of those packets.", []string{"action"}, nil)
)

// Describe is for prometheus.
func (c *planeCollector) Describe(to chan<- *prometheus.Desc) {
	to <- planeDrops
	to <- planePacket
	to <- planeOctets
}

// Collect is for prometheus.
func (c *planeCollector) Collect(to chan<- prometheus.Metric) {
	counters := c.metrics.counters.Load()
	if counters == nil {
		return
	}
	for reason, n := range counters.Drops {
		to <- prometheus.MustNewConstMetric(planeDrops, prometheus.CounterValue, float64(n), reason.String())
	}
	for _, t := range treatments(counters) {
		to <- prometheus.MustNewConstMetric(planePacket, prometheus.CounterValue, float64(t.Packets), t.name)
		to <- prometheus.MustNewConstMetric(planeOctets, prometheus.CounterValue, float64(t.Octets), t.name)
	}
}

// treatment is what the data plane did with packets.
type treatment struct {
	name string
	datapath.Traffic
}

// treatments gives what was done with packets, in a fixed order.
func treatments(c *datapath.Counters) []treatment {
	var all []treatment
	for kind, t := range c.Forwarded {
		all = append(all, treatment{[...]string{"forward", "restore", "deliver", "return"}[kind], t})
	}
	return append(all, treatment{"pass", c.Passed}, treatment{"hold", c.Held}, treatment{"unresolved", c.Unresolved})
}

// statsCollector gives what the core counts, as of the last Step.
type statsCollector struct{ metrics *metrics }

type stat struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
	value       func(*core.Stats) float64
}

var stats = []stat{
	gauge("pending", "Flows that wait for a decision or its commit.", func(s *core.Stats) int { return s.Pending }),
	gauge("held_packets", "Packets held for them.", func(s *core.Stats) int { return s.HeldPackets }),
	gauge("held_octets", "Octets held for them.", func(s *core.Stats) int { return s.HeldOctets }),
	gauge("ingress_bindings", "Ingress halves of bindings.", func(s *core.Stats) int { return s.IngressHalves }),
	gauge("egress_bindings", "Egress halves of bindings.", func(s *core.Stats) int { return s.EgressHalves }),
	gauge("draining_bindings", "Halves of bindings that drain.", func(s *core.Stats) int { return s.Draining }),
	gauge("held_down", "Keys that may not ask again yet.", func(s *core.Stats) int { return s.HeldDown }),
	gauge("announcements", "Announced requests that wait for their flow.", func(s *core.Stats) int { return s.Announcements }),
	total("flows", "New flows that were asked for.", func(s *core.Stats) uint64 { return s.Requests }),
	total("joined_packets", "Further packets that joined a pending flow.", func(s *core.Stats) uint64 { return s.Joined }),
	total("retransmits", "SYNs of pending flows that were counted and not held again.", func(s *core.Stats) uint64 { return s.Retransmits }),
	total("refusals", "Flows that the C-PS refused.", func(s *core.Stats) uint64 { return s.Refusals }),
	total("timeouts", "Flows whose deadline passed.", func(s *core.Stats) uint64 { return s.Timeouts }),
	total("installed", "Halves of bindings that the data plane confirmed.", func(s *core.Stats) uint64 { return s.Installed }),
	total("removed", "Halves of bindings that were taken out.", func(s *core.Stats) uint64 { return s.Removed }),
	total("late_installs", "Bindings of closed transactions, refused.", func(s *core.Stats) uint64 { return s.LateInstalls }),
	total("failed_installs", "Halves of bindings that the data plane refused.", func(s *core.Stats) uint64 { return s.InstallsFailed }),
	total("stale_orders", "Orders of an older epoch, refused.", func(s *core.Stats) uint64 { return s.StaleOrders }),
	total("announcements_used", "Announced requests that met their flow.", func(s *core.Stats) uint64 { return s.AnnounceUsed }),
	total("hold_downs_lost", "Failed keys that are not held down, since too many are.", func(s *core.Stats) uint64 { return s.HoldDownsLost }),
	total("removals_lost", "Removals without session that the C-PS will not be told of, since too many waited.", func(s *core.Stats) uint64 { return s.RemovalsLost }),
	total("announcements_lost", "Announced requests whose flow never came.", func(s *core.Stats) uint64 { return s.AnnounceLost }),
}

func gauge(name, help string, value func(*core.Stats) int) stat {
	return stat{prometheus.NewDesc("margay_forwarder_"+name, help, nil, nil), prometheus.GaugeValue,
		func(s *core.Stats) float64 { return float64(value(s)) }}
}

func total(name, help string, value func(*core.Stats) uint64) stat {
	return stat{prometheus.NewDesc(fmt.Sprintf("margay_forwarder_%s_total", name), help+" Since the agent started.", nil, nil), prometheus.CounterValue,
		func(s *core.Stats) float64 { return float64(value(s)) }}
}

// Describe is for prometheus.
func (c *statsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, s := range stats {
		to <- s.description
	}
}

// Collect is for prometheus.
func (c *statsCollector) Collect(to chan<- prometheus.Metric) {
	now := c.metrics.stats.Load()
	for _, s := range stats {
		to <- prometheus.MustNewConstMetric(s.description, s.kind, s.value(now))
	}
}

// dropped gives every packet drop, in the data plane and of held packets, by reason.
func dropped(counters *datapath.Counters, held map[cats.Reason]uint64) map[cats.Reason]uint64 {
	all := make(map[cats.Reason]uint64, len(counters.Drops))
	for r, n := range counters.Drops {
		all[r] = n + held[r]
	}
	return all
}
