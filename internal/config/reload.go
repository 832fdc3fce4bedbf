package config

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Reloader replaces a running configuration all or nothing: the new one is loaded and checked wholly, then prepared,
// and only then committed. Whatever fails before that leaves the last good one in place.
type Reloader[T any] struct {
	load    func() (T, error)
	prepare Prepare[T]
	log     *slog.Logger

	reloads *prometheus.CounterVec
	good    prometheus.Gauge

	mutex   sync.Mutex // guards current; held through a reload, so that there is one at a time
	current T
}

// Prepare builds everything that the new configuration needs, beside what runs, and gives the function that swaps it
// in, which cannot fail. On an error it has undone whatever it built.
type Prepare[T any] func(ctx context.Context, current, new T) (commit func(), err error)

// NewReloader makes the Reloader of a daemon that runs with current. The counter margay_config_reloads_total{result}
// and the gauge margay_config_last_reload_successful are registered in registry.
func NewReloader[T any](current T, load func() (T, error), prepare Prepare[T], log *slog.Logger, registry prometheus.Registerer) *Reloader[T] {
	r := &Reloader[T]{
		load: load, prepare: prepare, log: log, current: current,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "margay_config_reloads_total",
			Help: "Configuration reloads by result: applied, or refused with nothing changed.",
		}, []string{"result"}),
		good: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "margay_config_last_reload_successful",
			Help: "1 if the last reload was applied or there was none, 0 if it was refused.",
		}),
	}
	r.good.Set(1)
	r.reloads.WithLabelValues("applied")
	r.reloads.WithLabelValues("refused")
	registry.MustRegister(r.reloads, r.good)
	return r
}

// Reload loads, prepares and commits. An error, which is also logged and counted, means that nothing changed.
func (r *Reloader[T]) Reload(ctx context.Context) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	before := r.current
	if err := r.replace(ctx); err != nil {
		r.reloads.WithLabelValues("refused").Inc()
		r.good.Set(0)
		r.log.Error("configuration refused; the last good one stays in force: " + Brief(err))
		return err
	}
	r.reloads.WithLabelValues("applied").Inc()
	r.good.Set(1)
	r.log.Info("configuration applied: " + changes(before, r.current))
	return nil
}

// changes tells which top-level keys differ between two configurations; files that they name may differ beside that.
func changes[T any](before, after T) string {
	old, now := fieldsOf(reflect.ValueOf(&before).Elem()), fieldsOf(reflect.ValueOf(&after).Elem())
	var changed []string
	for _, f := range sorted(now) {
		if !reflect.DeepEqual(old[f.key].value.Interface(), f.value.Interface()) {
			changed = append(changed, f.key)
		}
	}
	if len(changed) == 0 {
		return "its own settings are as before, the files that it names were read again"
	}
	return strings.Join(changed, ", ") + " changed"
}

func (r *Reloader[T]) replace(ctx context.Context) error {
	next, err := r.load()
	if err != nil {
		return err
	}
	commit, err := r.prepare(ctx, r.current, next)
	if err != nil {
		return err
	}
	commit()
	r.current = next
	return nil
}

// Fixed gives an error that names every one of keys, which are top-level keys of T, whose value differs between
// current and next: such settings take a restart.
func Fixed[T any](current, next T, keys ...string) error {
	before, after := fieldsOf(reflect.ValueOf(&current).Elem()), fieldsOf(reflect.ValueOf(&next).Elem())
	var changed []string
	for _, key := range keys {
		old, ok := before[key]
		if !ok {
			panic(fmt.Sprintf("config: %T has no key %q", current, key))
		}
		if !reflect.DeepEqual(old.value.Interface(), after[key].value.Interface()) {
			changed = append(changed, key)
		}
	}
	if len(changed) > 0 {
		return fmt.Errorf("%s changed: restart the daemon to change that", strings.Join(changed, ", "))
	}
	return nil
}
