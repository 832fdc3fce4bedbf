package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	api "github.com/margay-net/margay/api/margayv1alpha1"
)

func servicesView() *view {
	return &view{
		name: "services", alias: "service", short: "The services of the catalogue, with what is available of them", ofService: true,
		columns: []column{
			{name: "CS-ID", meaning: "identity of the service"},
			{name: "STATE", meaning: "DRAFT, PUBLISHED (takes new flows), DEPRECATED (keeps its flows) or WITHDRAWN"},
			{name: "VERSION", meaning: "that is published; reports of another version do not count"},
			{name: "POLICY", meaning: "how candidates are ranked: latency, service or network"},
			{name: "ADDRESSES", meaning: "that clients use"},
			{name: "ELIGIBLE", meaning: "instances that a new flow could get now, paths aside / deployments"},
			{name: "SLOTS", meaning: "that the eligible instances have left for new flows"},
			{name: "BINDINGS", meaning: "flows of the service, DRAINING ones aside"},
			{name: "NUMBER", meaning: "stable number of the service on the wire", wide: true},
			{name: "TENANTS", meaning: "whose clients may use it", wide: true},
			{name: "NAME", meaning: "for people", wide: true},
		},
		ask: func(ctx context.Context, c api.OperatorServiceClient, q query, page func(proto.Message) error) error {
			answer, err := c.ListServices(ctx, &api.ListServicesRequest{})
			if err == nil && q.service != "" {
				err = inCatalogue(answer, q.service)
				answer.Services = slices.DeleteFunc(answer.Services, func(s *api.ServiceStatus) bool { return s.GetService().GetCsId() != q.service })
			}
			if err != nil {
				return err
			}
			return page(answer)
		},
		fill: fillServices,
	}
}

func fillServices(t *table, m proto.Message) {
	answer := m.(*api.ListServicesResponse)
	t.footer = fmt.Sprintf("catalogue generation %d", answer.GetGeneration())
	for _, status := range answer.GetServices() {
		s := status.GetService()
		var at []string
		for _, a := range s.GetAddresses() {
			at = append(at, serviceAddress(a))
		}
		t.add(s.GetCsId(), enum(s.GetState()), s.GetVersion(), enum(s.GetPolicy()), strings.Join(at, ","),
			fmt.Sprintf("%d/%d", status.GetEligible(), status.GetDeployments()), status.GetEffectiveSlots(), status.GetBindings(),
			s.GetNumber(), strings.Join(s.GetTenants(), ","), s.GetName())
	}
}

func instancesView() *view {
	return &view{
		name: "instances", alias: "instance", short: "The CST (what the C-SMAs report) joined with the catalogue", ofService: true,
		columns: []column{
			{name: "CS-ID", meaning: "the service"},
			{name: "CSCI-ID", meaning: "the contact instance"},
			{name: "SITE", meaning: "where it is; -: no deployment of the catalogue authorizes the row"},
			{name: "HEALTH", meaning: "as reported; UNKNOWN once the row has expired; -: nothing is reported, or it was withdrawn"},
			{name: "GAS", meaning: "Global Available Slots: concurrent requests that it can serve, as reported"},
			{name: "EFFECTIVE", meaning: "slots that a new flow could take: GAS less what bindings hold; 0 where it is not eligible"},
			{name: "COMPUTING", meaning: "time of one request"},
			{name: "ROW", meaning: "VALID, STALE (past its ttl), EXPIRED (past the grace, too) or WITHDRAWN by its C-SMA; only VALID ones are used"},
			{name: "AGE", meaning: "of the values"},
			{name: "OUT AT", meaning: "first stage of selection that takes it out for every ingress; -: it is eligible"},
			{name: "LOCATOR", meaning: "where it is reached", wide: true},
			{name: "EGRESS", meaning: "forwarders that acknowledged their delivery rule for it", wide: true},
			{name: "BINDINGS", meaning: "flows that use it, DRAINING ones aside", wide: true},
			{name: "REPORTING", meaning: "reliability of its SCI agent: ACTIVE (no report yet), HEALTHY, STALE, FAILED", wide: true},
			{name: "SOURCE", meaning: "C-SMA that advertises it", wide: true},
			{name: "SEQ", meaning: "sequence number of the C-SMA's update", wide: true},
			{name: "GENERATION", meaning: "of the CST when the row last changed", wide: true},
		},
		ask: func(ctx context.Context, c api.OperatorServiceClient, q query, page func(proto.Message) error) error {
			answer, err := c.ListInstances(ctx, &api.ListInstancesRequest{CsId: q.service})
			if err == nil && q.service != "" && len(answer.GetInstances()) == 0 {
				err = known(ctx, c, q.service)
			}
			if err != nil {
				return err
			}
			return page(answer)
		},
		fill: fillInstances,
	}
}

