package forwarder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/margay-net/margay/internal/app/run"
	core "github.com/margay-net/margay/internal/forwarder"
)

func TestASessionThatEndsWithTheForwarderIsNoWarning(t *testing.T) {
	for _, c := range []struct {
		err  error
		warn bool
	}{{context.Canceled, false}, {fmt.Errorf("it stops: %w", context.Canceled), false}, {errors.New("connection refused"), true}} {
		var log bytes.Buffer
		a := &App{base: &run.Base{Log: slog.New(slog.NewTextHandler(&log, nil))}, events: make(chan event, 1), stop: make(chan struct{})}
		(&handler{app: a}).Closed("cps-1", c.err)
		if warned := strings.Contains(log.String(), "level=WARN"); warned != c.warn {
			t.Errorf("%v: logged %q", c.err, log.String())
		}
		if e := <-a.events; e.change != core.SessionDown {
			t.Errorf("%v: the core is told %+v", c.err, e)
		}
	}
}
