package v1alpha1

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// rejection is a valid message with one field made wrong: the error has to name the field and wrap the reason.
type rejection[M any] struct {
	field  string
	reason cats.Reason
	change func(M)
}

func reject[M any](t *testing.T, valid func() M, decode func(M) error, tests []rejection[M]) {
	t.Helper()
	if err := decode(valid()); err != nil {
		t.Fatalf("the valid message: %v", err)
	}
	for i, test := range tests {
		t.Run(fmt.Sprintf("%02d %s", i, test.field), func(t *testing.T) {
			m := valid()
			test.change(m)
			err := decode(m)
			if !errors.Is(err, test.reason) {
				t.Fatalf("error %v, want %s", err, test.reason)
			}
			if !strings.HasPrefix(err.Error(), test.field+": ") {
				t.Fatalf("error %q does not begin with the field %q", err, test.field)
			}
		})
	}
}

var (
	ten     = slices.Repeat([]byte{1}, 10)
	zeroes  = make([]byte, 16)
	mapped  = append(append(make([]byte, 10), 0xff, 0xff), 192, 0, 2, 1)
	control = "a\x1bb"
)

func p[T any](v T) *T { return &v }

func TestRejectServiceRequest(t *testing.T) {
	reject(t, func() *pb.ServiceRequest { return EncodeServiceRequest(validRequest(0)) },
		func(m *pb.ServiceRequest) error { _, err := DecodeServiceRequest(m); return err },
		[]rejection[*pb.ServiceRequest]{
			{"transaction", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.Transaction = ten }},
			{"transaction", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.Transaction = zeroes }},
			{"cs_id", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.CsId = "a b" }},
			{"cs_id", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.CsId = strings.Repeat("a", 64) }},
			{"ingress", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.Ingress = "" }},
			{"disposition", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.Disposition = 0 }},
			{"disposition", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.Disposition = 3 }},
			{"disposition", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.Disposition = -1 }},
			{"request_generation", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.RequestGeneration = p[uint32](65536) }},
			{"constraints.hard.min_security", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.Constraints.Hard.MinSecurity = p[uint32](256) }},
			{"constraints.hard.target_price", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.Constraints.Hard.TargetPrice = p[uint32](1) }},
			{"flow_key.attachment", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey = nil }},
			{"flow_key.tenant", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tenant = "../x" }},
			{"flow_key.tuple.protocol", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Protocol = 1 }},
			{"flow_key.tuple.protocol", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Protocol = 6 + 256 }},
			{"flow_key.tuple.source.address", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Source = nil }},
			{"flow_key.tuple.source.address", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Source.Address = ten }},
			{"flow_key.tuple.source.address", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Source.Address = mapped }},
			{"flow_key.tuple.source.address", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Source.Address = zeroes }},
			{"flow_key.tuple.source.address", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Source.Address = []byte{224, 0, 0, 1} }},
			{"flow_key.tuple.target.port", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Target.Port = 0 }},
			{"flow_key.tuple.target.port", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Target.Port = 65536 }},
			{"flow_key.tuple.target", cats.ReasonMalformed, func(m *pb.ServiceRequest) { m.FlowKey.Tuple.Target.Address = append([]byte{0x20}, make([]byte, 15)...) }},
		})
}

