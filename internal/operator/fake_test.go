package operator

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

// fakeCPS answers operators from what a test puts in.
type fakeCPS struct {
	api.UnimplementedOperatorServiceServer
	bindings []*api.BindingRow
	asked    []*api.ListBindingsRequest
	explain  func(*api.ExplainRequest) (*api.ExplainResponse, error)
}

func octets(a string) []byte { return netip.MustParseAddr(a).AsSlice() }

func (*fakeCPS) ListServices(context.Context, *api.ListServicesRequest) (*api.ListServicesResponse, error) {
	service := func(id string, number uint32, state api.ServiceState, at string, bits, protocol, port uint32) *api.Service {
		return &api.Service{
			CsId: id, Number: number, Name: "web", Version: "1", State: state, Policy: api.SelectionPolicy_SELECTION_POLICY_LATENCY, Tenants: []string{"default"},
			Addresses: []*api.ServiceAddress{{Prefix: &api.Prefix{Address: octets(at), Bits: bits}, Protocol: protocol, Port: port}},
		}
	}
	return &api.ListServicesResponse{Generation: 3, Services: []*api.ServiceStatus{
		{Service: service("S1", 1, api.ServiceState_SERVICE_STATE_PUBLISHED, "192.0.2.100", 32, 6, 443), Deployments: 4, Eligible: 1, EffectiveSlots: 99, Bindings: 1},
		{Service: service("U6", 6, api.ServiceState_SERVICE_STATE_DRAFT, "2001:db8:c::100", 128, 17, 5000)},
	}}, nil
}

func report(health api.Health, validity api.Validity) *api.InstanceReport {
	return &api.InstanceReport{
		Health: health, ReportingState: api.ReportingState_REPORTING_STATE_HEALTHY, Validity: validity, Version: "1", Source: "csma-1", Seq: 7, Generation: 3,
		Metrics: &api.Metrics{Gas: 100, ComputingTimeMs: 5, Extensions: map[string]float64{"gpu": 0.5}}, AgeMs: 1400, TtlMs: 150_000,
	}
}

func (*fakeCPS) ListInstances(_ context.Context, q *api.ListInstancesRequest) (*api.ListInstancesResponse, error) {
	deployment := &api.Deployment{
		Site: "edge-1", CsciId: "B", CsId: "S1", Version: "1", Locator: &api.Locator{Protocol: 6, Address: octets("198.51.100.21"), Port: 443},
		Egress: []*api.EgressAttachment{{Forwarder: "EF-2", Sid: octets("2001:db8:0:e2::11")}}, State: api.DeploymentState_DEPLOYMENT_STATE_VALIDATED,
	}
	answer := &api.ListInstancesResponse{CstGeneration: 6, CatalogueGeneration: 3}
	if q.GetCsId() != "" && q.GetCsId() != "S1" {
		return answer, nil
	}
	healthy := api.Health_HEALTH_HEALTHY
	for _, i := range []struct {
		id     string
		report *api.InstanceReport
		slots  uint32
		stage  string
	}{
		{"current", report(healthy, api.Validity_VALIDITY_VALID), 99, ""},
		{"expired", report(healthy, api.Validity_VALIDITY_EXPIRED), 0, "freshness"},
		{"withdrawn", report(healthy, api.Validity_VALIDITY_WITHDRAWN), 0, "freshness"},
		{"silent", nil, 0, "freshness"},
	} {
		answer.Instances = append(answer.Instances, &api.InstanceStatus{
			CsId: "S1", CsciId: i.id, Deployment: deployment, Report: i.report, EffectiveSlots: i.slots, Stage: i.stage, Delivering: []string{"EF-2"},
		})
	}
	return answer, nil
}

func (*fakeCPS) ListPaths(context.Context, *api.ListPathsRequest) (*api.ListPathsResponse, error) {
	return &api.ListPathsResponse{NstGeneration: 2, TedbGeneration: 1, Paths: []*api.PathRow{
		{
			Headend: "IF-1", Egress: "EF-1", Reachable: true, Metrics: &api.PathMetrics{DelayUs: 3500, Hops: 2}, AgeMs: 2400, Validity: api.Validity_VALIDITY_VALID,
			Path: &api.Path{Nodes: []string{"IF-1", "R1", "EF-1"}, Segments: [][]byte{octets("2001:db8:0:f1::1"), octets("2001:db8:0:e1::11")}}, Source: "cnma-1", Generation: 2,
		},
		{Headend: "IF-1", Egress: "EF-2", AgeMs: 700_000, Validity: api.Validity_VALIDITY_EXPIRED, Source: "cnma-1", Generation: 2},
	}}, nil
}

