package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/cats"
)

// Reasons counts by reason: the closed list is its only label, and every reason is there from the start at zero. It is
// safe for concurrent use.
type Reasons struct {
	counters map[cats.Reason]prometheus.Counter // never written after NewReasons
}

// NewReasons registers a counter such as "margay_refusals_total" with the label "reason".
func NewReasons(registry prometheus.Registerer, name, help string) *Reasons {
	vector := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"reason"})
	registry.MustRegister(vector)
	r := &Reasons{counters: map[cats.Reason]prometheus.Counter{}}
	for _, reason := range cats.Reasons() {
		r.counters[reason] = vector.WithLabelValues(reason.String())
	}
	return r
}

// Inc counts one.
func (r *Reasons) Inc(reason cats.Reason) { r.Add(reason, 1) }

// Add counts n. A reason that is not in the closed list is a programming error and panics.
func (r *Reasons) Add(reason cats.Reason, n uint64) {
	counter, ok := r.counters[reason]
	if !ok {
		panic("observe: cannot count " + reason.String())
	}
	counter.Add(float64(n))
}