func TestRejectPath(t *testing.T) {
	reject(t, func() *pb.PathRequest { return EncodePathRequest(validPathRequest(), sent) },
		func(m *pb.PathRequest) error { _, err := DecodePathRequest(m, sent); return err },
		[]rejection[*pb.PathRequest]{
			{"transaction", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Transaction = nil }},
			{"headend", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Headend = "" }},
			{"endpoint", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Endpoint = nil }},
			{"egress", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Egress = "a/b" }},
			{"attachment", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Attachment = "a b" }},
			{"domain", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Domain = control }},
			{"domain", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Domain = "" }},
			{"policy", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Policy = control }},
			{"disjointness", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Disjointness = 1 }},
			{"disjointness", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Disjointness = 9; m.DisjointFrom = m.Transaction }},
			{"disjointness", cats.ReasonMalformed, func(m *pb.PathRequest) { m.DisjointFrom = m.Transaction }},
			{"disjoint_from", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Disjointness = 1; m.DisjointFrom = ten }},
			{"capabilities", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Capabilities = nil }},
			{"capabilities.max_segments", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Capabilities.MaxSegments = 17 }},
			{"capabilities.encapsulations", cats.ReasonMalformed, func(m *pb.PathRequest) { m.Capabilities.Encapsulations[0] = 0 }},
		})
	reject(t, func() *pb.PathReply { return EncodePathReply(validPathReply()) },
		func(m *pb.PathReply) error { _, err := DecodePathReply(m); return err },
		[]rejection[*pb.PathReply]{
			{"transaction", cats.ReasonMalformed, func(m *pb.PathReply) { m.Transaction = zeroes }},
			{"status", cats.ReasonMalformed, func(m *pb.PathReply) { m.Status = 0 }},
			{"kind", cats.ReasonMalformed, func(m *pb.PathReply) { m.Kind = 0 }},
			{"kind", cats.ReasonMalformed, func(m *pb.PathReply) { m.Kind = 5 }},
			{"segments", cats.ReasonMalformed, func(m *pb.PathReply) { m.Segments = nil }},
			{"segments", cats.ReasonMalformed, func(m *pb.PathReply) { m.Segments[0] = []byte{192, 0, 2, 1} }},
			{"segments", cats.ReasonOversize, func(m *pb.PathReply) { m.Segments = slices.Repeat(m.Segments, 9) }},
			{"segments", cats.ReasonMalformed, func(m *pb.PathReply) { m.Kind = pb.PathKind_PATH_KIND_TUNNEL }},
			{"labels", cats.ReasonMalformed, func(m *pb.PathReply) { m.Kind = pb.PathKind_PATH_KIND_SR_MPLS; m.Segments = nil }},
			{"labels", cats.ReasonMalformed, func(m *pb.PathReply) { mpls(m, 15) }},
			{"labels", cats.ReasonMalformed, func(m *pb.PathReply) { mpls(m, 1<<20) }},
			{"handle", cats.ReasonMalformed, func(m *pb.PathReply) { m.Handle = "policy" }},
			{"handle", cats.ReasonMalformed, func(m *pb.PathReply) { m.Kind = pb.PathKind_PATH_KIND_TUNNEL; m.Segments = nil }},
			{"nodes", cats.ReasonMalformed, func(m *pb.PathReply) { m.Nodes = []string{""} }},
			{"nodes", cats.ReasonOversize, func(m *pb.PathReply) { m.Nodes = slices.Repeat([]string{"R"}, MaxNodes+1) }},
			{"endpoint", cats.ReasonMalformed, func(m *pb.PathReply) { m.Endpoint = ten }},
			{"egress", cats.ReasonMalformed, func(m *pb.PathReply) { m.Egress = "" }},
			{"metrics.loss_ppm", cats.ReasonRange, func(m *pb.PathReply) { m.Metrics.LossPpm = 1_000_001 }},
			{"metrics.hops", cats.ReasonMalformed, func(m *pb.PathReply) { m.Metrics.Hops = 256 }},
			{"reason", cats.ReasonMalformed, func(m *pb.PathReply) { m.Reason = 200 }},
			{"reason", cats.ReasonMalformed, func(m *pb.PathReply) { m.Status = pb.PathStatus_PATH_STATUS_NONE }},
			{"detail", cats.ReasonMalformed, func(m *pb.PathReply) { m.Detail = control }},
			{"detail", cats.ReasonOversize, func(m *pb.PathReply) { m.Detail = strings.Repeat("a", MaxDetail+1) }},
		})
}

func mpls(m *pb.PathReply, label uint32) {
	m.Kind, m.Segments, m.Labels = pb.PathKind_PATH_KIND_SR_MPLS, nil, []uint32{label}
}