func (*fakeCPS) ListForwarders(context.Context, *api.ListForwardersRequest) (*api.ListForwardersResponse, error) {
	since := uint64(75_000)
	return &api.ListForwardersResponse{Epoch: &api.Epoch{Term: 2}, Forwarders: []*api.ForwarderStatus{
		{
			Name: "EF-2", Connected: true, SinceMs: &since, ProvisionSent: 2, ProvisionAcknowledged: 2, Deliveries: []string{"B"}, BootId: "b-1",
			Capabilities: &api.Capabilities{Encapsulations: []api.Encapsulation{api.Encapsulation_ENCAPSULATION_NONE, api.Encapsulation_ENCAPSULATION_SRV6}, MaxSegments: 10},
		},
		{
			Name: "IF-1", ProvisionSent: 2, ProvisionReason: api.Reason_REASON_TABLE_FULL, Bindings: 1, ReturnSid: octets("2001:db8:0:1::100"),
			Attachments: []*api.Attachment{{Name: "client-1", Tenant: "default"}},
		},
	}}, nil
}

// flow is the binding of a number.
func flow(n int) *api.BindingRow {
	transaction := make([]byte, 16)
	transaction[0] = 0xe4
	binary.BigEndian.PutUint32(transaction[12:], uint32(n))
	end := func(a string, port uint32) *api.Endpoint { return &api.Endpoint{Address: octets(a), Port: port} }
	client, service, instance := end("192.0.2.10", 50_000), end("192.0.2.100", 443), end("198.51.100.21", 443)
	return &api.BindingRow{
		State: api.FlowState_FLOW_STATE_ACTIVE, AgeMs: 12_345, PathUp: true, Forward: &api.Usage{Packets: 7, Octets: 512}, Reverse: &api.Usage{Packets: 5},
		Binding: &api.Binding{
			Transaction: transaction, Epoch: &api.Epoch{Term: 2}, Version: 1, CsId: "S1", CsciId: "B", Owner: "IF-1", Egress: "EF-2", CstGeneration: 6, NstGeneration: 2,
			Match: &api.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: &api.Tuple{Protocol: 6, Source: client, Target: service}},
			Forward: &api.Forward{
				Locator: &api.Locator{Protocol: 6, Address: octets("198.51.100.21"), Port: 443}, AttachmentSid: octets("2001:db8:0:e2::11"),
				Path: &api.Path{Kind: api.PathKind_PATH_KIND_SRV6, Nodes: []string{"IF-1", "R1", "EF-2"}, Segments: [][]byte{octets("2001:db8:0:f1::1"), octets("2001:db8:0:e2::11")}},
			},
			Reverse: &api.Reverse{Service: &api.Tuple{Protocol: 6, Source: instance, Target: client}, Restore: service},
		},
	}
}

// ListBindings gives pages as the C-PS does.
func (f *fakeCPS) ListBindings(_ context.Context, q *api.ListBindingsRequest) (*api.ListBindingsResponse, error) {
	f.asked = append(f.asked, proto.Clone(q).(*api.ListBindingsRequest))
	if q.GetCsId() != "" && q.GetCsId() != "S1" {
		return &api.ListBindingsResponse{}, nil
	}
	rest := f.bindings
	if len(q.GetAfter()) > 0 {
		i := slices.IndexFunc(rest, func(r *api.BindingRow) bool { return bytes.Compare(r.GetBinding().GetTransaction(), q.GetAfter()) > 0 })
		rest = rest[i:]
	}
	n := min(len(rest), int(q.GetLimit()))
	return &api.ListBindingsResponse{Bindings: rest[:n], More: n < len(rest), Total: uint64(len(f.bindings))}, nil
}

func (f *fakeCPS) Explain(_ context.Context, q *api.ExplainRequest) (*api.ExplainResponse, error) {
	return f.explain(q)
}

// fakeForwarder counts, and refuses announcements.
type fakeForwarder struct {
	api.UnimplementedForwarderServiceServer
	name    string
	refusal string
}

