package csma

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/csma"
)

// metrics are the daemon's own. The only labels that are not a closed list are the configured names of C-PSes.
type metrics struct {
	reports *prometheus.CounterVec
	updates *prometheus.CounterVec
	counts  atomic.Pointer[csma.Counts] // as the last Step left them
}

func newMetrics(a *App) *metrics {
	m := &metrics{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "margay_csma_reports_total", Help: "SCI reports, by what became of them."}, []string{"disposal"}),
		updates: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "margay_csma_updates_total", Help: "Updates sent, by C-PS and kind."}, []string{"cps", "kind"}),
	}
	m.counts.Store(&csma.Counts{})
	for _, d := range []cats.Disposal{cats.ReportAccepted, cats.ReportQuarantined, cats.ReportRefused} {
		m.reports.WithLabelValues(d.String())
	}
	registry := a.base.Registry
	registry.MustRegister(m.reports, m.updates)
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	gauge("margay_csma_queue_depth", "Events that wait for the core.", nil, func() float64 { return float64(len(a.events)) })
	gauge("margay_csma_agents", "SCI agents with a session.", nil, func() float64 { return float64(a.collector.Open()) })
	const rows = "Rows of the cache, by reporting state."
	gauge("margay_csma_rows", rows, prometheus.Labels{"reporting": "HEALTHY"}, func() float64 { return float64(m.counts.Load().Healthy) })
	gauge("margay_csma_rows", rows, prometheus.Labels{"reporting": "STALE"}, func() float64 { return float64(m.counts.Load().Stale) })
	gauge("margay_csma_rows", rows, prometheus.Labels{"reporting": "FAILED"}, func() float64 { return float64(m.counts.Load().Failed) })
	for name, client := range a.clients {
		labels := prometheus.Labels{"cps": name}
		gauge("margay_csma_cps_connected", "1 with a session, 0 without.", labels, func() float64 {
			if a.links.connected(name) {
				return 1
			}
			return 0
		})
		gauge("margay_csma_cps_queue_depth", "Updates that wait to be sent.", labels, func() float64 { return float64(client.Depth()) })
	}
	return m
}