func TestRejectBinding(t *testing.T) {
	other := EncodeEndpoint(validKey().Tuple.Target)
	other.Port = 1
	reject(t, func() *pb.Binding { return EncodeBinding(validBinding(0)) },
		func(m *pb.Binding) error { _, err := DecodeBinding(m); return err },
		[]rejection[*pb.Binding]{
			{"transaction", cats.ReasonMalformed, func(m *pb.Binding) { m.Transaction = ten }},
			{"epoch", cats.ReasonMalformed, func(m *pb.Binding) { m.Epoch = nil }},
			{"version", cats.ReasonMalformed, func(m *pb.Binding) { m.Version = 0 }},
			{"service_number", cats.ReasonMalformed, func(m *pb.Binding) { m.ServiceNumber = 0 }},
			{"cs_id", cats.ReasonMalformed, func(m *pb.Binding) { m.CsId = "" }},
			{"csci_id", cats.ReasonMalformed, func(m *pb.Binding) { m.CsciId = strings.Repeat("a", 128) }},
			{"owner", cats.ReasonMalformed, func(m *pb.Binding) { m.Owner = "" }},
			{"egress", cats.ReasonMalformed, func(m *pb.Binding) { m.Egress = "" }},
			{"idle_ms", cats.ReasonMalformed, func(m *pb.Binding) { m.IdleMs = 0 }},
			{"idle_ms", cats.ReasonMalformed, func(m *pb.Binding) { m.IdleMs = 1 << 62 }},
			{"hard_ms", cats.ReasonMalformed, func(m *pb.Binding) { m.HardMs = 1 << 63 }},
			{"policy_version", cats.ReasonOversize, func(m *pb.Binding) { m.PolicyVersion = strings.Repeat("a", 64) }},
			{"match.attachment", cats.ReasonMalformed, func(m *pb.Binding) { m.Match = nil }},
			{"forward.locator.protocol", cats.ReasonMalformed, func(m *pb.Binding) { m.Forward = nil }},
			{"forward.locator.port", cats.ReasonMalformed, func(m *pb.Binding) { m.Forward.Locator.Port = 0 }},
			{"forward.locator", cats.ReasonMalformed, func(m *pb.Binding) { m.Forward.Locator.Protocol = 17 }},
			{"forward.attachment_sid", cats.ReasonMalformed, func(m *pb.Binding) { m.Forward.AttachmentSid = ten }},
			{"forward.path.kind", cats.ReasonMalformed, func(m *pb.Binding) { m.Forward.Path = nil }},
			{"reverse.service.protocol", cats.ReasonMalformed, func(m *pb.Binding) { m.Reverse = nil }},
			{"reverse.service", cats.ReasonMalformed, func(m *pb.Binding) { m.Reverse.Service.Source.Port = 1 }},
			{"reverse.client", cats.ReasonMalformed, func(m *pb.Binding) { m.Reverse.Client.Target.Port = 1 }},
			{"reverse.restore", cats.ReasonMalformed, func(m *pb.Binding) { m.Reverse.Restore = other }},
			{"reverse.path.segments", cats.ReasonMalformed, func(m *pb.Binding) { m.Reverse.Path.Segments = nil }},
		})
}

func TestRejectSteering(t *testing.T) {
	valid := func() *pb.SteerResponse {
		return EncodeSteering(&cats.SteeringBatch{
			Provision: validProvision(),
			Removes:   []cats.Remove{{Transaction: numbered(1), Reason: cats.ReasonIdle}},
			Drains:    []cats.Drain{{Transaction: numbered(1), Reason: cats.ReasonIdle}},
			Installs:  []cats.Install{{Binding: *validBinding(1)}},
			Refusals:  []cats.Refuse{{Transaction: numbered(1), Reason: cats.ReasonNoCandidate, Stage: "health"}},
		})[0]
	}
	reject(t, valid, func(m *pb.SteerResponse) error { _, err := DecodeSteering(m); return err },
		[]rejection[*pb.SteerResponse]{
			{"message", cats.ReasonMalformed, func(m *pb.SteerResponse) { proto.Reset(m) }},
			{"provision.epoch", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Provision.Epoch = nil }},
			{"provision.services", cats.ReasonOversize, func(m *pb.SteerResponse) {
				m.Provision.Services = slices.Repeat(m.Provision.Services, MaxRows+1)
			}},
			{"provision.services[0].number", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Provision.Services[0].Number = 0 }},
			{"provision.services[0].port", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Provision.Services[0].Port = 0 }},
			{"provision.services[0].prefix.address", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Provision.Services[0].Prefix = nil }},
			{"provision.services[0].prefix.bits", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Provision.Services[0].Prefix.Bits = 33 }},
			{"provision.services[0].prefix.address", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Provision.Services[0].Prefix.Bits = 24 }},
			{"provision.deliveries[0].sid", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Provision.Deliveries[0].Sid = nil }},
			{"provision.deliveries[0].locator.address", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Provision.Deliveries[0].Locator.Address = nil }},
			{"removes[0].half", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Removes[0].Half = 0 }},
			{"removes[0].epoch", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Removes[0].Epoch = nil }},
			{"drains[0].half", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Drains[0].Half = 3 }},
			{"drains[0].reason", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Drains[0].Reason = -1 }},
			{"installs[0].binding.transaction", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Installs[0].Binding = nil }},
			{"installs", cats.ReasonOversize, func(m *pb.SteerResponse) { m.Installs = slices.Repeat(m.Installs, MaxBatch+1) }},
			{"refusals[0].reason", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Refusals[0].Reason = 0 }},
			{"refusals[0].stage", cats.ReasonMalformed, func(m *pb.SteerResponse) { m.Refusals[0].Stage = control }},
		})
}

