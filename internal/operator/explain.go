package operator

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// constraintFlags are the constraints of a request that explain and request share.
type constraintFlags struct {
	maxDelay, maxRealDelay, maxComputing time.Duration
	minSlots                             uint32
}

func (f *constraintFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.maxDelay, "max-delay", 0, "hard bound on the one-way network delay, such as 20ms")
	flags.DurationVar(&f.maxRealDelay, "max-real-delay", 0, "hard bound on computing time plus network delay")
	flags.DurationVar(&f.maxComputing, "max-computing-time", 0, "hard bound on the computing time, whole milliseconds")
	flags.Uint32Var(&f.minSlots, "min-slots", 0, "hard bound on the free slots")
}

// bounds gives the bounds whose flags were set.
func (f *constraintFlags) bounds(flags *pflag.FlagSet) (cats.Bounds, error) {
	var b cats.Bounds
	for _, d := range []struct {
		name  string
		value time.Duration
		unit  time.Duration
		to    *cats.Optional[uint32]
	}{
		{"max-delay", f.maxDelay, time.Microsecond, &b.MaxDelayUS},
		{"max-real-delay", f.maxRealDelay, time.Microsecond, &b.MaxRealDelayUS},
		{"max-computing-time", f.maxComputing, time.Millisecond, &b.MaxComputingTimeMS},
	} {
		if !flags.Changed(d.name) {
			continue
		}
		if d.value < 0 || d.value%d.unit != 0 || d.value/d.unit > 1<<32-1 {
			return b, fmt.Errorf("--%s %s: need a whole number of %s, 0 to %d", d.name, d.value, d.unit, uint32(1<<32-1))
		}
		*d.to = cats.Some(uint32(d.value / d.unit))
	}
	if flags.Changed("min-slots") {
		b.MinSlots = cats.Some(f.minSlots)
	}
	return b, nil
}

func explainCommand(o *options) *cobra.Command {
	var format, ingress, attachment, source, target, protocol string
	var constraints constraintFlags
	command := &cobra.Command{
		Use:   "explain [CS-ID]",
		Short: "What the C-PS would decide now for a flow, and why; nothing is changed",
		Example: "  margay explain S1 --ingress IF-1 --max-delay 20ms\n" +
			"  margay explain --ingress IF-1 --target 192.0.2.100:443 --source 192.0.2.10:51000",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			bounds, err := constraints.bounds(c.Flags())
			if err != nil {
				return err
			}
			request := &api.ExplainRequest{Ingress: ingress, Attachment: attachment, Constraints: constraintMessage(bounds)}
			if len(args) == 1 {
				request.CsId = args[0]
			}
			if request.CsId == "" && target == "" {
				return fmt.Errorf("name the service: its CS-ID, or --target with its address")
			}
			if request.Source, err = endpointFlag("source", source); err != nil {
				return err
			}
			if request.Target, err = endpointFlag("target", target); err != nil {
				return err
			}
			if protocol != "" {
				p, err := cats.ParseProtocol(protocol)
				if err != nil {
					return fmt.Errorf("--protocol: %w", err)
				}
				request.Protocol = uint32(p)
			}
			return o.askCPS(c.Context(), func(ctx context.Context, connection *grpc.ClientConn) error {
				answer, err := api.NewOperatorServiceClient(connection).Explain(ctx, request)
				if err != nil {
					return err
				}
				if format == "json" || format == "yaml" {
					return encode(c.OutOrStdout(), format, answer)
				}
				return WriteExplanation(c.OutOrStdout(), answer)
			})
		},
	}
	flags := command.Flags()
	flags.StringVarP(&format, "output", "o", "", "instead of text: json|yaml")
	flags.StringVar(&ingress, "ingress", "", "forwarder where the client comes in")
	flags.StringVar(&attachment, "attachment", "", "client attachment there (default: its only one)")
	flags.StringVar(&source, "source", "", "client address:port")
	flags.StringVar(&target, "target", "", "service address:port")
	flags.StringVar(&protocol, "protocol", "", "tcp or udp (default: that of the service)")
	constraints.register(flags)
	if err := command.MarkFlagRequired("ingress"); err != nil {
		panic(err) // the flag is defined above
	}
	return command
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

func constraintMessage(hard cats.Bounds) *api.Constraints {
	if hard == (cats.Bounds{}) {
		return nil
	}
	optional := func(o cats.Optional[uint32]) *uint32 {
		if !o.Present {
			return nil
		}
		return &o.Value
	}
	return &api.Constraints{Hard: &api.Bounds{
		MaxDelayUs: optional(hard.MaxDelayUS), MaxRealDelayUs: optional(hard.MaxRealDelayUS),
		MaxComputingTimeMs: optional(hard.MaxComputingTimeMS), MinSlots: optional(hard.MinSlots),
	}}
}