func (f *fakeForwarder) GetCounters(context.Context, *api.GetCountersRequest) (*api.GetCountersResponse, error) {
	return &api.GetCountersResponse{
		Forwarder: f.name, ServiceRequests: 1, Held: 2, Released: 2, Bindings: 1, Capacity: 65_536,
		Packets: []*api.PacketCounter{{Kind: "forward", Packets: 7, Octets: 512}, {Kind: "deliver"}},
		Drops:   []*api.DropCounter{{Reason: api.Reason_REASON_NO_CANDIDATE, Packets: 3}, {Reason: api.Reason_REASON_TOO_BIG}},
	}, nil
}

func (f *fakeForwarder) Announce(context.Context, *api.AnnounceRequest) (*api.AnnounceResponse, error) {
	return nil, status.Error(codes.FailedPrecondition, f.refusal)
}

// fakeDomain is a C-PS and forwarders that answer over real channels, and the directory of their sockets and files.
type fakeDomain struct {
	t         *testing.T
	dir       string
	authority trusttest.Authority
	cps       *fakeCPS
	forwarder *fakeForwarder // IF-1
	stopCPS   func()
}

func newDomain(t *testing.T) *fakeDomain {
	t.Helper()
	dir, err := os.MkdirTemp("", "op") // short: a socket's path has 107 octets at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &fakeDomain{t: t, dir: dir, authority: trusttest.New(t), cps: &fakeCPS{}, forwarder: &fakeForwarder{name: "IF-1"}}
	d.stopCPS = d.serve(trust.CPS, "cps-1", func(s *grpc.Server) { api.RegisterOperatorServiceServer(s, d.cps) })
	d.serve(trust.Forwarder, "IF-1", func(s *grpc.Server) { api.RegisterForwarderServiceServer(s, d.forwarder) })
	d.configure("operator", "IF-1", "EF-2") // nobody answers for EF-2
	return d
}

func (d *fakeDomain) socket(name string) endpoint.Address {
	return endpoint.Address("unix:" + filepath.Join(d.dir, name))
}

func (d *fakeDomain) serve(role trust.Role, name string, register func(*grpc.Server)) (stop func()) {
	methods := trust.Methods{}
	for _, s := range []grpc.ServiceDesc{api.OperatorService_ServiceDesc, api.ForwarderService_ServiceDesc} {
		for _, m := range s.Methods {
			methods["/"+s.ServiceName+"/"+m.MethodName] = []trust.Role{trust.Operator}
		}
	}
	guard := trust.NewGuard(trust.Roster{trust.Operator: {"admin"}}, methods, trusttest.Ignore{}, trusttest.Ignore{})
	server := trust.NewServer(d.authority.Credentials(role, name), guard)
	register(server)
	listener, err := trust.Listen(d.socket(name))
	if err != nil {
		d.t.Fatal(err)
	}
	return trusttest.Serve(d.t, server, listener, func() {})
}

// configure writes a configuration for an operator admin.
func (d *fakeDomain) configure(name string, forwarders ...string) string {
	return d.configureAs(name, "admin", forwarders...)
}

func (d *fakeDomain) configureAs(name, operator string, forwarders ...string) string {
	d.t.Helper()
	type peer struct{ Address, Name string }
	peers := []peer{}
	for _, f := range forwarders {
		peers = append(peers, peer{string(d.socket(f)), f})
	}
	files := d.authority.Issue(trust.Operator, operator, pki.Options{})
	text, err := yaml.Marshal(map[string]any{
		"tls": map[string]any{"certificate": files.Certificate, "key": files.Key, "authority": files.Authority, "domain": files.Domain},
		"cps": peer{string(d.socket("cps-1")), "cps-1"}, "forwarders": peers,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	path := filepath.Join(d.dir, name+".yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// run runs the command and gives what it printed, and its exit code as Main does.
func (d *fakeDomain) run(arguments ...string) (out string, code int, err error) {
	return d.runWith(d.t.Context(), "operator", arguments...)
}

func (d *fakeDomain) runWith(ctx context.Context, config string, arguments ...string) (out string, code int, err error) {
	var text bytes.Buffer
	root := Root()
	root.SetOut(&text)
	root.SetErr(&text)
	root.SetArgs(append([]string{"--config", filepath.Join(d.dir, config+".yaml")}, arguments...))
	if err = root.ExecuteContext(ctx); err != nil {
		code = 1
		if exit := ExitCode(0); errors.As(err, &exit) {
			return text.String(), int(exit), nil
		}
	}
	return text.String(), code, err
}