func TestRejectForwarder(t *testing.T) {
	hello := validHello()
	hello.Bindings = []cats.HeldBinding{{Half: cats.EgressHalf, State: cats.Draining, Reason: cats.ReasonIdle, Binding: *validBinding(2)}}
	valid := func() *pb.SteerRequest {
		return &pb.SteerRequest{
			Hello:       encodeHello(hello)[0],
			Attachments: &pb.Attachments{Attachments: encodeAttachments(hello.Attachments)},
			Provisioned: encodeProvisioned(&cats.Provisioned{Forwarder: "EF-1", Deliveries: []cats.CSCIID{"a"}}),
			Statuses:    []*pb.BindingStatus{EncodeBindingStatus(&cats.BindingStatus{Transaction: numbered(1), Forwarder: "EF-1"})},
		}
	}
	reject(t, valid, func(m *pb.SteerRequest) error { _, err := new(ForwarderReader).Next(m); return err },
		[]rejection[*pb.SteerRequest]{
			{"hello.name", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Name = "a:b" }},
			{"hello.boot_id", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.BootId = "" }},
			{"hello.highest[0].epoch", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Highest[0].Epoch = nil }},
			{"hello.highest", cats.ReasonDuplicate, func(m *pb.SteerRequest) { m.Hello.Highest = slices.Repeat(m.Hello.Highest, 2) }},
			{"hello.highest", cats.ReasonOversize, func(m *pb.SteerRequest) { m.Hello.Highest = slices.Repeat(m.Hello.Highest, MaxServices+1) }},
			{"hello.return_sid", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.ReturnSid = ten }},
			{"hello.capabilities", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Capabilities = nil }},
			{"hello.attachments[0].tenant", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Attachments[0].Tenant = "" }},
			{"hello.attachments", cats.ReasonDuplicate, func(m *pb.SteerRequest) { m.Hello.Attachments = slices.Repeat(m.Hello.Attachments, 2) }},
			{"hello.attachments", cats.ReasonOversize, func(m *pb.SteerRequest) { m.Hello.Attachments = slices.Repeat(m.Hello.Attachments, MaxServices+1) }},
			{"hello.attachments[0].source_prefixes[1].bits", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Attachments[0].SourcePrefixes[1].Bits = 129 }},
			{"hello.attachments[0].source_prefixes[0].address", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Attachments[0].SourcePrefixes[0].Bits = 8 }},
			{"hello.attachments[0].source_prefixes", cats.ReasonDuplicate, func(m *pb.SteerRequest) {
				m.Hello.Attachments[0].SourcePrefixes = slices.Repeat(m.Hello.Attachments[0].SourcePrefixes, 2)
			}},
			{"hello.attachments[0].source_prefixes", cats.ReasonOversize, func(m *pb.SteerRequest) {
				m.Hello.Attachments[0].SourcePrefixes = slices.Repeat(m.Hello.Attachments[0].SourcePrefixes, MaxServices)
			}},
			{"attachments.attachments[0].name", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Attachments.Attachments[0].Name = "" }},
			{"hello.bindings[0].half", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Bindings[0].Half = 0 }},
			{"hello.bindings[0].state", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Bindings[0].State = 0 }},
			{"hello.bindings[0].state", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Bindings[0].State = pb.FlowState_FLOW_STATE_PENDING }},
			{"hello.bindings[0].binding.transaction", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Hello.Bindings[0].Binding = nil }},
			{"hello.bindings", cats.ReasonOversize, func(m *pb.SteerRequest) { m.Hello.Bindings = slices.Repeat(m.Hello.Bindings, MaxBatch+1) }},
			{"provisioned.forwarder", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Provisioned.Forwarder = "" }},
			{"provisioned.deliveries", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Provisioned.Deliveries = []string{""} }},
			{"statuses[0].transaction", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Statuses[0].Transaction = nil }},
			{"statuses[0].forwarder", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Statuses[0].Forwarder = "" }},
			{"statuses[0].half", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Statuses[0].Half = 0 }},
			{"statuses[0].result", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Statuses[0].Result = 0 }},
			{"statuses[0].expires_ms", cats.ReasonMalformed, func(m *pb.SteerRequest) { m.Statuses[0].ExpiresMs = p[uint64](1 << 62) }},
			{"statuses", cats.ReasonOversize, func(m *pb.SteerRequest) { m.Statuses = slices.Repeat(m.Statuses, MaxBatch+1) }},
		})
}

