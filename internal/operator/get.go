package operator

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// view is one kind of thing that `margay get` shows.
type view struct {
	use, short string
	ask        func(context.Context, api.OperatorServiceClient) (proto.Message, error)
	show       func(proto.Message) *table
}

func getCommand(o *options) *cobra.Command {
	var format, service string
	var watch bool
	command := &cobra.Command{Use: "get", Short: "Show services, instances, paths, bindings, forwarders or counters", Args: cobra.NoArgs}
	flags := command.PersistentFlags()
	flags.StringVarP(&format, "output", "o", "", "instead of a table: "+formats)
	flags.BoolVarP(&watch, "watch", "w", false, "show it again every second until interrupted")
	flags.StringVar(&service, "service", "", "only of this CS-ID (instances, bindings)")
	command.AddCommand(countersCommand(o, &format))
	for _, v := range views(&service) {
		command.AddCommand(&cobra.Command{
			Use: v.use, Short: v.short, Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				if err := checkFormat(format); err != nil {
					return err
				}
				return o.askRepeatedly(c.Context(), watch, func(ctx context.Context, connection *grpc.ClientConn) error {
					answer, err := v.ask(ctx, api.NewOperatorServiceClient(connection))
					if err != nil {
						return err
					}
					return show(c.OutOrStdout(), format, v, answer)
				})
			},
		})
	}
	return command
}

func show(w io.Writer, format string, v view, answer proto.Message) error {
	if format == "json" || format == "yaml" {
		return encode(w, format, answer)
	}
	return v.show(answer).write(w, format == "wide")
}

