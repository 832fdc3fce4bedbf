package forwarder

import (
	"log/slog"
	"testing"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/southbound/agent"
	"github.com/margay-net/margay/internal/trust"
)

// TestRequestsThatNobodyTookAreNotCounted: the core believes in a session that is over, or whose client has none.
func TestRequestsThatNobodyTookAreNotCounted(t *testing.T) {
	a := &App{base: &run.Base{Log: slog.New(slog.DiscardHandler)}, handler: &handler{}, session: 1}
	a.client = agent.NewClient(agent.ClientOptions{Credentials: &trust.Credentials{}, Handler: a.handler})
	a.out.Send.Requests = make([]cats.ServiceRequest, 3)
	for _, latest := range []uint64{0, 2, 1} {
		a.handler.latest.Store(latest)
		a.send()
		if a.totals.Requests != 0 {
			t.Errorf("session 1, the latest being %d: %d requests are counted", latest, a.totals.Requests)
		}
	}
}