func TestRejectReport(t *testing.T) {
	reject(t, func() *pb.SciReport { return EncodeReport(validReport()) },
		func(m *pb.SciReport) error { _, err := DecodeReport(m); return err },
		[]rejection[*pb.SciReport]{
			{"csci_id", cats.ReasonMalformed, func(m *pb.SciReport) { m.CsciId = "a/b" }},
			{"site", cats.ReasonMalformed, func(m *pb.SciReport) { m.Site = "" }},
			{"epoch", cats.ReasonMalformed, func(m *pb.SciReport) { m.Epoch = 0 }},
			{"timestamp_ms", cats.ReasonMalformed, func(m *pb.SciReport) { m.TimestampMs = 0 }},
			{"timestamp_ms", cats.ReasonMalformed, func(m *pb.SciReport) { m.TimestampMs = 1 << 62 }},
			{"interval_ms", cats.ReasonMalformed, func(m *pb.SciReport) { m.IntervalMs = 0 }},
			{"interval_ms", cats.ReasonMalformed, func(m *pb.SciReport) { m.IntervalMs = 3_600_001 }},
			{"services", cats.ReasonOversize, func(m *pb.SciReport) { m.Services = slices.Repeat(m.Services, MaxServices) }},
			{"services", cats.ReasonDuplicate, func(m *pb.SciReport) { m.Services[1].CsId = "S1" }},
			{"services[1].cs_id", cats.ReasonMalformed, func(m *pb.SciReport) { m.Services[1].CsId = "" }},
			{"services[0].version", cats.ReasonMalformed, func(m *pb.SciReport) { m.Services[0].Version = control }},
			{"services[0].health", cats.ReasonMalformed, func(m *pb.SciReport) { m.Services[0].Health = 0 }},
			{"services[0].metrics", cats.ReasonMalformed, func(m *pb.SciReport) { m.Services[0].Metrics = nil }},
			{"services[0].metrics.reputation", cats.ReasonRange, func(m *pb.SciReport) { m.Services[0].Metrics.Reputation = p[uint32](256) }},
			{"services[0].metrics.extensions", cats.ReasonMalformed, func(m *pb.SciReport) {
				m.Services[0].Metrics.Extensions = map[string]float64{"a b": 1}
			}},
			{"services[0].metrics.extensions", cats.ReasonOversize, func(m *pb.SciReport) {
				m.Services[0].Metrics.Extensions = map[string]float64{}
				for i := range MaxExtensions + 1 {
					m.Services[0].Metrics.Extensions[fmt.Sprint(i)] = 1
				}
			}},
		})
}

