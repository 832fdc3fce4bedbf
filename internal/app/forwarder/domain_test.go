package forwarder

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/datapath/kernel"
	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/southbound/agent"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

// A small domain of real namespaces, with real daemons in two of them, and a C-PS of the test's own:
//
//	client --- IF-1 --- EF-1 --- server
var (
	clientIP  = netip.MustParsePrefix("192.0.2.10/24")
	serverIP  = netip.MustParsePrefix("198.51.100.21/28")
	client6   = netip.MustParsePrefix("2001:db8:c::10/64")
	server6   = netip.MustParsePrefix("2001:db8:b::21/64")
	service4  = netip.MustParseAddrPort("192.0.2.100:443")
	service6  = netip.MustParseAddrPort("[2001:db8:c::100]:443")
	refusedAP = netip.MustParseAddrPort("192.0.2.100:5000")
	returnSID = netip.MustParseAddr("2001:db8:0:1::100")
)

const (
	domainName = "example.margay"
	patience   = 60 * time.Second
)

type domain struct {
	t       *testing.T // the present test or subtest
	root    *testing.T // whose end is that of the domain
	dir     string     // short, for sockets
	binary  string
	spaces  map[string]*namespace.Namespace
	cps     *controller
	daemons map[string]*exec.Cmd
}

