package cps

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/cps"
	"github.com/margay-net/margay/internal/cps/selection"
	"github.com/margay-net/margay/internal/observe"
)

// metrics shows the core's counters as the last Step left them. Every label is from a closed list.
type metrics struct {
	app      *App
	last     atomic.Pointer[numbers]
	deciding *observe.Condition
	topology *observe.Condition
}

type numbers struct {
	core.Counters
	core.Gauges
}

func newMetrics(a *App) *metrics {
	m := &metrics{app: a, deciding: a.base.Health.Condition("deciding"), topology: a.base.Health.Condition("topology")}
	m.topology.Fails("no C-NMA has said anything yet")
	m.last.Store(&numbers{})
	a.base.Registry.MustRegister(m)
	return m
}

// note takes the numbers after a Step, and tells whether the C-PS is of use.
func (m *metrics) note(c *core.Core) {
	n := &numbers{c.Counters(), c.Gauges()}
	m.last.Store(n)
	switch {
	case n.Fenced != "":
		m.deciding.Fails(n.Fenced)
	case !n.Open:
		m.deciding.Fails(fmt.Sprintf("%d of %d forwarders were heard, bindings are being rebuilt", n.Connected, n.Expected))
	default:
		m.deciding.Holds(fmt.Sprintf("%d of %d forwarders have a session", n.Connected, n.Expected))
	}
	if n.NSTGeneration > 0 {
		m.topology.Holds(fmt.Sprintf("NST generation %d", n.NSTGeneration))
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("margay_cps_"+name, help, labels, nil)
}

var (
	serviceRequests = desc("service_requests_total", "Service requests of ingresses.")
	duplicates      = desc("duplicate_requests_total", "Service requests that repeat a known transaction.")
	joined          = desc("joined_requests_total", "Service requests that joined the transaction of their key.")
	selections      = desc("selections_total", "Joint selections.")
	pathRequests    = desc("path_requests_total", "Path requests to the PCE.")
	admitted        = desc("admitted_flows_total", "Flows that became ACTIVE.")
	restored        = desc("restored_flows_total", "Flows rebuilt from the forwarders' records.")
	refused         = desc("refused_requests_total", "Service requests that were refused, by reason.", "reason")
	ended           = desc("ended_flows_total", "ACTIVE flows that ended, by reason.", "reason")
	candidates      = desc("candidates_total", "Candidates of selections, by the stage that removed them; none: ranked.", "stage")
	updates         = desc("metric_updates_total", "Metric updates applied.")
	rejected        = desc("rejected_records_total", "Records left out of metric updates.")
	strays          = desc("stray_statuses_total", "Statuses of bindings that are not known here.")
	mistakes        = desc("refused_transitions_total", "Transitions that the flow state machine does not have; above 0 is a mistake in the program.")

	flows         = desc("flows", "Flows, by state.", "state")
	pending       = desc("pending_transactions", "Transactions under way.")
	holding       = desc("flows_holding_slots", "Flows that hold slots.")
	cstGeneration = desc("cst_generation", "Generation of the CST.")
	nstGeneration = desc("nst_generation", "Generation of the NST.")
	connected     = desc("forwarders_connected", "Forwarders with a session.")
	expected      = desc("forwarders_configured", "Forwarders of the domain.")
	depth         = desc("queue_depth", "Events that wait for the core.")
)

// Describe is for prometheus.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		serviceRequests, duplicates, joined, selections, pathRequests, admitted, restored, refused, ended, candidates, updates, rejected,
		strays, mistakes, flows, pending, holding, cstGeneration, nstGeneration, connected, expected, depth,
	} {
		to <- d
	}
}

// Collect is for prometheus.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	n := m.last.Load()
	give := func(kind prometheus.ValueType, d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	for d, value := range map[*prometheus.Desc]uint64{
		serviceRequests: n.Requests, duplicates: n.Duplicates, joined: n.Joined, selections: n.Selections, pathRequests: n.PathRequests,
		admitted: n.Admitted, restored: n.Restored, updates: n.Updates, rejected: n.RejectedRecords, strays: n.Strays, mistakes: n.RefusedTransitions,
	} {
		give(prometheus.CounterValue, d, float64(value))
	}
	for _, reason := range cats.Reasons() {
		give(prometheus.CounterValue, refused, float64(n.Refused[reason]), reason.String())
		give(prometheus.CounterValue, ended, float64(n.Ended[reason]), reason.String())
	}
	for stage, value := range n.Stages {
		give(prometheus.CounterValue, candidates, float64(value), selection.Stage(stage).String())
	}
	for state := cats.Pending; int(state) < len(n.Flows); state++ {
		give(prometheus.GaugeValue, flows, float64(n.Flows[state]), state.String())
	}
	for d, value := range map[*prometheus.Desc]int{
		pending: n.Pending, holding: n.Debited, connected: n.Connected, expected: n.Expected, depth: len(m.app.events),
	} {
		give(prometheus.GaugeValue, d, float64(value))
	}
	give(prometheus.GaugeValue, cstGeneration, float64(n.CSTGeneration))
	give(prometheus.GaugeValue, nstGeneration, float64(n.NSTGeneration))
}