func TestRejectUpdates(t *testing.T) {
	auth := cats.Auth{Algorithm: cats.AuthHMACSHA256, KeyID: "k", Value: make([]byte, 32)}
	reject(t, func() *pb.MetricUpdate { return EncodeMetricUpdate(validMetricUpdate(), auth) },
		func(m *pb.MetricUpdate) error { _, _, err := DecodeMetricUpdate(m); return err },
		[]rejection[*pb.MetricUpdate]{
			{"header.source", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header = nil }},
			{"header.site", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header.Site = "a b" }},
			{"header.epoch", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header.Epoch = 0 }},
			{"header.seq", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header.Seq = 0 }},
			{"header.timestamp_ms", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header.TimestampMs = -1 }},
			{"header.kind", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header.Kind = 0 }},
			{"header.kind", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header.Kind = 5 }},
			{"header.ttl_ms", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header.TtlMs = 0 }},
			{"header.ttl_ms", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header.TtlMs = 86_400_001 }},
			{"auth.algorithm", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Auth.Algorithm = 0 }},
			{"auth.value", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Auth.Algorithm = pb.AuthAlgorithm_AUTH_ALGORITHM_ED25519 }},
			{"auth.key_id", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Auth.KeyId = "" }},
			{"records", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Header.Kind = pb.UpdateKind_UPDATE_KIND_REFRESH }},
			{"records", cats.ReasonOversize, func(m *pb.MetricUpdate) { m.Records = slices.Repeat(m.Records, MaxRows) }},
			{"records", cats.ReasonDuplicate, func(m *pb.MetricUpdate) { m.Records[1].CsciId = m.Records[0].CsciId }},
			{"records[1].cs_id", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Records[1].CsId = "" }},
			{"records[0].csci_id", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Records[0].CsciId = "" }},
			{"records[0].health", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Records[0].Health = 9 }},
			{"records[0].reporting_state", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Records[0].ReportingState = 0 }},
			{"records[0].age_ms", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Records[0].AgeMs = 604_800_001 }},
			{"records[0].metrics", cats.ReasonMalformed, func(m *pb.MetricUpdate) { m.Records[0].Metrics = nil }},
			{"records[0].metrics.reputation 11 above 10", cats.ReasonRange, func(m *pb.MetricUpdate) { m.Records[0].Metrics.Reputation = p[uint32](11) }},
			{"records[0].metrics.computing_time_ms 3600001 above 3600000", cats.ReasonRange, func(m *pb.MetricUpdate) { m.Records[0].Metrics.ComputingTimeMs = 3_600_001 }},
		})
	reject(t, func() *pb.NetworkUpdate { return EncodeNetworkUpdate(validNetworkUpdate(), cats.Auth{}) },
		func(m *pb.NetworkUpdate) error { _, _, err := DecodeNetworkUpdate(m); return err },
		[]rejection[*pb.NetworkUpdate]{
			{"header.kind", cats.ReasonMalformed, func(m *pb.NetworkUpdate) { m.Header.Kind = pb.UpdateKind_UPDATE_KIND_REFRESH }},
			{"nodes", cats.ReasonOversize, func(m *pb.NetworkUpdate) { m.Nodes = slices.Repeat(m.Nodes, MaxRows) }},
			{"nodes", cats.ReasonDuplicate, func(m *pb.NetworkUpdate) { m.Nodes[1].Name = "IF-1" }},
			{"nodes[0].name", cats.ReasonMalformed, func(m *pb.NetworkUpdate) { m.Nodes[0].Name = "" }},
			{"nodes[1].sid", cats.ReasonMalformed, func(m *pb.NetworkUpdate) { m.Nodes[1].Sid = []byte{192, 0, 2, 1} }},
			{"nodes[1].sid", cats.ReasonMalformed, func(m *pb.NetworkUpdate) { m.Nodes[1].Sid = mapped }},
			{"links", cats.ReasonDuplicate, func(m *pb.NetworkUpdate) { m.Links = slices.Repeat(m.Links, 2) }},
			{"links[0].from", cats.ReasonMalformed, func(m *pb.NetworkUpdate) { m.Links[0].From = "" }},
			{"links[0].to", cats.ReasonMalformed, func(m *pb.NetworkUpdate) { m.Links[0].To = "IF-1" }},
			{"links[0].loss_ppm", cats.ReasonRange, func(m *pb.NetworkUpdate) { m.Links[0].LossPpm = 1_000_001 }},
			{"links[0].age_ms", cats.ReasonMalformed, func(m *pb.NetworkUpdate) { m.Links[0].AgeMs = 604_800_001 }},
			{"paths", cats.ReasonDuplicate, func(m *pb.NetworkUpdate) { m.Paths = slices.Repeat(m.Paths, 2) }},
			{"paths[0].headend", cats.ReasonMalformed, func(m *pb.NetworkUpdate) { m.Paths[0].Headend = "" }},
			{"paths[0].metrics.hops", cats.ReasonMalformed, func(m *pb.NetworkUpdate) { m.Paths[0].Metrics.Hops = 256 }},
		})
}

