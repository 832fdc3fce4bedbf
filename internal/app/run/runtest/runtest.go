// Package runtest runs a daemon inside a test, as package run runs it in a process of its own.
package runtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/testenv"
)

// Daemon is a daemon that runs until the test ends, or until Stop.
type Daemon[C interface{ Shared() config.Common }] struct {
	t        testing.TB
	Base     *run.Base
	App      run.App[C]
	Log      *testenv.Buffer
	Stop     func()
	reloader *config.Reloader[C]
}

// Launch starts a daemon on its configuration file, with create in the place of d.New.
func Launch[C interface{ Shared() config.Common }](
	t testing.TB, d run.Daemon[C], create func(context.Context, C, *run.Base) (run.App[C], error), file string,
) *Daemon[C] {
	t.Helper()
	loaded, err := d.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	x := &Daemon[C]{t: t, Log: &testenv.Buffer{}}
	if x.Base, err = run.Open(d.Role, loaded.Shared(), x.Log, &observe.Health{}); err != nil {
		t.Fatal(err)
	}
	if x.App, err = create(context.Background(), loaded, x.Base); err != nil {
		t.Fatal(err)
	}
	x.reloader = config.NewReloader(loaded, func() (C, error) { return d.Load(file) }, x.App.Prepare, x.Base.Log, x.Base.Registry)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := x.App.Run(ctx); err != nil {
			t.Errorf("%s: %v", d.Program, err)
		}
	})
	x.Stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := x.Base.Close(context.Background()); err != nil {
			t.Errorf("%s: %v", d.Program, err)
		}
	})
	t.Cleanup(func() {
		x.Stop()
		if t.Failed() {
			t.Logf("log of %s:\n%s", d.Program, x.Log)
		}
	})
	return x
}

// Reload does what a SIGHUP does.
func (x *Daemon[C]) Reload() error { return x.reloader.Reload(context.Background()) }

// Ready gives what /readyz tells.
func (x *Daemon[C]) Ready() (ready bool, why string) {
	var text bytes.Buffer
	ready = x.Base.Health.Ready(&text)
	return ready, text.String()
}

// Metric gives a metric's value as /metrics would show it, the sum over its labels where they contain all of with.
func (x *Daemon[C]) Metric(name string, with ...string) float64 {
	x.t.Helper()
	families, err := x.Base.Registry.Gather()
	if err != nil {
		x.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			matches := true
			for _, w := range with {
				matches = matches && strings.Contains(m.String(), fmt.Sprintf("%q", w))
			}
			if matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return sum
	}
	x.t.Fatalf("no metric %s", name)
	return 0
}
