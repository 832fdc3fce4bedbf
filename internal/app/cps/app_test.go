package cps

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/app/run/runtest"
	"github.com/margay-net/margay/internal/config"
	northbound "github.com/margay-net/margay/internal/northbound/grpc"
	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/southbound/agent"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const catalogueText = `
services:
  - {cs_id: S1, number: 1, name: example, version: "1", state: PUBLISHED, gas_mode: ceiling,
     addresses: [{prefix: 192.0.2.100/32, protocol: tcp, port: 443}], policy: latency, tenants: [default], idle: 2h4m}
deployments:
  - {site: edge-1, csci_id: "198.51.100.11:443", cs_id: S1, version: "1", state: VALIDATED,
     locator: {address: 198.51.100.11, protocol: tcp, port: 443}, egress: [{forwarder: EF-1, sid: "2001:db8:0:e1::11"}]}
attachments: [{ingress: IF-1, name: client-1, tenant: default}]
`

// bench is a directory with an authority and the files of a C-PS.
type bench struct {
	t *testing.T
	trusttest.Authority
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "cps") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{t, trusttest.In(t, dir)}
	b.Issue(trust.CPS, "cps-1", pki.Options{Out: dir})
	b.write("catalogue.yaml", catalogueText)
	b.write("cps.yaml", b.configuration(""))
	return b
}

func (b *bench) configuration(more string) string {
	return fmt.Sprintf(`