func TestRejectFeedback(t *testing.T) {
	decode := func(m *pb.Feedback) error { _, err := DecodeFeedback(m); return err }
	query := func() *pb.Feedback {
		return EncodeFeedback(&cats.Feedback{Kind: cats.FeedbackQuery, CSIDs: []cats.CSID{"S1"}})
	}
	reject(t, query, decode, []rejection[*pb.Feedback]{
		{"feedback", cats.ReasonUnknownType, func(m *pb.Feedback) { m.Message = nil }},
		{"query.cs_ids", cats.ReasonMalformed, func(m *pb.Feedback) { m.GetQuery().CsIds[0] = "a b" }},
		{"query.cs_ids", cats.ReasonOversize, func(m *pb.Feedback) { m.GetQuery().CsIds = slices.Repeat([]string{"S"}, MaxServices+1) }},
	})
	applied := func() *pb.Feedback {
		return EncodeFeedback(&cats.Feedback{Kind: cats.FeedbackApplied, RowRefusals: []cats.RowRefusal{{CSID: "S1", CSCIID: "a"}}})
	}
	reject(t, applied, decode, []rejection[*pb.Feedback]{
		{"applied.refusals.csci_id", cats.ReasonMalformed, func(m *pb.Feedback) { m.GetApplied().Refusals[0].CsciId = "" }},
		{"applied.refusals.reason", cats.ReasonMalformed, func(m *pb.Feedback) { m.GetApplied().Refusals[0].Reason = 99 }},
	})
	policy := func() *pb.Feedback { return EncodeFeedback(&cats.Feedback{Kind: cats.FeedbackPolicy}) }
	reject(t, policy, decode, []rejection[*pb.Feedback]{
		{"policy_update.document", cats.ReasonOversize, func(m *pb.Feedback) {
			m.GetPolicyUpdate().Document = strings.Repeat("a", MaxPolicyDocument+1)
		}},
	})
}

// An absent message is a malformed one, never a panic.
func TestRejectNil(t *testing.T) {
	for name, decode := range map[string]func() error{
		"report":         func() error { _, err := DecodeReport(nil); return err },
		"verdict":        func() error { _, err := DecodeVerdict(nil); return err },
		"metric update":  func() error { _, _, err := DecodeMetricUpdate(nil); return err },
		"network update": func() error { _, _, err := DecodeNetworkUpdate(nil); return err },
		"request":        func() error { _, err := DecodeServiceRequest(nil); return err },
		"path request":   func() error { _, err := DecodePathRequest(nil, sent); return err },
		"path reply":     func() error { _, err := DecodePathReply(nil); return err },
		"binding":        func() error { _, err := DecodeBinding(nil); return err },
		"status":         func() error { _, err := DecodeBindingStatus(nil); return err },
		"steering":       func() error { _, err := DecodeSteering(nil); return err },
		"forwarder":      func() error { _, err := new(ForwarderReader).Next(nil); return err },
		"locator":        func() error { _, err := DecodeLocator(nil); return err },
		"endpoint":       func() error { _, err := DecodeEndpoint(nil); return err },
		"metrics":        func() error { _, err := DecodeMetrics(nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if err := decode(); !errors.Is(err, cats.ReasonMalformed) {
				t.Fatalf("error %v", err)
			}
		})
	}
}