// askRepeatedly asks the C-PS once, or every second until the context ends.
func (o *options) askRepeatedly(ctx context.Context, watch bool, exchange func(context.Context, *grpc.ClientConn) error) error {
	if err := o.askCPS(ctx, exchange); err != nil || !watch {
		return err
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			if err := o.askCPS(ctx, exchange); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

func views(service *string) []view {
	return []view{
		{
			use: "services", short: "The catalogue's services with what is available of them",
			ask: func(ctx context.Context, c api.OperatorServiceClient) (proto.Message, error) {
				return c.ListServices(ctx, &api.ListServicesRequest{})
			},
			show: func(m proto.Message) *table { return serviceTable(m.(*api.ListServicesResponse)) },
		},
		{
			use: "instances", short: "The CST joined with the catalogue",
			ask: func(ctx context.Context, c api.OperatorServiceClient) (proto.Message, error) {
				return c.ListInstances(ctx, &api.ListInstancesRequest{CsId: *service})
			},
			show: func(m proto.Message) *table { return instanceTable(m.(*api.ListInstancesResponse)) },
		},
		{
			use: "paths", short: "The NST with the path of each row",
			ask: func(ctx context.Context, c api.OperatorServiceClient) (proto.Message, error) {
				return c.ListPaths(ctx, &api.ListPathsRequest{})
			},
			show: func(m proto.Message) *table { return pathTable(m.(*api.ListPathsResponse)) },
		},
		{
			use: "bindings", short: "The flow binding table",
			ask: func(ctx context.Context, c api.OperatorServiceClient) (proto.Message, error) {
				return c.ListBindings(ctx, &api.ListBindingsRequest{CsId: *service})
			},
			show: func(m proto.Message) *table { return bindingTable(m.(*api.ListBindingsResponse)) },
		},
		{
			use: "forwarders", short: "The forwarders and what they acknowledged",
			ask: func(ctx context.Context, c api.OperatorServiceClient) (proto.Message, error) {
				return c.ListForwarders(ctx, &api.ListForwardersRequest{})
			},
			show: func(m proto.Message) *table { return forwarderTable(m.(*api.ListForwardersResponse)) },
		},
	}
}

func serviceTable(answer *api.ListServicesResponse) *table {
	t := &table{
		columns: []string{"CS-ID", "STATE", "VERSION", "POLICY", "ADDRESSES", "ELIGIBLE", "SLOTS", "BINDINGS", "NUMBER", "TENANTS", "NAME"}, wide: 8,
		footer: fmt.Sprintf("catalogue generation %d", answer.GetGeneration()),
	}
	for _, s := range answer.GetServices() {
		var at []string
		for _, a := range s.GetService().GetAddresses() {
			at = append(at, serviceAddress(a))
		}
		t.add(s.GetService().GetCsId(), enum(s.GetService().GetState(), "SERVICE_STATE_"), s.GetService().GetVersion(),
			strings.ToLower(enum(s.GetService().GetPolicy(), "SELECTION_POLICY_")), strings.Join(at, ","),
			fmt.Sprintf("%d/%d", s.GetEligible(), s.GetDeployments()), s.GetEffectiveSlots(), s.GetBindings(),
			s.GetService().GetNumber(), strings.Join(s.GetService().GetTenants(), ","), s.GetService().GetName())
	}
	return t
}

func instanceTable(answer *api.ListInstancesResponse) *table {
	t := &table{
		columns: []string{"CS-ID", "CSCI-ID", "SITE", "HEALTH", "GAS", "EFFECTIVE", "COMPUTING", "ROW", "AGE", "OUT AT",
			"LOCATOR", "EGRESS", "BINDINGS", "REPORTING", "SOURCE", "SEQ", "GENERATION"}, wide: 10,
		footer: fmt.Sprintf("CST generation %d, catalogue generation %d", answer.GetCstGeneration(), answer.GetCatalogueGeneration()),
	}
	for _, i := range answer.GetInstances() {
		health, gas, computing, validity, since := "-", "-", "-", "-", "-"
		r := i.GetReport()
		if r != nil {
			health, gas = enum(r.GetHealth(), "HEALTH_"), fmt.Sprint(r.GetMetrics().GetGas())
			computing = fmt.Sprintf("%dms", r.GetMetrics().GetComputingTimeMs())
			validity, since = enum(r.GetValidity(), "VALIDITY_"), age(r.GetAgeMs())
		}
		t.add(i.GetCsId(), i.GetCsciId(), i.GetDeployment().GetSite(), health, gas, i.GetEffectiveSlots(), computing, validity, since,
			i.GetStage(), locator(i.GetDeployment().GetLocator()), strings.Join(i.GetDelivering(), ","), i.GetBindings(),
			enum(r.GetReportingState(), "REPORTING_STATE_"), r.GetSource(), r.GetSeq(), r.GetGeneration())
	}
	return t
}

func pathTable(answer *api.ListPathsResponse) *table {
	t := &table{
		columns: []string{"HEADEND", "EGRESS", "COLOR", "REACHABLE", "DELAY", "HOPS", "VIA", "ROW", "AGE", "SEGMENTS", "SOURCE", "GENERATION"}, wide: 9,
		footer: fmt.Sprintf("NST generation %d, TEDB generation %d", answer.GetNstGeneration(), answer.GetTedbGeneration()),
	}
	for _, p := range answer.GetPaths() {
		t.add(p.GetHeadend(), p.GetEgress(), p.GetColor(), p.GetReachable(), micros(uint64(p.GetMetrics().GetDelayUs())),
			p.GetMetrics().GetHops(), strings.Join(p.GetPath().GetNodes(), ","), enum(p.GetValidity(), "VALIDITY_"), age(p.GetAgeMs()),
			addresses(p.GetPath().GetSegments()), p.GetSource(), p.GetGeneration())
	}
	return t
}

func bindingTable(answer *api.ListBindingsResponse) *table {
	t := &table{
		columns: []string{"CS-ID", "FLOW", "STATE", "CSCI-ID", "INGRESS", "EGRESS", "VIA", "AGE", "PACKETS", "TRANSACTION",
			"PROTOCOL", "ATTACHMENT", "LOCATOR", "SEGMENTS", "RETURN", "EPOCH", "CST", "NST", "REASON"}, wide: 9,
	}
	if answer.GetMore() {
		t.footer = fmt.Sprintf("%d of %d bindings", len(answer.GetBindings()), answer.GetTotal())
	}
	for _, row := range answer.GetBindings() {
		b := row.GetBinding()
		t.add(b.GetCsId(), tuple(b.GetMatch().GetTuple()), enum(row.GetState(), "FLOW_STATE_"), b.GetCsciId(), b.GetOwner(), b.GetEgress(),
			strings.Join(b.GetForward().GetPath().GetNodes(), ","), age(row.GetAgeMs()),
			fmt.Sprintf("%d/%d", row.GetForward().GetPackets(), row.GetReverse().GetPackets()), transaction(b.GetTransaction()),
			cats.Protocol(b.GetMatch().GetTuple().GetProtocol()), b.GetMatch().GetAttachment(), locator(b.GetForward().GetLocator()),
			addresses(b.GetForward().GetPath().GetSegments()), addresses(b.GetReverse().GetPath().GetSegments()), fmt.Sprintf("%d.%d", b.GetEpoch().GetTerm(), b.GetEpoch().GetCounter()),
			b.GetCstGeneration(), b.GetNstGeneration(), reason(row.GetReason()))
	}
	return t
}

func forwarderTable(answer *api.ListForwardersResponse) *table {
	t := &table{
		columns: []string{"NAME", "CONNECTED", "SINCE", "PROVISION", "DELIVERIES", "OWNS", "ATTACHMENTS", "ENCAPSULATIONS", "SEGMENTS", "RETURN SID", "BOOT"}, wide: 7,
		footer: fmt.Sprintf("shard %d, epoch %d.%d", answer.GetShard(), answer.GetEpoch().GetTerm(), answer.GetEpoch().GetCounter()),
	}
	for _, f := range answer.GetForwarders() {
		since := "never"
		if f.SinceMs != nil {
			since = age(f.GetSinceMs())
		}
		var attachments, encapsulations []string
		for _, a := range f.GetAttachments() {
			attachments = append(attachments, a.GetName()+"/"+a.GetTenant())
		}
		for _, e := range f.GetCapabilities().GetEncapsulations() {
			encapsulations = append(encapsulations, strings.ToLower(enum(e, "ENCAPSULATION_")))
		}
		provision := fmt.Sprintf("%d/%d", f.GetProvisionAcknowledged(), f.GetProvisionSent())
		if f.GetProvisionReason() != api.Reason_REASON_UNSPECIFIED {
			provision += " " + reason(f.GetProvisionReason())
		}
		t.add(f.GetName(), f.GetConnected(), since, provision, strings.Join(f.GetDeliveries(), ","), f.GetBindings(),
			strings.Join(attachments, ","), strings.Join(encapsulations, ","), f.GetCapabilities().GetMaxSegments(),
			address(f.GetReturnSid()), f.GetBootId())
	}
	return t
}
