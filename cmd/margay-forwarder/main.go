// Margay-forwarder is a CATS-Forwarder, ingress and egress: it holds the first packet of each new flow, has the C-PS
// decide, and steers the flow by an XDP data plane that outlives it. With --unload it takes that data plane out.
package main

import (
	"context"

	"github.com/margay-net/margay/internal/app/forwarder"
	"github.com/margay-net/margay/internal/app/privileges"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
)

func main() {
	run.Daemon[forwarder.Config]{
		Program: "margay-forwarder", Role: trust.Forwarder, Load: config.Load[forwarder.Config], New: open, Unload: forwarder.Unload,
	}.Main()
}

// open keeps the capabilities that the data plane takes once the agent has its files, programs and sockets.
func open(ctx context.Context, c forwarder.Config, base *run.Base) (run.App[forwarder.Config], error) {
	app, err := forwarder.New(ctx, c, base)
	if err != nil {
		return nil, err
	}
	note, err := privileges.Reduce(privileges.BPF, privileges.NetAdmin, privileges.NetRaw)
	if err != nil {
		return nil, err
	}
	base.Log.Info("privileges", "note", note)
	return app, nil
}
