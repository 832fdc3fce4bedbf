package operator

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/internal/trust"
)

// countersCommand shows the packet counters of forwarders; unlike the other views it asks them and not the C-PS.
func countersCommand(o *options, format *string) *cobra.Command {
	var only string
	command := &cobra.Command{
		Use: "counters", Short: "Packet counters of the forwarders, drops by reason", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkFormat(*format); err != nil {
				return err
			}
			d, err := o.domain()
			if err != nil {
				return err
			}
			t := &table{columns: []string{"FORWARDER", "COUNTER", "PACKETS", "OCTETS"}}
			found := false
			for _, peer := range d.Forwarders {
				if only != "" && string(peer.Name) != only {
					continue
				}
				found = true
				var answer *api.GetCountersResponse
				err := d.call(c.Context(), o, trust.Forwarder, peer, func(ctx context.Context, connection *grpc.ClientConn) (err error) {
					answer, err = api.NewForwarderServiceClient(connection).GetCounters(ctx, &api.GetCountersRequest{})
					return err
				})
				if err != nil {
					return err
				}
				if *format == "json" || *format == "yaml" {
					if err := encode(c.OutOrStdout(), *format, proto.Message(answer)); err != nil {
						return err
					}
					continue
				}
				t.addCounters(answer, *format == "wide")
			}
			if !found {
				return fmt.Errorf("no forwarder %q in %s", only, o.config)
			}
			if *format == "json" || *format == "yaml" {
				return nil
			}
			return t.write(c.OutOrStdout(), false)
		},
	}
	command.Flags().StringVar(&only, "forwarder", "", "only of this one")
	return command
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
			t.add(name, "dropped, "+reason(d.GetReason()), d.GetPackets(), "-")
		}
	}
}