func newDomain(t *testing.T) *domain {
	t.Helper()
	testenv.RequireRoot(t)
	dir, err := os.MkdirTemp("", "mgf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &domain{t: t, root: t, dir: dir, binary: filepath.Join(dir, "margay-forwarder"), spaces: map[string]*namespace.Namespace{}, daemons: map[string]*exec.Cmd{}}
	build := exec.Command("go", "build", "-o", d.binary, "github.com/margay-net/margay/cmd/margay-forwarder")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d.network()
	d.identities()
	d.cps = startController(d)
	for _, name := range []string{"IF-1", "EF-1"} {
		d.write(name+".yaml", d.configuration(name, ""))
		d.start(name)
		t.Cleanup(func() { d.unload(name) })
	}
	for _, name := range []string{"IF-1", "EF-1"} {
		d.awaitReady(name)
	}
	return d
}

// run runs a part of the test.
func (d *domain) run(name string, f func(t *testing.T)) {
	d.root.Run(name, func(t *testing.T) {
		d.t = t
		defer func() { d.t = d.root }()
		f(t)
	})
}

func (d *domain) network() {
	d.t.Helper()
	tag := strings.TrimPrefix(filepath.Base(d.dir), "mgf")
	for _, role := range []string{"client", "IF-1", "EF-1", "server"} {
		name := fmt.Sprintf("mgf-%s-%s", tag, role)
		n, err := namespace.New(name)
		if err != nil {
			d.t.Fatal(err)
		}
		d.spaces[role] = n
		d.root.Cleanup(func() {
			n.Close()
			if err := namespace.Remove(name); err != nil {
				d.t.Error(err)
			}
		})
		d.in(role, func() error { return prepareSpace(role == "IF-1" || role == "EF-1") })
	}
	d.wireClient()
	d.wire("IF-1", "core1", "EF-1", "core1", 3000, []string{"2001:db8:1::1/64"}, []string{"2001:db8:1::2/64"})
	d.wire("server", "eth0", "EF-1", "svc0", 1500, []string{serverIP.String(), server6.String()}, []string{"198.51.100.17/28", "2001:db8:b::1/64"})
	d.route("IF-1", "2001:db8:0:e1::/64", "2001:db8:1::2")
	d.route("EF-1", "2001:db8:0:1::/64", "2001:db8:1::1")
	d.route("server", "0.0.0.0/0", "198.51.100.17")
	d.route("server", "::/0", "2001:db8:b::1")
}

func (d *domain) wireClient() {
	d.t.Helper()
	d.wire("client", "eth0", "IF-1", "client0", 1500, []string{clientIP.String(), client6.String()}, []string{"192.0.2.1/24", "2001:db8:c::1/64"})
	d.route("client", "0.0.0.0/0", "192.0.2.1")
}

func prepareSpace(forwards bool) error {
	settings := map[string]string{
		"ipv6/conf/default/accept_dad": "0", "ipv6/conf/all/accept_dad": "0",
		"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
		"ipv4/ip_unprivileged_port_start": "0",
	}
	if forwards {
		for _, k := range []string{"ipv4/conf/all/forwarding", "ipv4/conf/default/forwarding", "ipv6/conf/all/forwarding", "ipv6/conf/default/forwarding"} {
			settings[k] = "1"
		}
	}
	for k, v := range settings {
		if err := os.WriteFile("/proc/sys/net/"+k, []byte(v), 0); err != nil {
			return err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

func (d *domain) in(role string, f func() error) {
	d.t.Helper()
	if err := d.spaces[role].Do(f); err != nil {
		d.t.Fatalf("in %s: %v", role, err)
	}
}

func (d *domain) wire(a, aName, b, bName string, mtu int, aAddrs, bAddrs []string) {
	d.t.Helper()
	d.in(a, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = aName, mtu
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: bName, PeerNamespace: netlink.NsFd(d.spaces[b].Fd()), PeerMTU: uint32(mtu)})
	})
	d.in(a, func() error { return bringUp(aName, aAddrs) })
	d.in(b, func() error { return bringUp(bName, bAddrs) })
}

// bringUp turns a link up so that every packet on it is as the program that sent it made it.
func bringUp(name string, addrs []string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, s := range addrs {
		a, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	for _, o := range []kernel.Offload{kernel.OffloadTSO, kernel.OffloadGSO, kernel.OffloadTxChecksum} {
		if err := kernel.SetOffload(name, o, false); err != nil {
			return err
		}
	}
	if err := kernel.SetOffload(name, kernel.OffloadGRO, true); err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func (d *domain) route(role, prefix, via string) {
	d.t.Helper()
	d.in(role, func() error {
		_, to, err := net.ParseCIDR(prefix)
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(via)})
	})
}

func (d *domain) identities() {
	d.t.Helper()
	if _, err := pki.Init(d.dir, domainName); err != nil {
		d.t.Fatal(err)
	}
	for role, names := range map[trust.Role][]string{
		trust.CPS: {"cps-1"}, trust.Forwarder: {"IF-1", "EF-1"}, trust.Operator: {"admin"}, trust.Client: {"phone", "stranger"},
	} {
		for _, name := range names {
			if _, err := pki.Issue(d.dir, role, name, pki.Options{}); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

func (d *domain) credentials(role trust.Role, name string) *trust.Credentials {
	d.t.Helper()
	file := func(suffix string) config.Path {
		return config.Path(filepath.Join(d.dir, fmt.Sprintf("%s-%s.%s", role, name, suffix)))
	}
	return trusttest.Load(d.t, config.TLS{Certificate: file("crt"), Key: file("key"), Authority: config.Path(filepath.Join(d.dir, "ca.crt")), Domain: domainName})
}

func (d *domain) path(name string) string { return filepath.Join(d.dir, name) }

func (d *domain) write(name, content string) {
	d.t.Helper()
	if err := os.WriteFile(d.path(name), []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// configuration gives the file of a forwarder; more is appended.
func (d *domain) configuration(name, more string) string {
	role := `
instances: [svc0]
source: "2001:db8:0:e1::1"
`
	if name == "IF-1" {
		role = `
source: "2001:db8:0:1::1"
return_sid: "2001:db8:0:1::100"
attachments: [{name: client-1, interface: client0, tenant: default, prefixes: [192.0.2.0/24, "2001:db8:c::/64"]}]
`
	}
	return fmt.Sprintf(`
name: %[1]s
tls: {certificate: forwarder-%[1]s.crt, key: forwarder-%[1]s.key, authority: ca.crt, domain: %[2]s}
observe: {listen: "unix:%[3]s/%[1]s.http", log: debug}
audit: {file: %[1]s.audit}
cps: {address: "unix:%[3]s/cps", name: cps-1}
listen: ["unix:%[3]s/%[1]s.sock"]
operators: [admin]
clients: [{name: phone, prefixes: [192.0.2.10/32]}]
state: state-%[1]s
pins: %[4]s
core: [core1]
%[5]s%[6]s`, name, domainName, d.dir, d.pins(name), role, more)
}

func (d *domain) pins(name string) string {
	return filepath.Join("/sys/fs/bpf", filepath.Base(d.dir)+"-"+name)
}

// start starts a daemon inside its namespace; its log is shown if the test fails.
func (d *domain) start(name string) {
	d.t.Helper()
	log, err := os.OpenFile(d.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	cmd := exec.Command(d.binary, "--config", d.path(name+".yaml"))
	cmd.Stderr, cmd.Stdout = log, log
	d.in(name, cmd.Start)
	log.Close()
	if d.daemons[name] == nil {
		d.root.Cleanup(func() {
			d.kill(name)
			if d.root.Failed() {
				text, err := os.ReadFile(d.path(name + ".log"))
				audit, _ := os.ReadFile(d.path(name + ".audit"))
				d.root.Logf("log of %s (%v):\n%s\naudit:\n%s", name, err, text, audit)
			}
		})
	}
	d.daemons[name] = cmd
}

// kill ends a daemon as a crash does.
func (d *domain) kill(name string) {
	if cmd := d.daemons[name]; cmd.ProcessState == nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

func (d *domain) unload(name string) {
	d.kill(name)
	if _, err := d.unloads(name); err != nil {
		d.root.Error(err)
	}
	if _, err := os.Stat(d.pins(name)); !os.IsNotExist(err) {
		d.root.Errorf("pins of %s are left: %v", name, err)
	}
}

// unloads runs --unload and gives what it says.
func (d *domain) unloads(name string) (said string, err error) {
	cmd := exec.Command(d.binary, "--unload", "--config", d.path(name+".yaml"))
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := d.spaces[name].Do(cmd.Run); err != nil {
		return "", fmt.Errorf("unload %s: %w\n%s", name, err, complaint.String())
	}
	return out.String(), nil
}

// eventually waits until f gives an empty string, and fails with its last one otherwise.
func (d *domain) eventually(what string, f func() string) {
	d.t.Helper()
	last := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if last = f(); last == "" {
			return
		}
	}
	d.t.Fatalf("%s: %s", what, last)
}

func (d *domain) http(name, page string) (int, string, error) {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.path(name+".http"))
		},
	}}
	r, err := c.Get("http://forwarder/" + page)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	var b strings.Builder
	_, err = fmt.Fprint(&b, readAll(r))
	return r.StatusCode, b.String(), err
}

func readAll(r *http.Response) string {
	var b strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := r.Body.Read(buffer)
		b.Write(buffer[:n])
		if err != nil {
			return b.String()
		}
	}
}

func (d *domain) awaitReady(name string) {
	d.t.Helper()
	d.eventually(name+" is ready", func() string {
		if state := d.daemons[name].ProcessState; state != nil {
			return "it ended: " + state.String()
		}
		code, body, err := d.http(name, "readyz")
		if err != nil || code != http.StatusOK {
			return fmt.Sprint(code, body, err)
		}
		if _, err := os.Stat(d.path(name + ".sock")); err != nil {
			d.t.Errorf("%s is ready, and nobody listens for its callers: %v", name, err)
		}
		return ""
	})
}

// dial opens a channel to a forwarder's own service.
func (d *domain) dial(name string, role trust.Role, as string) pb.ForwarderServiceClient {
	d.t.Helper()
	c := d.credentials(role, as)
	conn, err := c.Dial(endpoint.Address("unix:"+d.path(name+".sock")), c.Peer(trust.Forwarder, name), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.root.Cleanup(func() { conn.Close() })
	return pb.NewForwarderServiceClient(conn)
}

func (d *domain) counters(name string) *pb.GetCountersResponse {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := d.dial(name, trust.Operator, "admin").GetCounters(ctx, &pb.GetCountersRequest{}, grpc.WaitForReady(true))
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// drops gives the drop counters that are not zero.
func drops(r *pb.GetCountersResponse) string {
	all := map[string]uint64{}
	for _, c := range r.Drops {
		if c.Packets > 0 {
			all[c.Reason.String()] = c.Packets
		}
	}
	b, _ := json.Marshal(all)
	return string(b)
}

// controller is the C-PS of the test: it provisions, and answers every request by one binding, or a refusal.
type controller struct {
	d      *domain
	server *agent.Server
	grpc   *grpc.Server

	mutex    sync.Mutex // guards all
	sessions map[string]*agent.Session
	requests []cats.ServiceRequest
	hellos   map[string][]cats.ForwarderHello
	statuses map[string][]cats.BindingStatus
	bindings map[cats.Transaction]cats.Binding
	acks     map[string][]cats.CSCIID
	epoch    cats.Epoch
	silent   bool // it provisions nobody
}

func startController(d *domain) *controller {
	d.t.Helper()
	c := &controller{
		d: d, sessions: map[string]*agent.Session{}, hellos: map[string][]cats.ForwarderHello{}, statuses: map[string][]cats.BindingStatus{},
		bindings: map[cats.Transaction]cats.Binding{}, acks: map[string][]cats.CSCIID{},
	}
	d.root.Cleanup(func() { c.stop() })
	c.start()
	return c
}

// start begins a run with a higher epoch.
func (c *controller) start() {
	c.d.t.Helper()
	l, err := trust.Listen(endpoint.Address("unix:" + c.d.path("cps")))
	if err != nil {
		c.d.t.Fatal(err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.epoch.Term++
	c.server = agent.NewServer(c)
	guard := trust.NewGuard(trust.Roster{trust.Forwarder: {"IF-1", "EF-1"}}, agent.Methods(), trusttest.Ignore{}, trusttest.Ignore{})
	c.grpc = trust.NewServer(c.d.credentials(trust.CPS, "cps-1"), guard)
	c.server.Register(c.grpc)
	go c.grpc.Serve(l)
}

// speak provisions all that have a session.
func (c *controller) speak() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.silent = false
	for name, s := range c.sessions {
		s.Send(cats.SteeringBatch{Provision: c.provision(name)})
	}
}

func (c *controller) stop() {
	c.grpc.Stop()
	c.server.Wait()
}

func (c *controller) provision(name string) *cats.Provision {
	p := &cats.Provision{Generation: 1, Epoch: c.epoch}
	if name == "IF-1" {
		for i, a := range []netip.AddrPort{service4, service6} {
			p.Services = append(p.Services, cats.ServiceRule{Number: uint32(i + 1), CSID: cats.CSID(fmt.Sprint("S", i+1)), Prefix: netip.PrefixFrom(a.Addr(), a.Addr().BitLen()), Protocol: cats.TCP, Port: a.Port()})
		}
		p.Services = append(p.Services, cats.ServiceRule{Number: 3, CSID: "R", Prefix: netip.PrefixFrom(refusedAP.Addr(), 32), Protocol: cats.UDP, Port: refusedAP.Port()})
		return p
	}
	for _, target := range []netip.AddrPort{service4, service6} {
		p.Deliveries = append(p.Deliveries, deliveryOf(target))
	}
	return p
}

func deliveryOf(service netip.AddrPort) cats.Delivery {
	instance, sid := serverIP.Addr(), "2001:db8:0:e1::11"
	if service.Addr().Is6() {
		instance, sid = server6.Addr(), "2001:db8:0:e1::61"
	}
	at := netip.AddrPortFrom(instance, service.Port())
	return cats.Delivery{CSCIID: cats.CSCIID(at.String()), Locator: cats.Locator{Protocol: cats.TCP, Address: at}, SID: netip.MustParseAddr(sid)}
}

func (c *controller) bind(r *cats.ServiceRequest) cats.Binding {
	to := r.Key.Tuple
	at := deliveryOf(to.Target)
	return cats.Binding{
		Transaction: r.Transaction, Epoch: c.epoch, Version: 1, Match: r.Key, CSID: "S1", ServiceNumber: 1, CSCIID: at.CSCIID, Locator: at.Locator,
		Attachment: at.SID, Ingress: "IF-1", Egress: "EF-1", Path: cats.Path{Kind: cats.PathSRv6, Segments: []netip.Addr{at.SID}, Generation: 1},
		Reverse: cats.Reverse{
			Service: cats.Tuple{Protocol: cats.TCP, Source: at.Locator.Address, Target: to.Source}, Client: to.Reverse(), Restore: to.Target,
			Path: cats.Path{Kind: cats.PathSRv6, Segments: []netip.Addr{returnSID}, Generation: 1},
		},
		Idle: time.Hour, Slots: 1, CSTGeneration: 1, NSTGeneration: 1, PolicyVersion: "1", Decided: cats.Instant(time.Now().UnixNano()),
	}
}

// Batch answers as a C-PS does: egress first, then ingress; at an end, drain and remove.
func (c *controller) Batch(s *agent.Session, b cats.ForwarderBatch) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	name := s.Peer().Name
	if b.Hello != nil {
		c.sessions[name] = s
		c.hellos[name] = append(c.hellos[name], *b.Hello)
		if !c.silent {
			s.Send(cats.SteeringBatch{Provision: c.provision(name)})
		}
	}
	for _, p := range b.Provisioned {
		c.acks[name] = p.Deliveries
	}
	for i := range b.Requests {
		c.request(&b.Requests[i])
	}
	for i := range b.Statuses {
		c.statuses[name] = append(c.statuses[name], b.Statuses[i])
		c.status(name, &b.Statuses[i])
	}
}

func (c *controller) request(r *cats.ServiceRequest) {
	c.requests = append(c.requests, *r)
	if r.Key.Tuple.Target == refusedAP {
		c.to("IF-1", cats.SteeringBatch{Refusals: []cats.Refuse{{Transaction: r.Transaction, Epoch: c.epoch, Reason: cats.ReasonNoCandidate, Stage: "slots"}}})
		return
	}
	b := c.bind(r)
	c.bindings[r.Transaction] = b
	c.to("EF-1", cats.SteeringBatch{Installs: []cats.Install{{Half: cats.EgressHalf, Binding: b}}})
}

func (c *controller) status(name string, s *cats.BindingStatus) {
	b, known := c.bindings[s.Transaction]
	switch {
	case known && s.Result == cats.BindingInstalled && name == "EF-1":
		c.to("IF-1", cats.SteeringBatch{Installs: []cats.Install{{Half: cats.IngressHalf, Binding: b}}})
	case known && s.Result == cats.BindingEnding:
		c.to("IF-1", cats.SteeringBatch{Removes: []cats.Remove{{Transaction: s.Transaction, Epoch: c.epoch, Half: cats.IngressHalf, Reason: s.Reason}}})
		c.to("EF-1", cats.SteeringBatch{Removes: []cats.Remove{{Transaction: s.Transaction, Epoch: c.epoch, Half: cats.EgressHalf, Reason: s.Reason}}})
	}
}

func (c *controller) to(name string, b cats.SteeringBatch) {
	if s := c.sessions[name]; s != nil {
		s.Send(b)
	}
}

// Refused fails the test: the forwarder broke the contract.
func (c *controller) Refused(s *agent.Session, reason cats.Reason, detail string) {
	c.d.t.Errorf("a message of %s is refused: %s: %s", s.Peer(), reason, detail)
}

// Closed forgets a session.
func (c *controller) Closed(s *agent.Session) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.sessions[s.Peer().Name] == s {
		delete(c.sessions, s.Peer().Name)
	}
}

func (c *controller) count(f func() int) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return f()
}
