package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/internal/operator/client"
)

const countersShort = "Packet counters of the forwarders, drops by reason; asked of the forwarders themselves"

var countersColumns = []column{
	{name: "FORWARDER", meaning: "that was asked; the ones of the configuration are"},
	{name: "COUNTER", meaning: "what was done with packets, or \"dropped\" and why; service requests: asked of the C-PS; " +
		"held, released: packets that waited for its decision; bindings: in place, of the table's capacity"},
	{name: "PACKETS", meaning: "since the data plane was loaded; those at 0 are shown with -o wide"},
	{name: "OCTETS", meaning: "of these packets; -: not counted"},
}

func countersHelp() string { return viewHelp("counters", countersShort, countersColumns) }

// countersCommand shows the packet counters of forwarders; unlike the other views it asks them and not the C-PS.
func countersCommand(o *options, f *viewFlags) *cobra.Command {
	var only string
	command := &cobra.Command{
		Use: "counters", Aliases: []string{"counter"}, Short: countersShort, Args: cobra.NoArgs,
		Long: countersShort + ".\nOne that does not answer hides no other; the exit code then is 1.\n" + columnsHelp(countersColumns),
		RunE: func(c *cobra.Command, _ []string) error {
			return f.show(c, func(ctx context.Context, w io.Writer) error {
				all, err := o.askCounters(ctx, only)
				if err == nil {
					err = writeCounters(w, f.format, all)
				}
				if err != nil {
					return err
				}
				return missing(all)
			})
		},
	}
	command.Flags().StringVar(&only, "forwarder", "", "only of this one")
	return command
}

// counted is what became of asking one forwarder.
type counted struct {
	name   string
	answer *api.GetCountersResponse
	err    error
}

// askCounters asks all forwarders of the configuration, or only one, at the same time.
func (o *options) askCounters(ctx context.Context, only string) ([]counted, error) {
	d, err := o.domain()
	if err != nil {
		return nil, err
	}
	var all []counted
	for _, peer := range d.Forwarders {
		if only == "" || only == string(peer.Name) {
			all = append(all, counted{name: string(peer.Name)})
		}
	}
	switch {
	case len(d.Forwarders) == 0:
		return nil, fmt.Errorf("%s lists no forwarders: add them under forwarders with their addresses", o.config)
	case len(all) == 0:
		return nil, fmt.Errorf("%s lists no forwarder %q", o.config, only)
	}
	var asking sync.WaitGroup
	for i := range all {
		asking.Go(func() { all[i].ask(ctx, d) })
	}
	asking.Wait()
	return all, nil
}

func (f *counted) ask(ctx context.Context, d *client.Domain) {
	f.err = d.AskForwarder(ctx, f.name, func(ctx context.Context, c api.ForwarderServiceClient) (err error) {
		f.answer, err = c.GetCounters(ctx, &api.GetCountersRequest{})
		return err
	})
}

// missing is an error that names the forwarders that gave no counters.
func missing(all []counted) error {
	var names []string
	for _, f := range all {
		if f.err != nil {
			names = append(names, f.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return incomplete{fmt.Errorf("%d of %d forwarders gave no counters: %s", len(names), len(all), strings.Join(names, ", "))}
}

func writeCounters(w io.Writer, format string, all []counted) error {
	if isDocument(format) {
		list := []any{}
		for _, f := range all {
			if f.err != nil {
				list = append(list, object{{"forwarder", f.name}, {"error", f.err.Error()}})
				continue
			}
			list = append(list, document(f.answer))
		}
		return encode(w, format, object{{"forwarders", list}})
	}
	t := &table{columns: countersColumns}
	for _, f := range all {
		if f.err != nil {
			t.add(f.name, unreachable(f.err))
			continue
		}
		t.addCounters(f.answer, format == formatWide)
	}
	return t.write(w)
}

// unreachable says in a cell why a forwarder gave nothing.
func unreachable(err error) string {
	var e *client.Error
	switch {
	case !errors.As(err, &e):
		return err.Error()
	case e.Silent:
		return "unreachable: " + e.Why
	}
	return e.Why
}

// addCounters adds the counters that have counted, or all of them.
func (t *table) addCounters(a *api.GetCountersResponse, all bool) {
	name := a.GetForwarder()
	t.add(name, "service requests", a.GetServiceRequests(), "-")
	t.add(name, "held", a.GetHeld(), "-")
	t.add(name, "released", a.GetReleased(), "-")
	t.add(name, "bindings", fmt.Sprintf("%d of %d", a.GetBindings(), a.GetCapacity()), "-")
	for _, p := range a.GetPackets() {
		if all || p.GetPackets() > 0 {
			t.add(name, p.GetKind(), p.GetPackets(), p.GetOctets())
		}
	}
	for _, d := range a.GetDrops() {
		if all || d.GetPackets() > 0 {
			t.add(name, "dropped, "+enum(d.GetReason()), d.GetPackets(), "-")
		}
	}
}