func fillInstances(t *table, m proto.Message) {
	answer := m.(*api.ListInstancesResponse)
	t.footer = fmt.Sprintf("CST generation %d, catalogue generation %d", answer.GetCstGeneration(), answer.GetCatalogueGeneration())
	for _, i := range answer.GetInstances() {
		gas, computing, since := "-", "-", "-"
		r := i.GetReport()
		if r != nil {
			gas, computing, since = fmt.Sprint(r.GetMetrics().GetGas()), fmt.Sprintf("%dms", r.GetMetrics().GetComputingTimeMs()), age(r.GetAgeMs())
		}
		t.add(i.GetCsId(), i.GetCsciId(), i.GetDeployment().GetSite(), health(r), gas, i.GetEffectiveSlots(), computing, enum(r.GetValidity()), since,
			i.GetStage(), locator(i.GetDeployment().GetLocator()), strings.Join(i.GetDelivering(), ","), i.GetBindings(),
			enum(r.GetReportingState()), r.GetSource(), r.GetSeq(), r.GetGeneration())
	}
}

func pathsView() *view {
	return &view{
		name: "paths", alias: "path", short: "The NST (network metrics between forwarders) with the path of each row",
		columns: []column{
			{name: "HEADEND", meaning: "forwarder where the path begins"},
			{name: "EGRESS", meaning: "forwarder where it ends"},
			{name: "COLOR", meaning: "kind of path (RFC 9256); 0: the default topology"},
			{name: "REACHABLE", meaning: "whether there is a path"},
			{name: "DELAY", meaning: "one-way; -: not reachable"},
			{name: "HOPS", meaning: "links; -: not reachable"},
			{name: "VIA", meaning: "nodes of the path as it would be computed now"},
			{name: "ROW", meaning: "VALID, STALE (past its ttl), EXPIRED (past the grace, too) or WITHDRAWN by its C-NMA; only VALID ones are used"},
			{name: "AGE", meaning: "since it was measured"},
			{name: "SEGMENTS", meaning: "SRv6 segments of the path, in travel order", wide: true},
			{name: "SOURCE", meaning: "C-NMA that advertises it", wide: true},
			{name: "GENERATION", meaning: "of the NST when the row last changed", wide: true},
		},
		ask: func(ctx context.Context, c api.OperatorServiceClient, _ query, page func(proto.Message) error) error {
			answer, err := c.ListPaths(ctx, &api.ListPathsRequest{})
			if err != nil {
				return err
			}
			return page(answer)
		},
		fill: fillPaths,
	}
}

func fillPaths(t *table, m proto.Message) {
	answer := m.(*api.ListPathsResponse)
	t.footer = fmt.Sprintf("NST generation %d, TEDB generation %d", answer.GetNstGeneration(), answer.GetTedbGeneration())
	for _, p := range answer.GetPaths() {
		hops := "-"
		if p.GetReachable() {
			hops = fmt.Sprint(p.GetMetrics().GetHops())
		}
		t.add(p.GetHeadend(), p.GetEgress(), p.GetColor(), p.GetReachable(), delay(p), hops, strings.Join(p.GetPath().GetNodes(), ","),
			enum(p.GetValidity()), age(p.GetAgeMs()), addresses(p.GetPath().GetSegments()), p.GetSource(), p.GetGeneration())
	}
}

func forwardersView() *view {
	return &view{
		name: "forwarders", alias: "forwarder", short: "The forwarders of the domain and what they acknowledged",
		columns: []column{
			{name: "NAME", meaning: "of the forwarder"},
			{name: "CONNECTED", meaning: "whether it has a session with the C-PS"},
			{name: "SINCE", meaning: "how long it has been so"},
			{name: "PROVISION", meaning: "generation of rules that it acknowledged / that it was sent; then why it refused them, if it did"},
			{name: "DELIVERIES", meaning: "instances whose delivery rule it acknowledged; it is an egress for these alone"},
			{name: "OWNS", meaning: "bindings whose ingress it is"},
			{name: "ATTACHMENTS", meaning: "where clients come in / of which tenant"},
			{name: "ENCAPSULATIONS", meaning: "that it can make", wide: true},
			{name: "SEGMENTS", meaning: "most segments that it can push", wide: true},
			{name: "RETURN SID", meaning: "segment that ends return paths there", wide: true},
			{name: "BOOT", meaning: "identity of its kernel's boot", wide: true},
		},
		ask: func(ctx context.Context, c api.OperatorServiceClient, _ query, page func(proto.Message) error) error {
			answer, err := c.ListForwarders(ctx, &api.ListForwardersRequest{})
			if err != nil {
				return err
			}
			return page(answer)
		},
		fill: fillForwarders,
	}
}

func fillForwarders(t *table, m proto.Message) {
	answer := m.(*api.ListForwardersResponse)
	t.footer = fmt.Sprintf("shard %d, epoch %d.%d", answer.GetShard(), answer.GetEpoch().GetTerm(), answer.GetEpoch().GetCounter())
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
			encapsulations = append(encapsulations, enum(e))
		}
		provision := fmt.Sprintf("%d/%d", f.GetProvisionAcknowledged(), f.GetProvisionSent())
		if f.GetProvisionReason() != api.Reason_REASON_UNSPECIFIED {
			provision += " " + enum(f.GetProvisionReason())
		}
		t.add(f.GetName(), f.GetConnected(), since, provision, strings.Join(f.GetDeliveries(), ","), f.GetBindings(),
			strings.Join(attachments, ","), strings.Join(encapsulations, ","), f.GetCapabilities().GetMaxSegments(),
			address(f.GetReturnSid()), f.GetBootId())
	}
}