// WriteExplanation writes a decision for a person: the resolution, every candidate with its rank or the filter that
// removed it, the paths, and the packet at the four points of CP section 16.
func WriteExplanation(w io.Writer, e *api.ExplainResponse) error {
	if r := e.GetResolution(); r.GetCsId() != "" {
		fmt.Fprintf(w, "service     %s, by %s", r.GetCsId(), r.GetBy())
		if r.GetAddress() != nil {
			fmt.Fprintf(w, " (%s)", serviceAddress(r.GetAddress()))
		}
		fmt.Fprintf(w, ", tenant %s\n", r.GetTenant())
		fmt.Fprintf(w, "policy      %s, band %s, version %s\n", strings.ToLower(enum(e.GetPolicy(), "SELECTION_POLICY_")), micros(e.GetBand()), e.GetPolicyVersion())
	}
	fmt.Fprintf(w, "generations catalogue %d, CST %d, NST %d, TEDB %d\n\n", e.GetCatalogueGeneration(), e.GetCstGeneration(), e.GetNstGeneration(), e.GetTedbGeneration())
	if len(e.GetCandidates()) > 0 {
		if err := writeCandidates(w, e.GetCandidates()); err != nil {
			return err
		}
	}
	if refusal := e.GetRefusal(); refusal != nil {
		return writeRefusal(w, refusal)
	}
	return writeChosen(w, e.GetChosen())
}

func writeCandidates(w io.Writer, candidates []*api.Candidate) error {
	t := &table{columns: []string{"RANK", "CSCI-ID", "EGRESS", "REAL DELAY", "COMPUTING", "NETWORK", "GAS", "EFFECTIVE", "HEALTH", "REPORT AGE", "PATH AGE", "WHY"}}
	for _, c := range candidates {
		t.add(candidateCells(c)...)
	}
	if err := t.write(w, true); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

func writeRefusal(w io.Writer, refusal *api.Refusal) error {
	at := ""
	if refusal.GetStage() != "" {
		at = " at stage " + refusal.GetStage()
	}
	_, err := fmt.Fprintf(w, "refused     %s%s: %s\n", reason(refusal.GetReason()), at, refusal.GetDetail())
	return err
}

func candidateCells(c *api.Candidate) []any {
	rank, realDelay, computing, gas, health, reportAge := "-", "-", "-", "-", "-", "-"
	network, pathAge := "-", "-"
	why := c.GetDetail()
	if c.GetStage() != "" {
		why = c.GetStage() + ": " + c.GetDetail()
	}
	if c.GetRank() > 0 {
		rank = fmt.Sprint(c.GetRank())
	}
	if c.RealDelayUs != nil {
		realDelay = micros(c.GetRealDelayUs())
	}
	if r := c.GetReport(); r != nil {
		computing, gas = fmt.Sprintf("%dms", r.GetMetrics().GetComputingTimeMs()), fmt.Sprint(r.GetMetrics().GetGas())
		health, reportAge = enum(r.GetHealth(), "HEALTH_"), age(r.GetAgeMs())
	}
	if p := c.GetPath(); p != nil {
		network, pathAge = micros(uint64(p.GetMetrics().GetDelayUs())), age(p.GetAgeMs())
	}
	return []any{rank, c.GetCsciId(), c.GetEgress(), realDelay, computing, network, gas, c.GetEffectiveSlots(), health, reportAge, pathAge, why}
}

func writeChosen(w io.Writer, c *api.Chosen) error {
	fmt.Fprintf(w, "chosen      %s at %s by %s, %d slot(s)\n", c.GetCsciId(), locator(c.GetLocator()), c.GetEgress(), c.GetSlots())
	writePath(w, "path", c.GetForward(), c.GetForwardMetrics())
	writePath(w, "return", c.GetReverse(), c.GetReverseMetrics())
	for _, p := range []struct {
		name string
		view *api.PacketView
	}{
		{"client sends", c.GetBefore()}, {"ingress sends", c.GetAfter()}, {"instance sends", c.GetAnswer()}, {"client gets", c.GetDelivered()},
	} {
		if p.view == nil {
			continue
		}
		fmt.Fprintf(w, "%-15s %s", p.name, tuple(p.view.GetTuple()))
		if len(p.view.GetOuterDestination()) > 0 {
			fmt.Fprintf(w, "  [%s to %s", strings.ToLower(enum(p.view.GetEncapsulation(), "ENCAPSULATION_")), address(p.view.GetOuterDestination()))
			if len(p.view.GetSegments()) > 0 {
				fmt.Fprintf(w, ", segments %s", addresses(p.view.GetSegments()))
			}
			fmt.Fprint(w, "]")
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	return nil
}

func writePath(w io.Writer, name string, p *api.Path, m *api.PathMetrics) {
	if p == nil {
		return
	}
	fmt.Fprintf(w, "%-11s %s, %s, %d hops, segments %s\n", name, strings.Join(p.GetNodes(), " > "), micros(uint64(m.GetDelayUs())), m.GetHops(), addresses(p.GetSegments()))
}
