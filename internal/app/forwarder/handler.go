package forwarder

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/forwarder"
)

// handler takes what happens on the session with the C-PS; its calls come from the goroutine of the client.
type handler struct {
	app    *App
	latest atomic.Uint64 // number of the session that is open; 0: none
	last   uint64        // number of the latest
}

// Opened begins a session: the core will send its hello.
func (h *handler) Opened(cps string) {
	h.last++
	h.latest.Store(h.last)
	h.app.base.Log.Info("session opened", "cps", cps)
	h.app.hand(event{change: core.SessionUp, session: h.last, detail: "a session with " + cps})
}

// Steering hands on one message of the C-PS.
func (h *handler) Steering(_ string, b *cats.SteeringBatch) { h.app.hand(event{batch: b}) }

// Closed tells that the session is over, or could not be opened.
func (h *handler) Closed(cps string, err error) {
	h.latest.Store(0)
	if !errors.Is(err, context.Canceled) { // else the forwarder stops
		h.app.base.Log.Warn("no session with the C-PS; established flows go on, new ones wait for it", "cps", cps, "error", err)
	}
	h.app.hand(event{change: core.SessionDown, detail: fmt.Sprint(err)})
}
