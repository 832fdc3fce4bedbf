package cnma

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/cats"
)

// metrics are the daemon's own; the names of C-PSs, which are configured, are the only labels that are not a closed list.
type metrics struct {
	updates    *prometheus.CounterVec
	refused    prometheus.Counter
	generation atomic.Uint64
}

func newMetrics(a *App) *metrics {
	m := &metrics{
		updates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "margay_cnma_updates_total", Help: "Updates handed to a session, by C-PS and kind.",
		}, []string{"cps", "kind"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "margay_cnma_topologies_refused_total", Help: "Topologies that a source reported and that were not taken.",
		}),
	}
	registry := a.base.Registry
	registry.MustRegister(m.updates, m.refused)
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	gauge("margay_cnma_topology_generation", "Generation of the topology; grows with each change.", nil,
		func() float64 { return float64(m.generation.Load()) })
	gauge("margay_cnma_event_queue_depth", "Session events that wait for the core.", nil,
		func() float64 { return float64(len(a.events)) })
	for name, client := range a.clients {
		label := prometheus.Labels{"cps": name}
		for _, kind := range []cats.UpdateKind{cats.UpdateFull, cats.UpdateRefresh} {
			m.updates.WithLabelValues(name, kind.String())
		}
		gauge("margay_cnma_cps_current", "1 if the C-PS has applied an update in its session of now.", label, func() float64 {
			if a.views.isCurrent(name) {
				return 1
			}
			return 0
		})
		gauge("margay_cnma_send_queue_depth", "Updates that wait to be sent.", label, func() float64 { return float64(client.Depth()) })
	}
	return m
}

func (m *metrics) sent(cps string, kind cats.UpdateKind) {
	m.updates.WithLabelValues(cps, kind.String()).Inc()
}
