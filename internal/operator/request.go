package operator

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/wire/catsreq"
)

func requestCommand(o *options) *cobra.Command {
	var ingress, attachment, source, target, protocol, service string
	var generation uint16
	var constraints constraintFlags
	command := &cobra.Command{
		Use:   "request",
		Short: "Announce the request metadata of a coming flow to its ingress (Mode B, api)",
		Long: "Announce the CS-ID and constraints of a coming flow to its ingress, over the ingress's authenticated API\n" +
			"(CP section 6, Mode B at the position api). The ingress keeps them for 10 s and uses them once.",
		Example: "  margay request --ingress IF-1 --source 192.0.2.10:51000 --target 192.0.2.100:443 --cs-id S1 --max-delay 20ms",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			message := &api.AnnounceRequest{Attachment: attachment, Tuple: &api.Tuple{}}
			var err error
			if message.Tuple.Source, err = endpointFlag("source", source); err != nil {
				return err
			}
			if message.Tuple.Target, err = endpointFlag("target", target); err != nil {
				return err
			}
			p, err := cats.ParseProtocol(protocol)
			if err != nil {
				return fmt.Errorf("--protocol: %w", err)
			}
			message.Tuple.Protocol = uint32(p)
			hard, err := constraints.bounds(c.Flags())
			if err != nil {
				return err
			}
			id, err := cats.ParseCSID(service)
			if err != nil {
				return fmt.Errorf("--cs-id: %w", err)
			}
			message.Body, err = catsreq.EncodeBody(&catsreq.Request{
				Identity:    catsreq.Identity{Kind: catsreq.KindName, Name: id},
				Constraints: cats.Constraints{Hard: hard},
				Generation:  generation,
			})
			if err != nil {
				return err
			}
			return o.askForwarder(c.Context(), ingress, func(ctx context.Context, connection *grpc.ClientConn) error {
				answer, err := api.NewForwarderServiceClient(connection).Announce(ctx, message)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "announced %s to %s: %s for %s, kept %d ms, %d octets % x\n", service, ingress,
					answer.GetCsId(), tuple(message.Tuple), answer.GetValidMs(), len(message.Body), message.Body)
				return err
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&ingress, "ingress", "", "forwarder where the flow comes in")
	flags.StringVar(&attachment, "attachment", "", "client attachment there (default: the one that holds the source)")
	flags.StringVar(&source, "source", "", "client address:port")
	flags.StringVar(&target, "target", "", "service address:port")
	flags.StringVar(&protocol, "protocol", "tcp", "tcp or udp")
	flags.StringVar(&service, "cs-id", "", "CS-ID that the request names")
	flags.Uint16Var(&generation, "generation", 1, "request generation")
	constraints.register(flags)
	for _, name := range []string{"ingress", "source", "target", "cs-id"} {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return command
}
