package operator

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/wire/catsreq"
)

// requestFlags are the flags of `margay request`.
type requestFlags struct {
	ingress, attachment, source, target, protocol, service string
	generation                                             uint16
	constraints                                            constraintFlags
}

func requestCommand(o *options) *cobra.Command {
	var f requestFlags
	command := &cobra.Command{
		Use:   "request",
		Short: "Announce the request metadata of a coming flow to its ingress (Mode B, api)",
		Long: "Announce the CS-ID and constraints of a coming flow to its ingress, over the ingress's authenticated API\n" +
			"(CP section 6, Mode B at the position api). The ingress keeps them for 10 s and uses them once.",
		Example: "  margay request --ingress IF-1 --source 192.0.2.10:51000 --target 192.0.2.100:443 --cs-id S1 --max-delay 20ms",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c, o) },
	}
	flags := command.Flags()
	flags.StringVar(&f.ingress, "ingress", "", "forwarder where the flow comes in")
	flags.StringVar(&f.attachment, "attachment", "", "client attachment there (default: the one that holds the source)")
	flags.StringVar(&f.source, "source", "", "client address:port")
	flags.StringVar(&f.target, "target", "", "service address:port")
	flags.StringVar(&f.protocol, "protocol", "tcp", "tcp or udp")
	flags.StringVar(&f.service, "cs-id", "", "CS-ID that the request names")
	flags.Uint16Var(&f.generation, "generation", 1, "request generation")
	f.constraints.register(flags)
	require(command, "ingress", "source", "target", "cs-id")
	return command
}

func (f *requestFlags) run(c *cobra.Command, o *options) error {
	message, err := f.message(c)
	if err != nil {
		return err
	}
	d, err := o.domain()
	if err != nil {
		return err
	}
	var answer *api.AnnounceResponse
	if err := d.AskForwarder(c.Context(), f.ingress, func(ctx context.Context, forwarder api.ForwarderServiceClient) (err error) {
		answer, err = forwarder.Announce(ctx, message)
		return err
	}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "announced %s to %s: %s for %s, kept %d ms, %d octets % x\n", f.service, f.ingress,
		answer.GetCsId(), tuple(message.Tuple), answer.GetValidMs(), len(message.Body), message.Body)
	return err
}

// message makes the announcement of the flags.
func (f *requestFlags) message(c *cobra.Command) (m *api.AnnounceRequest, err error) {
	m = &api.AnnounceRequest{Attachment: f.attachment, Tuple: &api.Tuple{}}
	if m.Tuple.Source, err = endpointFlag("source", f.source); err != nil {
		return nil, err
	}
	if m.Tuple.Target, err = endpointFlag("target", f.target); err != nil {
		return nil, err
	}
	p, err := cats.ParseProtocol(f.protocol)
	if err != nil {
		return nil, fmt.Errorf("--protocol: %w", err)
	}
	m.Tuple.Protocol = uint32(p)
	m.Body, err = f.body(c)
	return m, err
}

// body is the CATS request as it is on the wire.
func (f *requestFlags) body(c *cobra.Command) ([]byte, error) {
	hard, err := f.constraints.bounds(c.Flags())
	if err != nil {
		return nil, err
	}
	id, err := cats.ParseCSID(f.service)
	if err != nil {
		return nil, fmt.Errorf("--cs-id: %w", err)
	}
	return catsreq.EncodeBody(&catsreq.Request{
		Identity:    catsreq.Identity{Kind: catsreq.KindName, Name: id},
		Constraints: cats.Constraints{Hard: hard},
		Generation:  f.generation,
	})
}