name: cps-1
tls: {certificate: cps-cps-1.crt, key: cps-cps-1.key, authority: ca.crt, domain: %s}
observe: {listen: "unix:%s"}
audit: {file: audit}
listen: ["unix:%s"]
state: state
catalogue: catalogue.yaml
forwarders: [IF-1, EF-1]
csmas: [{name: csma-1, site: edge-1, services: [S1]}]
cnmas: [cnma-1]
operators: [admin]
%s`, trusttest.Domain, b.path("o.sock"), b.path("cps.sock"), more)
}

func (b *bench) path(name string) string { return filepath.Join(b.Dir, name) }

func (b *bench) write(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(b.path(name), []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) peer() config.Peer {
	return config.Peer{Address: endpoint.Address("unix:" + b.path("cps.sock")), Name: "cps-1"}
}

func (b *bench) start() *runtest.Daemon[Config] {
	return runtest.Launch(b.t, Daemon, New, b.path("cps.yaml"))
}

// played is a forwarder that takes every order at once and keeps its bindings over its sessions.
type played struct {
	name   string
	client *agent.Client
	stop   func()

	mutex    sync.Mutex // guards what follows
	highest  []cats.ShardEpoch
	bindings map[cats.Transaction]cats.Binding
	installs int
	refusals []cats.Refuse
	why      string // for which its last session ended
}

func (b *bench) play(name string) *played {
	b.t.Helper()
	f := &played{name: name, bindings: make(map[cats.Transaction]cats.Binding)}
	f.client = agent.NewClient(agent.ClientOptions{Credentials: b.Credentials(trust.Forwarder, name), Peer: b.peer(), Handler: f})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.client.Run(ctx) })
	f.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	b.t.Cleanup(f.stop)
	return f
}

func (f *played) Opened(string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	h := &cats.ForwarderHello{Name: f.name, BootID: "boot", LayoutVersion: cats.LayoutVersion, Highest: f.highest,
		Capabilities: cats.Capabilities{Encapsulations: cats.EncapSRv6, MaxSegments: 10}}
	if f.name == "IF-1" {
		h.ReturnSID = netip.MustParseAddr("2001:db8:0:1::100")
		h.Attachments = f.attachments()
	}
	for _, binding := range f.bindings {
		h.Bindings = append(h.Bindings, cats.HeldBinding{Half: f.half(), State: cats.Active, Binding: binding})
	}
	f.client.Send(cats.ForwarderBatch{Hello: h})
}

func (f *played) attachments() []cats.ClientAttachment {
	return []cats.ClientAttachment{{Name: "client-1", Tenant: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
}

// half is the one that it has of every binding.
func (f *played) half() cats.Half {
	if f.name == "IF-1" {
		return cats.IngressHalf
	}
	return cats.EgressHalf
}

func (f *played) Steering(_ string, b *cats.SteeringBatch) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var answer cats.ForwarderBatch
	if p := b.Provision; p != nil {
		f.highest = []cats.ShardEpoch{{Shard: p.Shard, Epoch: p.Epoch}}
		done := cats.Provisioned{Forwarder: f.name, Shard: p.Shard, Generation: p.Generation}
		for _, d := range p.Deliveries {
			done.Deliveries = append(done.Deliveries, d.CSCIID)
		}
		answer.Provisioned = append(answer.Provisioned, done)
	}
	for _, r := range b.Removes {
		delete(f.bindings, r.Transaction)
		answer.Statuses = append(answer.Statuses, cats.BindingStatus{Transaction: r.Transaction, Forwarder: f.name, Half: r.Half, Version: 1, Result: cats.BindingRemoved, Reason: r.Reason})
	}
	for _, i := range b.Installs {
		f.installs++
		f.bindings[i.Binding.Transaction] = i.Binding
		answer.Statuses = append(answer.Statuses, cats.BindingStatus{Transaction: i.Binding.Transaction, Forwarder: f.name, Half: i.Half, Version: i.Binding.Version, Result: cats.BindingInstalled, PathUp: true})
	}
	f.refusals = append(f.refusals, b.Refusals...)
	if !answer.IsEmpty() {
		f.client.Send(answer)
	}
}

func (f *played) Closed(_ string, err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.why = fmt.Sprint(err)
}

func (f *played) has(t cats.Transaction) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	_, ok := f.bindings[t]
	return ok
}

func (f *played) installed() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.installs
}

func (f *played) refusal(t cats.Transaction) *cats.Refuse {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for i := range f.refusals {
		if f.refusals[i].Transaction == t {
			return &f.refusals[i]
		}
	}
	return nil
}

// source is a C-SMA or C-NMA that says one thing, whole, in each of its sessions.
type source[U any] struct {
	name string
	send func(U) bool
	full func(sequence uint64) U

	mutex    sync.Mutex // guards what follows
	sequence uint64
	heard    []cats.Feedback
	why      string
}

func (s *source[U]) Opened(string) {}

func (s *source[U]) Feedback(_ string, f cats.Feedback) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.heard = append(s.heard, f)
	if f.Kind == cats.FeedbackHello || f.Kind == cats.FeedbackNeedFull {
		s.sequence++
		s.send(s.full(s.sequence))
	}
}

func (s *source[U]) Closed(_ string, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.why = fmt.Sprint(err)
}

// say sends another one.
func (s *source[U]) say(full func(sequence uint64) U) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.full = full
	s.sequence++
	s.send(full(s.sequence))
}

func (s *source[U]) last(kind cats.FeedbackKind) *cats.Feedback {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i := len(s.heard) - 1; i >= 0; i-- {
		if s.heard[i].Kind == kind {
			return &s.heard[i]
		}
	}
	return nil
}

func header(name string, site string, sequence uint64) cats.UpdateHeader {
	return cats.UpdateHeader{Source: name, Site: site, Epoch: 9, Sequence: sequence, Kind: cats.UpdateFull, TTL: 150 * time.Second}
}

func report(gas uint32) func(uint64) cats.MetricUpdate {
	return func(sequence uint64) cats.MetricUpdate {
		return cats.MetricUpdate{UpdateHeader: header("csma-1", "edge-1", sequence), Records: []cats.Record{{
			CSID: "S1", CSCIID: "198.51.100.11:443", Version: "1", Health: cats.Healthy, Reporting: cats.ReportingHealthy,
			Metrics: cats.Metrics{GAS: gas, ComputingTimeMS: 5}, ReportEpoch: 1, ReportSequence: 1,
		}}}
	}
}

func network(links ...cats.Link) func(uint64) cats.NetworkUpdate {
	return func(sequence uint64) cats.NetworkUpdate {
		return cats.NetworkUpdate{UpdateHeader: header("cnma-1", "", sequence), Links: links, Nodes: []cats.Node{
			{Name: "IF-1"}, {Name: "EF-1"}, {Name: "R1", SID: netip.MustParseAddr("2001:db8:0:f1::1")},
		}}
	}
}

func line(delay uint32) []cats.Link {
	var links []cats.Link
	for _, ends := range [][2]string{{"IF-1", "R1"}, {"R1", "EF-1"}} {
		links = append(links, cats.Link{From: ends[0], To: ends[1], DelayUS: delay, BandwidthKbps: 1000, TEMetric: 10},
			cats.Link{From: ends[1], To: ends[0], DelayUS: delay, BandwidthKbps: 1000, TEMetric: 10})
	}
	return links
}

func (b *bench) runClient(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	b.t.Cleanup(func() { cancel(); running.Wait() })
}

func (b *bench) csma(name string, full func(uint64) cats.MetricUpdate) *source[cats.MetricUpdate] {
	b.t.Helper()
	s := &source[cats.MetricUpdate]{name: name, full: full}
	client, err := northbound.NewMetricClient(northbound.ClientOptions{Credentials: b.Credentials(trust.CSMA, name), Peer: b.peer(), Handler: s})
	if err != nil {
		b.t.Fatal(err)
	}
	s.send = client.Send
	b.runClient(client.Run)
	return s
}

func (b *bench) cnma(name string, full func(uint64) cats.NetworkUpdate) *source[cats.NetworkUpdate] {
	b.t.Helper()
	s := &source[cats.NetworkUpdate]{name: name, full: full}
	client, err := northbound.NewNetworkClient(northbound.ClientOptions{Credentials: b.Credentials(trust.CNMA, name), Peer: b.peer(), Handler: s})
	if err != nil {
		b.t.Fatal(err)
	}
	s.send = client.Send
	b.runClient(client.Run)
	return s
}

// ask gives the operator's client.
func (b *bench) ask() pb.OperatorServiceClient {
	b.t.Helper()
	c := b.Credentials(trust.Operator, "admin")
	conn, err := c.Dial(b.peer().Address, c.Peer(trust.CPS, "cps-1"), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	return pb.NewOperatorServiceClient(conn)
}

func request(n uint64, port uint16) cats.ServiceRequest {
	q := cats.ServiceRequest{CSID: "S1", Ingress: "IF-1", Remaining: 2 * time.Second, Key: cats.FlowKey{Attachment: "client-1", Tenant: "default",
		Tuple: cats.Tuple{Protocol: cats.TCP, Source: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.10"), port), Target: netip.MustParseAddrPort("192.0.2.100:443")}}}
	q.Transaction[0] = 1
	binary.BigEndian.PutUint64(q.Transaction[8:], n)
	return q
}

// whole starts everything and waits until the C-PS admits.
func (b *bench) whole() (*runtest.Daemon[Config], *played, *played, *source[cats.MetricUpdate], *source[cats.NetworkUpdate]) {
	b.t.Helper()
	d := b.start()
	ingress, egress := b.play("IF-1"), b.play("EF-1")
	csma, cnma := b.csma("csma-1", report(10)), b.cnma("cnma-1", network(line(500)...))
	b.admits(d)
	return d, ingress, egress, csma, cnma
}

func (b *bench) admits(d *runtest.Daemon[Config]) {
	b.t.Helper()
	operator := b.ask()
	testenv.Eventually(b.t, "the C-PS admits", func() bool {
		x, err := operator.Explain(b.t.Context(), &pb.ExplainRequest{CsId: "S1", Ingress: "IF-1"})
		ready, _ := d.Ready()
		return err == nil && x.GetChosen() != nil && ready
	})
}

func (f *played) request(q cats.ServiceRequest) {
	f.client.Send(cats.ForwarderBatch{Requests: []cats.ServiceRequest{q}})
}

func TestAFlowThroughTheWholeCPS(t *testing.T) {
	b := newBench(t)
	d, ingress, egress, csma, cnma := b.whole()
	operator := b.ask()

	t.Run("explain names candidates, path and packets", func(t *testing.T) {
		x, err := operator.Explain(t.Context(), &pb.ExplainRequest{CsId: "S1", Ingress: "IF-1", Source: &pb.Endpoint{Address: []byte{192, 0, 2, 10}, Port: 51000}})
		if err != nil {
			t.Fatal(err)
		}
		c, chosen := x.GetCandidates(), x.GetChosen()
		if len(c) != 1 || c[0].GetRank() != 1 || c[0].GetRealDelayUs() != 6000 || c[0].GetReport().GetMetrics().GetGas() != 10 || c[0].GetPath().GetMetrics().GetDelayUs() != 1000 {
			t.Errorf("candidates %v", c)
		}
		if strings.Join(chosen.GetForward().GetNodes(), " ") != "IF-1 R1 EF-1" || len(chosen.GetForward().GetSegments()) != 2 || len(chosen.GetReverse().GetSegments()) != 2 {
			t.Errorf("paths %v, %v", chosen.GetForward(), chosen.GetReverse())
		}
		if p := chosen.GetAfter(); !bytes.Equal(p.GetTuple().GetTarget().GetAddress(), []byte{198, 51, 100, 11}) || len(p.GetSegments()) != 2 ||
			p.GetTuple().GetSource().GetPort() != 51000 {
			t.Errorf("packet after steering %v", p)
		}
		if p := chosen.GetDelivered(); !bytes.Equal(p.GetTuple().GetSource().GetAddress(), []byte{192, 0, 2, 100}) {
			t.Errorf("packet delivered %v", p)
		}
		if r := x.GetResolution(); r.GetCsId() != "S1" || r.GetBy() != "both" || r.GetTenant() != "default" || r.GetAddress().GetPort() != 443 {
			t.Errorf("resolution %v", r)
		}
		if x.GetCstGeneration() == 0 || x.GetNstGeneration() == 0 || x.GetTedbGeneration() == 0 || x.GetTimeMs() == 0 || x.GetPolicyVersion() == "" {
			t.Errorf("generations %v", x)
		}
	})
	t.Run("without a source, explain takes a client of the attachment's prefix", func(t *testing.T) {
		x, err := operator.Explain(t.Context(), &pb.ExplainRequest{CsId: "S1", Ingress: "IF-1"})
		if err != nil || !bytes.Equal(x.GetChosen().GetBefore().GetTuple().GetSource().GetAddress(), []byte{192, 0, 2, 10}) {
			t.Errorf("%v, %v", x.GetChosen().GetBefore(), err)
		}
	})
	t.Run("explain refuses a source that the ingress drops", func(t *testing.T) {
		x, err := operator.Explain(t.Context(), &pb.ExplainRequest{CsId: "S1", Ingress: "IF-1", Source: &pb.Endpoint{Address: []byte{198, 51, 100, 7}, Port: 51000}})
		if err != nil || x.GetChosen() != nil || x.GetRefusal().GetReason() != pb.Reason_REASON_UNAUTHORIZED || !strings.Contains(x.GetRefusal().GetDetail(), "192.0.2.0/24") {
			t.Errorf("%v, %v", x, err)
		}
	})
	t.Run("explain takes the number of a service for its CS-ID", func(t *testing.T) {
		x, err := operator.Explain(t.Context(), &pb.ExplainRequest{CsId: "1", Ingress: "IF-1"})
		if err != nil || x.GetResolution().GetCsId() != "S1" || x.GetChosen() == nil {
			t.Errorf("%v, %v", x, err)
		}
		x, err = operator.Explain(t.Context(), &pb.ExplainRequest{CsId: "2", Ingress: "IF-1"})
		if err != nil || x.GetRefusal().GetReason() != pb.Reason_REASON_UNKNOWN_SERVICE {
			t.Errorf("%v, %v", x, err)
		}
	})
	t.Run("explain says that no client reaches a target of another family", func(t *testing.T) {
		_, err := operator.Explain(t.Context(), &pb.ExplainRequest{Ingress: "IF-1", Target: &pb.Endpoint{Address: netip.MustParseAddr("2001:db8::9").AsSlice(), Port: 443}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no source prefix of attachment client-1 at IF-1 is of the family of target 2001:db8::9") {
			t.Errorf("%v", err)
		}
	})
	t.Run("CP-8.2-2 explain tells that a service is not known", func(t *testing.T) {
		x, err := operator.Explain(t.Context(), &pb.ExplainRequest{CsId: "S9", Ingress: "IF-1"})
		if err != nil || x.GetRefusal().GetReason() != pb.Reason_REASON_UNKNOWN_SERVICE || !strings.Contains(x.GetRefusal().GetDetail(), "S9") || x.GetChosen() != nil {
			t.Errorf("%v, %v", x, err)
		}
	})
	q := request(1, 51000)
	t.Run("CP-7.2-1 a request ends with both halves at the forwarders", func(t *testing.T) {
		ingress.request(q)
		testenv.Eventually(t, "both halves are installed", func() bool { return ingress.has(q.Transaction) && egress.has(q.Transaction) })
	})
	t.Run("the lists show it", func(t *testing.T) {
		var row *pb.BindingRow
		testenv.Eventually(t, "the binding is ACTIVE", func() bool {
			r, err := operator.ListBindings(t.Context(), &pb.ListBindingsRequest{})
			if err != nil || r.GetTotal() != 1 || r.GetMore() {
				return false
			}
			row = r.GetBindings()[0]
			return row.GetState() == pb.FlowState_FLOW_STATE_ACTIVE
		})
		if row.GetBinding().GetCsciId() != "198.51.100.11:443" || row.GetBinding().GetOwner() != "IF-1" || !row.GetPathUp() || row.GetBinding().GetEpoch().GetTerm() != 1 {
			t.Errorf("%v", row)
		}
		services, err := operator.ListServices(t.Context(), &pb.ListServicesRequest{})
		if err != nil || len(services.GetServices()) != 1 || services.GetServices()[0].GetEffectiveSlots() != 9 || services.GetServices()[0].GetBindings() != 1 {
			t.Errorf("%v, %v", services, err)
		}
		instances, err := operator.ListInstances(t.Context(), &pb.ListInstancesRequest{CsId: "S1"})
		if err != nil || len(instances.GetInstances()) != 1 || instances.GetInstances()[0].GetStage() != "" || instances.GetInstances()[0].GetReport().GetSource() != "csma-1" {
			t.Errorf("%v, %v", instances, err)
		}
		paths, err := operator.ListPaths(t.Context(), &pb.ListPathsRequest{Headend: "IF-1"})
		if err != nil || len(paths.GetPaths()) != 1 || strings.Join(paths.GetPaths()[0].GetPath().GetNodes(), " ") != "IF-1 R1 EF-1" || paths.GetPaths()[0].GetValidity() != pb.Validity_VALIDITY_VALID {
			t.Errorf("%v, %v", paths, err)
		}
		forwarders, err := operator.ListForwarders(t.Context(), &pb.ListForwardersRequest{})
		if err != nil || len(forwarders.GetForwarders()) != 2 || !forwarders.GetForwarders()[0].GetConnected() || forwarders.GetForwarders()[0].GetDeliveries()[0] != "198.51.100.11:443" ||
			forwarders.GetForwarders()[1].GetBindings() != 1 || forwarders.GetEpoch().GetTerm() != 1 {
			t.Errorf("%v, %v", forwarders, err)
		}
	})
	t.Run("the metrics count it", func(t *testing.T) {
		for name, want := range map[string]float64{
			"margay_cps_service_requests_total": 1, "margay_cps_selections_total": 1, "margay_cps_path_requests_total": 2, "margay_cps_admitted_flows_total": 1,
			"margay_cps_flows": 1, "margay_cps_flows_holding_slots": 1, "margay_cps_pending_transactions": 0, "margay_cps_refused_transitions_total": 0,
		} {
			if got := d.Metric(name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
	t.Run("CP-8.5-3 a report of no slots refuses new flows and ends none", func(t *testing.T) {
		csma.say(report(0))
		testenv.Eventually(t, "the report is applied", func() bool { f := csma.last(cats.FeedbackApplied); return f != nil && f.Sequence == 2 })
		other := request(2, 51001)
		ingress.request(other)
		testenv.Eventually(t, "the new flow is refused", func() bool { return ingress.refusal(other.Transaction) != nil })
		if r := ingress.refusal(other.Transaction); r.Reason != cats.ReasonNoCandidate || r.Stage != "slots" {
			t.Errorf("%+v", r)
		}
		if !ingress.has(q.Transaction) {
			t.Error("the established flow is gone")
		}
		testenv.Eventually(t, "the log tells of it", func() bool {
			return strings.Contains(d.Log.String(), "refused 1 flow: no-candidate at stage slots, last: transaction "+other.Transaction.String())
		})
		if got := d.Metric("margay_refusals_total"); got != 1 {
			t.Errorf("%v refusals are counted", got)
		}
	})
	t.Run("a topology that contradicts itself is refused and changes nothing", func(t *testing.T) {
		cnma.say(network(append(line(500), cats.Link{From: "IF-1", To: "R9", DelayUS: 1})...))
		testenv.Eventually(t, "the update is refused", func() bool { return cnma.last(cats.FeedbackRefused) != nil })
		if f := cnma.last(cats.FeedbackRefused); !strings.Contains(f.Detail, "R9") {
			t.Errorf("%+v", f)
		}
		paths, err := operator.ListPaths(t.Context(), &pb.ListPathsRequest{})
		if err != nil || !paths.GetPaths()[0].GetReachable() {
			t.Errorf("%v, %v", paths, err)
		}
	})
	t.Run("CP-13.1-1 a changed topology changes the NST generation, the same one again does not", func(t *testing.T) {
		before := d.Metric("margay_cps_nst_generation")
		cnma.say(network(line(500)...))
		testenv.Eventually(t, "it is applied", func() bool { f := cnma.last(cats.FeedbackApplied); return f != nil && f.Sequence == 3 })
		if after := d.Metric("margay_cps_nst_generation"); after != before {
			t.Errorf("generation %v after %v", after, before)
		}
		cnma.say(network(line(700)...))
		testenv.Eventually(t, "the generation grows", func() bool { return d.Metric("margay_cps_nst_generation") == before+1 })
	})
}

func TestRestart(t *testing.T) {
	b := newBench(t)
	d, ingress, egress, _, _ := b.whole()
	q := request(1, 51000)
	ingress.request(q)
	testenv.Eventually(t, "both halves are installed", func() bool { return ingress.has(q.Transaction) && egress.has(q.Transaction) })
	installs := ingress.installed() + egress.installed()
	d.Stop()

	d = b.start()
	b.admits(d)
	t.Run("CP-10-4 the bindings are rebuilt from the forwarders, without an order to them", func(t *testing.T) {
		r, err := b.ask().ListBindings(t.Context(), &pb.ListBindingsRequest{})
		if err != nil || r.GetTotal() != 1 || r.GetBindings()[0].GetState() != pb.FlowState_FLOW_STATE_ACTIVE {
			t.Fatalf("%v, %v", r, err)
		}
		if d.Metric("margay_cps_restored_flows_total") != 1 || d.Metric("margay_cps_flows_holding_slots") != 1 {
			t.Error("it is not restored, or holds no slots")
		}
		if got := ingress.installed() + egress.installed(); got != installs {
			t.Errorf("%d installs after the restart", got-installs)
		}
	})
	t.Run("the epoch is higher than before", func(t *testing.T) {
		r, err := b.ask().ListForwarders(t.Context(), &pb.ListForwardersRequest{})
		if err != nil || r.GetEpoch().GetTerm() != 2 {
			t.Errorf("%v, %v", r, err)
		}
	})
}

func TestWhoMayAsk(t *testing.T) {
	b := newBench(t)
	d := b.start()
	t.Run("a forwarder may not call the operator's service", func(t *testing.T) {
		c := b.Credentials(trust.Forwarder, "IF-1")
		conn, err := c.Dial(b.peer().Address, c.Peer(trust.CPS, "cps-1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = pb.NewOperatorServiceClient(conn).ListServices(t.Context(), &pb.ListServicesRequest{})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%v", err)
		}
	})
	t.Run("a name that is not configured has no channel, and is audited", func(t *testing.T) {
		stranger := b.play("EF-9")
		testenv.Eventually(t, "it is told", func() bool {
			stranger.mutex.Lock()
			defer stranger.mutex.Unlock()
			return strings.Contains(stranger.why, "refused our certificate")
		})
		testenv.Eventually(t, "it is in the audit log", func() bool {
			audited, err := os.ReadFile(b.path("audit"))
			return err == nil && strings.Contains(string(audited), "EF-9")
		})
	})
	t.Run("questions that make no sense are refused", func(t *testing.T) {
		operator := b.ask()
		for want, q := range map[string]*pb.ExplainRequest{
			`no client attaches at "IF-9"`: {CsId: "S1", Ingress: "IF-9"},
			`no attachment "client-9"`:     {CsId: "S1", Ingress: "IF-1", Attachment: "client-9"},
			`service "" has no address`:    {Ingress: "IF-1"},
			"protocol 1: need 6 (tcp)":     {CsId: "S1", Ingress: "IF-1", Protocol: 1},
			"source: ":                     {CsId: "S1", Ingress: "IF-1", Source: &pb.Endpoint{Address: []byte{1}, Port: 1}},
		} {
			if _, err := operator.Explain(t.Context(), q); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", q, err, want)
			}
		}
		if _, err := operator.ListBindings(t.Context(), &pb.ListBindingsRequest{Limit: 20_000}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v", err)
		}
		if _, err := operator.ListBindings(t.Context(), &pb.ListBindingsRequest{After: []byte{1}}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v", err)
		}
	})
	t.Run("without topology and forwarders it is not ready", func(t *testing.T) {
		if ready, why := d.Ready(); ready || !strings.Contains(why, "no C-NMA has said anything yet") {
			t.Errorf("%v, %s", ready, why)
		}
	})
}

func TestReload(t *testing.T) {
	b := newBench(t)
	d, ingress, _, _, _ := b.whole()
	operator := b.ask()
	refused := func(t *testing.T, want string) {
		t.Helper()
		if err := d.Reload(); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
		if r, err := operator.ListServices(t.Context(), &pb.ListServicesRequest{}); err != nil || r.GetGeneration() != 1 {
			t.Errorf("%v, %v", r, err)
		}
	}
	t.Run("a catalogue that contradicts itself changes nothing", func(t *testing.T) {
		b.write("catalogue.yaml", strings.Replace(catalogueText, "address: 198.51.100.11,", `address: "2001:db8::1",`, 1))
		refused(t, "different address families")
	})
	t.Run("a number is never given to another service", func(t *testing.T) {
		b.write("catalogue.yaml", strings.ReplaceAll(catalogueText, "S1", "S7"))
		b.write("cps.yaml", strings.ReplaceAll(b.configuration(""), "S1", "S7"))
		refused(t, "service S7: number 1 belonged to S1")
		b.write("cps.yaml", b.configuration(""))
	})
	t.Run("the address takes a restart", func(t *testing.T) {
		b.write("catalogue.yaml", catalogueText)
		b.write("cps.yaml", strings.Replace(b.configuration(""), "cps.sock", "other.sock", 1))
		refused(t, "listen changed: restart the daemon")
		b.write("cps.yaml", b.configuration(""))
	})
	t.Run("attachments that differ from the forwarder's are told", func(t *testing.T) {
		ingress.client.Send(cats.ForwarderBatch{Attachments: append(ingress.attachments(), cats.ClientAttachment{Name: "client-7", Tenant: "default"})})
		testenv.Eventually(t, "it is in the log and the audit log", func() bool {
			audited, err := os.ReadFile(b.path("audit"))
			const text = "client-7 is only in the forwarder's configuration"
			return err == nil && strings.Contains(string(audited), text) && strings.Contains(d.Log.String(), text)
		})
	})
	t.Run("a deprecated service admits nothing new", func(t *testing.T) {
		b.write("catalogue.yaml", strings.Replace(catalogueText, "PUBLISHED", "DEPRECATED", 1))
		if err := d.Reload(); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the new catalogue is in force", func() bool {
			r, err := operator.ListServices(t.Context(), &pb.ListServicesRequest{})
			return err == nil && r.GetGeneration() == 2
		})
		if log := d.Log.String(); !strings.Contains(log, `msg="catalogue generation 2 is in force"`) {
			t.Errorf("the log does not tell of the new catalogue: %s", log)
		}
		q := request(1, 51000)
		ingress.request(q)
		testenv.Eventually(t, "a new flow is refused", func() bool { return ingress.refusal(q.Transaction) != nil })
		if r := ingress.refusal(q.Transaction); r.Stage != "version" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("a forwarder that is taken away loses its session", func(t *testing.T) {
		b.write("catalogue.yaml", strings.Split(catalogueText, "deployments:")[0]+"deployments: []\nattachments: [{ingress: IF-1, name: client-1, tenant: default}]\n")
		b.write("cps.yaml", strings.Replace(b.configuration(""), "[IF-1, EF-1]", "[IF-1]", 1))
		if err := d.Reload(); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "its session ends", func() bool {
			r, err := operator.ListForwarders(t.Context(), &pb.ListForwardersRequest{})
			return err == nil && !slices.ContainsFunc(r.GetForwarders(), func(f *pb.ForwarderStatus) bool { return f.GetName() == "EF-1" && f.GetConnected() })
		})
	})
}

func TestTheEpochFileIsUsedByOneProcess(t *testing.T) {
	b := newBench(t)
	b.start()
	b.write("other.yaml", strings.NewReplacer("o.sock", "o2.sock", "cps.sock", "cps2.sock", "{file: audit}", "{file: audit2}").Replace(b.configuration("")))
	other, err := Load(b.path("other.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	base, err := run.Open(trust.CPS, other.Shared(), io.Discard, &observe.Health{})
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close(context.Background())
	if _, err := New(context.Background(), other, base); err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("%v", err)
	}
}

func TestConfiguration(t *testing.T) {
	for _, test := range []struct {
		name      string
		cps       [2]string // replaced in cps.yaml
		catalogue [2]string // replaced in catalogue.yaml
		want      []string
	}{
		{"an unknown key", [2]string{"state: state", "state: state\nstat: x"}, [2]string{}, []string{"cps.yaml:8:1", `unknown key "stat"`}},
		{"an unknown key of the catalogue", [2]string{}, [2]string{"policy: latency", "polcy: latency"}, []string{"catalogue.yaml:", `unknown key "polcy"`}},
		{"an unknown policy", [2]string{}, [2]string{"policy: latency", "policy: cheapest"}, []string{"catalogue.yaml:4", `policy "cheapest": need one of latency, service, network`}},
		{"a contradiction names its place", [2]string{}, [2]string{"port: 443}, egress", "port: 0}, egress"}, []string{"catalogue.yaml:7", "deployments[0].locator"}},
		{"gas_mode remaining", [2]string{}, [2]string{"gas_mode: ceiling", "gas_mode: remaining"}, []string{"catalogue.yaml:3", "gas_mode remaining is not supported yet"}},
		{"a C-SMA of an unknown service", [2]string{"services: [S1]", "services: [S1, S9]"}, [2]string{}, []string{"csmas[0].services[1]", `has no service "S9"`}},
		{"an egress that is no forwarder of the domain", [2]string{}, [2]string{"forwarder: EF-1", "forwarder: EF-9"}, []string{"deployments[0].egress[0].forwarder", `"EF-9" is not among the forwarders`}},
		{"an ingress that is no forwarder of the domain", [2]string{}, [2]string{"ingress: IF-1", "ingress: IF-9"}, []string{"attachments[0].ingress", `"IF-9" is not among the forwarders`}},
		{"a forwarder twice", [2]string{"[IF-1, EF-1]", "[IF-1, EF-1, IF-1]"}, [2]string{}, []string{"forwarders[2]", `"IF-1" is there twice`}},
		{"limits that admit nothing", [2]string{"operators: [admin]", "operators: [admin]\nlimits: {pending: 0}"}, [2]string{}, []string{"limits.pending", "need at least 1"}},
		{"a replay window that lets nothing through", [2]string{"operators: [admin]", "operators: [admin]\nreplay_window: 0s"}, [2]string{}, []string{"replay_window", "need 1s to 1h"}},
		{"a replay window that protects from nothing", [2]string{"operators: [admin]", "operators: [admin]\nreplay_window: 24h"}, [2]string{}, []string{"replay_window", "need 1s to 1h"}},
		{"no catalogue", [2]string{"catalogue: catalogue.yaml", "catalogue: nothing.yaml"}, [2]string{}, []string{"nothing.yaml", "no such file"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			b.write("cps.yaml", strings.Replace(b.configuration(""), test.cps[0], test.cps[1], 1))
			b.write("catalogue.yaml", strings.Replace(catalogueText, test.catalogue[0], test.catalogue[1], 1))
			_, err := Load(b.path("cps.yaml"))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
	t.Run("the defaults", func(t *testing.T) {
		b := newBench(t)
		b.write("catalogue.yaml", strings.Replace(catalogueText, ", idle: 2h4m", "", 1))
		c, err := Load(b.path("cps.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s := c.domain.Catalogue.Service("S1")
		if s.Idle != 2*time.Hour+4*time.Minute || s.BandPercent != 5 || c.Limits.Pending != 10_000 || c.Limits.PerClient != 100 || c.ReplayWindow != 30*time.Second {
			t.Errorf("%+v, %+v, %s", s, c.Limits, c.ReplayWindow)
		}
	})
}
