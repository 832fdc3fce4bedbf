package operator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// Refused is the exit code of `margay explain` where the request would be refused.
const Refused ExitCode = 3

// explainFlags are the flags of `margay explain`.
type explainFlags struct {
	format, ingress, attachment, source, target, protocol string
	constraints                                           constraintFlags
}

func explainCommand(o *options) *cobra.Command {
	var f explainFlags
	command := &cobra.Command{
		Use:   "explain [CS-ID]",
		Short: "What the C-PS would decide now for a flow, and why; nothing is changed",
		Long: "What the C-PS would decide now for a flow, and why; nothing is changed.\n" +
			"The exit code is 0 if there is a choice, 3 if the request would be refused, 1 if the C-PS could not be asked.\n\n" +
			columnsHelp(candidateColumns),
		Example: "  margay explain S1 --ingress IF-1 --max-delay 20ms\n" +
			"  margay explain --ingress IF-1 --target 192.0.2.100:443 --source 192.0.2.10:51000",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args, o) },
	}
	flags := command.Flags()
	flags.StringVarP(&f.format, "output", "o", "", "instead of text: json|yaml")
	flags.StringVar(&f.ingress, "ingress", "", "forwarder where the client comes in")
	flags.StringVar(&f.attachment, "attachment", "", "client attachment there (default: its only one)")
	flags.StringVar(&f.source, "source", "", "client address:port")
	flags.StringVar(&f.target, "target", "", "service address:port")
	flags.StringVar(&f.protocol, "protocol", "", "tcp or udp (default: that of the service)")
	f.constraints.register(flags)
	require(command, "ingress")
	return command
}

// require marks flags that have to be given.
func require(command *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // no flag of this name was defined
		}
	}
}

func (f *explainFlags) run(c *cobra.Command, args []string, o *options) error {
	if err := checkFormat(f.format, formatJSON, formatYAML); err != nil {
		return err
	}
	request, err := f.request(c, args)
	if err != nil {
		return err
	}
	d, err := o.domain()
	if err != nil {
		return err
	}
	var answer *api.ExplainResponse
	err = d.AskCPS(c.Context(), func(ctx context.Context, cps api.OperatorServiceClient) (err error) {
		answer, err = cps.Explain(ctx, request)
		return err
	})
	switch {
	case err != nil:
		return err
	case isDocument(f.format):
		err = encode(c.OutOrStdout(), f.format, document(answer))
	default:
		err = WriteExplanation(c.OutOrStdout(), answer)
	}
	if err == nil && answer.GetRefusal() != nil {
		return Refused
	}
	return err
}

// request makes the question of the flags.
func (f *explainFlags) request(c *cobra.Command, args []string) (*api.ExplainRequest, error) {
	bounds, err := f.constraints.bounds(c.Flags())
	if err != nil {
		return nil, err
	}
	q := &api.ExplainRequest{Ingress: f.ingress, Attachment: f.attachment, Constraints: constraintMessage(bounds)}
	if len(args) == 1 {
		q.CsId = args[0]
	}
	if q.CsId == "" && f.target == "" {
		return nil, usageError(c, errors.New("name the service: its CS-ID, or --target with its address"))
	}
	if q.Source, err = endpointFlag("source", f.source); err != nil {
		return nil, err
	}
	if q.Target, err = endpointFlag("target", f.target); err != nil {
		return nil, err
	}
	if f.protocol != "" {
		p, err := cats.ParseProtocol(f.protocol)
		if err != nil {
			return nil, fmt.Errorf("--protocol: %w", err)
		}
		q.Protocol = uint32(p)
	}
	return q, nil
}

func endpointFlag(name, value string) (*api.Endpoint, error) {
	if value == "" {
		return nil, nil
	}
	a, err := netip.ParseAddrPort(value)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: need address:port, such as 192.0.2.10:51000 or [2001:db8::1]:443", name, value)
	}
	return &api.Endpoint{Address: a.Addr().AsSlice(), Port: uint32(a.Port())}, nil
}
