package impair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// ProcessOptions tell Process which link it impairs.
type ProcessOptions struct {
	A, B    string           // interfaces of the middle, joined by Join, on the side of either end
	Control endpoint.Address // where Apply and Ask reach it
	Observe endpoint.Address // for /metrics, /healthz and /readyz
	Log     *slog.Logger
}

// Process stands in the middle of a link, in whose namespace it must run, until ctx ends. At first it impairs nothing;
// Apply tells it what to do. At its end the link is as it was before.
func Process(ctx context.Context, o ProcessOptions) (err error) {
	m, err := openMiddle(o.A, o.B)
	if err != nil {
		return fmt.Errorf("impair: %w", err)
	}
	defer func() { err = errors.Join(err, m.close()) }()
	registry := observe.NewRegistry()
	registry.MustRegister(m)
	listener, err := o.Control.Listen()
	if err != nil {
		return fmt.Errorf("impair: control: %w", err)
	}
	observed, err := observe.Serve(o.Observe, registry, &observe.Health{}, o.Log)
	if err != nil {
		return errors.Join(fmt.Errorf("impair: %w", err), listener.Close())
	}
	server := &http.Server{Handler: m.handler(), ReadTimeout: controlTime, WriteTimeout: controlTime}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	o.Log.Info("standing in the middle", "a", o.A, "b", o.B)
	select {
	case <-ctx.Done():
	case <-m.directions[AToB].failed:
		err = m.directions[AToB].failure
	case <-m.directions[BToA].failed:
		err = m.directions[BToA].failure
	}
	stop, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(stop), observed.Stop(stop))
	if gone := <-served; !errors.Is(gone, http.ErrServerClosed) {
		err = errors.Join(err, gone)
	}
	return err
}

// controlTime bounds one request to a process.
const controlTime = 10 * time.Second

// middle is both directions of a link.
type middle struct {
	mutex      sync.Mutex
	directions [2]*direction // guarded by mutex, except for failed
}

func openMiddle(a, b string) (*middle, error) {
	there, err := openDirection(AToB, a, b)
	if err != nil {
		return nil, err
	}
	back, err := openDirection(BToA, b, a)
	if err != nil {
		return nil, errors.Join(err, there.close())
	}
	return &middle{directions: [2]*direction{there, back}}, nil
}

func (m *middle) close() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return errors.Join(m.directions[AToB].close(), m.directions[BToA].close())
}

// apply makes a change, or none of it if it is not a proper one.
func (m *middle) apply(c Change) error {
	if c.To != nil {
		if err := c.To.Check(); err != nil {
			return err
		}
	}
	for _, d := range c.Directions {
		if d != AToB && d != BToA {
			return fmt.Errorf("a link has no direction %d", d)
		}
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, d := range c.Directions {
		if err := m.directions[d].set(c.To); err != nil {
			return err
		}
	}
	return nil
}

func (m *middle) state() (s State, err error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for i, d := range m.directions {
		var failed error
		s.Impairments[i], s.Counts[i], failed = d.state()
		err = errors.Join(err, failed)
	}
	return s, err
}

// handler answers Apply and Ask.
func (m *middle) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter) {
		s, err := m.state()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s) // whoever asked is gone
	}
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { answer(w) })
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		var c Change
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&c)
		if err == nil {
			err = m.apply(c)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w)
	})
	return mux
}

// metric is a figure of each direction.
type metric struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
	of          func(*Counts) uint64
}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("margay_lab_impair_"+name, help, []string{"direction"}, nil)
}

var metrics = []metric{
	{describe("frames_total", "Frames that came in."), prometheus.CounterValue, func(c *Counts) uint64 { return c.Frames }},
	{describe("sent_total", "Frames that went out."), prometheus.CounterValue, func(c *Counts) uint64 { return c.Sent }},
	{describe("lost_total", "Frames lost by the impairment's loss."), prometheus.CounterValue, func(c *Counts) uint64 { return c.Lost }},
	{describe("full_total", "Frames dropped as the queue was full."), prometheus.CounterValue, func(c *Counts) uint64 { return c.Full }},
	{describe("missed_total", "Frames dropped as the process was too slow."), prometheus.CounterValue, func(c *Counts) uint64 { return c.Missed }},
	{describe("refused_total", "Frames dropped as the other side did not take them."), prometheus.CounterValue, func(c *Counts) uint64 { return c.Refused }},
	{describe("held", "Frames under way."), prometheus.GaugeValue, func(c *Counts) uint64 { return c.Held }},
}

// Describe gives the metrics of a link (prometheus.Collector).
func (m *middle) Describe(to chan<- *prometheus.Desc) {
	for _, x := range metrics {
		to <- x.description
	}
}

// Collect gives their values (prometheus.Collector).
func (m *middle) Collect(to chan<- prometheus.Metric) {
	s, err := m.state()
	for _, x := range metrics {
		if err != nil {
			to <- prometheus.NewInvalidMetric(x.description, err)
			continue
		}
		for _, d := range Directions {
			to <- prometheus.MustNewConstMetric(x.description, x.kind, float64(x.of(&s.Counts[d])), d.String())
		}
	}
}
