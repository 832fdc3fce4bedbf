package trust_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

func TestChannelAdmitsWhoIsConfigured(t *testing.T) {
	d := newDomain(t)
	own := d.Credentials(trust.CPS, "cps-1")
	unix := endpoint.Address("unix:" + filepath.Join(t.TempDir(), "s"))
	for _, address := range []endpoint.Address{"127.0.0.1:0", unix} {
		s := d.serve(address, own)
		for role, name := range map[trust.Role]string{trust.Forwarder: "IF-1", trust.PCE: "pce-1", trust.CSMA: "whatever", trust.Operator: "admin"} {
			peer := d.Credentials(role, name)
			if err := call(t, s, peer, own.Self(), nil); err != nil {
				t.Errorf("%s over %s: %v", peer.Self(), s.address, err)
			}
			if _, ok := s.callers.Load(peer.Self()); !ok {
				t.Errorf("PeerIdentity never gave %s", peer.Self())
			}
		}
		if lines, _ := s.seen.all(); len(lines) > 0 {
			t.Errorf("audited although nobody was refused: %q", lines)
		}
	}
}

// refused calls the server with raw credentials and checks that no handler ran and that the refusal was audited.
func refused(t *testing.T, s *server, config *tls.Config, subject, why string) {
	t.Helper()
	before, counted := s.seen.all()
	handled := s.handled.Load()
	config.NextProtos = []string{"h2"}
	network, where := s.address.Network()
	conn, err := net.Dial(network, where)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := tls.Client(conn, config)
	if err := client.Handshake(); err == nil {
		// In TLS 1.3 the server's refusal comes after the client's side of the handshake is done.
		_, err = io.ReadAll(client)
		if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
			t.Errorf("the server answered %v, want an alert", err)
		}
	}
	testenv.Eventually(t, "the audit record of the refusal", func() bool {
		lines, _ := s.seen.all()
		return len(lines) > len(before)
	})
	lines, count := s.seen.all()
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "channel-refused subject="+subject) || !strings.Contains(last, why) || !strings.Contains(last, "reason=unauthorized") {
		t.Errorf("audited %q, want subject %q and %q", last, subject, why)
	}
	if count != counted+1 {
		t.Errorf("counted %d refusals, want 1", count-counted)
	}
	if s.handled.Load() != handled {
		t.Error("a refused peer reached a handler")
	}
}

func TestChannelRefusesPeers(t *testing.T) {
	d := newDomain(t)
	stranger := newDomain(t) // an authority of the same domain name that nobody here trusts
	s := d.serve("127.0.0.1:0", d.Credentials(trust.CPS, "cps-1"))
	issued := func(d domain, role trust.Role, name string, options pki.Options) tls.Certificate {
		files := d.Issue(role, name, options)
		pair, err := tls.LoadX509KeyPair(string(files.Certificate), string(files.Key))
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	change := func(f func(*x509.Certificate)) tls.Certificate { return d.crafted(trust.Forwarder, "IF-1", f) }
	past, future := time.Now().Add(-48*time.Hour), time.Now().Add(48*time.Hour)
	for _, c := range []struct {
		what, subject, why string
		certificate        tls.Certificate
	}{
		{"wrong role", "spiffe://example.margay/sci/IF-1 ", "role sci has no access here", issued(d, trust.SCI, "IF-1", pki.Options{})},
		{"unknown name", "spiffe://example.margay/forwarder/IF-9 ", `no forwarder of the name "IF-9" is configured here`, issued(d, trust.Forwarder, "IF-9", pki.Options{})},
		{"expired", "spiffe://example.margay/forwarder/IF-1 ", "its certificate expired at ", issued(d, trust.Forwarder, "IF-1", pki.Options{NotBefore: past, Validity: time.Hour})},
		{"not yet valid", "spiffe://example.margay/forwarder/IF-1 ", "its certificate is not valid before ", issued(d, trust.Forwarder, "IF-1", pki.Options{NotBefore: future})},
		{"other authority", "spiffe://example.margay/forwarder/IF-1 ", "not signed by an authority of this domain", issued(stranger, trust.Forwarder, "IF-1", pki.Options{})},
		{"other domain", "spiffe://elsewhere/forwarder/IF-1 ", `its domain is "elsewhere", this one is "example.margay"`,
			change(func(c *x509.Certificate) { c.URIs[0] = uri("spiffe://elsewhere/forwarder/IF-1") })},
		{"no URI", "127.0.0.1:", "has 0 URI SANs, need exactly one", change(func(c *x509.Certificate) { c.URIs = nil; c.DNSNames = []string{"IF-1"} })},
		{"two URIs", "127.0.0.1:", "has 2 URI SANs, need exactly one", change(func(c *x509.Certificate) {
			c.URIs = []*url.URL{c.URIs[0], uri("spiffe://example.margay/operator/admin")}
		})},
		{"not a SPIFFE URI", "127.0.0.1:", "is no identity", change(func(c *x509.Certificate) { c.URIs[0] = uri("https://example.margay/forwarder/IF-1") })},
		{"no name", "127.0.0.1:", "need spiffe://<domain>/<role>/<name>", change(func(c *x509.Certificate) { c.URIs[0] = uri("spiffe://example.margay/forwarder") })},
		{"longer path", "127.0.0.1:", "need spiffe://<domain>/<role>/<name>", change(func(c *x509.Certificate) { c.URIs[0] = uri("spiffe://example.margay/forwarder/IF-1/x") })},
		{"unknown role", "127.0.0.1:", `role "king"`, change(func(c *x509.Certificate) { c.URIs[0] = uri("spiffe://example.margay/king/IF-1") })},
		{"not for opening channels", "spiffe://example.margay/forwarder/IF-1 ", "(extended key usage)",
			change(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })},
		{"not for signatures", "spiffe://example.margay/forwarder/IF-1 ", "does not allow digital signatures",
			change(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment })},
		{"an authority's", "spiffe://example.margay/forwarder/IF-1 ", "is an authority's",
			change(func(c *x509.Certificate) { c.IsCA = true; c.KeyUsage |= x509.KeyUsageCertSign })},
	} {
		t.Run(c.what, func(t *testing.T) {
			// A hostile client verifies nothing and offers what it likes.
			refused(t, s, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c.certificate}}, c.subject, c.why)
		})
	}
	t.Run("no certificate", func(t *testing.T) {
		refused(t, s, &tls.Config{InsecureSkipVerify: true}, "127.0.0.1:", "client didn't provide a certificate")
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		good := issued(d, trust.Forwarder, "IF-1", pki.Options{})
		refused(t, s, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{good}},
			"127.0.0.1:", "client offered only unsupported versions")
	})
	t.Run("plain text", func(t *testing.T) {
		conn, err := net.Dial("tcp", string(s.address))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), "HTTP") {
			t.Errorf("answered plain text: %q", answer)
		}
		if s.handled.Load() != 0 {
			t.Error("a handler ran")
		}
	})
}

func TestChannelOpensNoSession(t *testing.T) {
	d := newDomain(t)
	s := d.serve("127.0.0.1:0", d.Credentials(trust.CPS, "cps-1"))
	config := d.Credentials(trust.Forwarder, "IF-1").ClientConfig(trust.Identity{Domain: trusttest.Domain, Role: trust.CPS, Name: "cps-1"})
	config.NextProtos = []string{"h2"}
	cache := &countingCache{}
	config.ClientSessionCache = cache
	config.SessionTicketsDisabled = false
	for range 2 {
		conn, err := tls.Dial("tcp", string(s.address), config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the server's settings; tickets would come before
			t.Fatal(err)
		}
		if conn.ConnectionState().DidResume || conn.ConnectionState().Version != tls.VersionTLS13 {
			t.Errorf("resumed %v, version %x", conn.ConnectionState().DidResume, conn.ConnectionState().Version)
		}
		conn.Close()
	}
	if cache.puts > 0 {
		t.Errorf("the server gave %d session tickets", cache.puts)
	}
}

type countingCache struct{ puts int }

func (c *countingCache) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (c *countingCache) Put(string, *tls.ClientSessionState)        { c.puts++ }

func TestDialRefusesWrongServers(t *testing.T) {
	d := newDomain(t)
	client := d.Credentials(trust.Forwarder, "IF-1")
	expect := client.Peer(trust.CPS, "cps-1")
	good := d.serve("127.0.0.1:0", d.Credentials(trust.CPS, "cps-1"))
	if err := call(t, good, client, expect, nil); err != nil {
		t.Fatal(err)
	}
	imposter := d.Credentials(trust.Forwarder, "cps-1")
	misnamed := d.Credentials(trust.CPS, "cps-2")
	unserving := d.Credentials(trust.SCI, "cps-1")
	stranger := newDomain(t).Credentials(trust.CPS, "cps-1")
	for what, c := range map[string]struct {
		server *trust.Credentials
		why    string
	}{
		"wrong role":                 {imposter, "spiffe://example.margay/forwarder/cps-1 refused: expected spiffe://example.margay/cps/cps-1"},
		"wrong name":                 {misnamed, "spiffe://example.margay/cps/cps-2 refused: expected spiffe://example.margay/cps/cps-1"},
		"not for accepting channels": {unserving, "does not allow it to accept channels (extended key usage)"},
		"other authority":            {stranger, "is not signed by an authority of this domain"},
	} {
		t.Run(what, func(t *testing.T) {
			s := d.serve("127.0.0.1:0", c.server)
			var audited records
			err := call(t, s, client, expect, &audited)
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), c.why) {
				t.Errorf("the caller was told %v, want %q", err, c.why)
			}
			lines, _ := audited.all()
			if len(lines) == 0 || !strings.HasPrefix(lines[0], "peer-refused subject="+c.server.Self().String()+" object="+expect.String()) || !strings.Contains(lines[0], c.why) {
				t.Errorf("audited %q", lines)
			}
			if s.handled.Load() != 0 {
				t.Error("the request was sent nevertheless")
			}
		})
	}
}

func TestRefusedPeerIsToldSo(t *testing.T) {
	d := newDomain(t)
	s := d.serve("127.0.0.1:0", d.Credentials(trust.CPS, "cps-1"))
	peer := d.Credentials(trust.Forwarder, "IF-9")
	for range 20 { // not a matter of who is faster
		err := call(t, s, peer, peer.Peer(trust.CPS, "cps-1"), nil)
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "spiffe://example.margay/cps/cps-1 refused our certificate, spiffe://example.margay/forwarder/IF-9 (its audit log says why)") {
			t.Fatalf("the caller was told %v", err)
		}
	}
}

func TestGuardChecksEachCall(t *testing.T) {
	d := newDomain(t)
	s := d.serve("127.0.0.1:0", d.Credentials(trust.CPS, "cps-1"))
	denied := func(err error, event, why string) {
		t.Helper()
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), why) {
			t.Errorf("the caller was told %v, want %q", err, why)
		}
		if lines, _ := s.seen.all(); len(lines) == 0 || !strings.HasPrefix(lines[len(lines)-1], event) || !strings.Contains(lines[len(lines)-1], why) {
			t.Errorf("audited %q, want %q and %q", lines, event, why)
		}
	}
	operator := d.Credentials(trust.Operator, "admin")
	conn, err := operator.Dial(s.address, operator.Peer(trust.CPS, "cps-1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	if _, err := client.Check(patient(t), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatalf("a permitted method: %v", err)
	}
	stream, err := client.Watch(patient(t), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	denied(err, "call-refused subject=spiffe://example.margay/operator/admin object="+watch, "role operator may not call "+watch)
	_, err = client.List(patient(t), &grpc_health_v1.HealthListRequest{})
	denied(err, "call-refused subject=spiffe://example.margay/operator/admin object=/grpc.health.v1.Health/List", "may not call")

	if n := s.handled.Load(); n != 1 {
		t.Errorf("%d calls reached a handler, want 1", n)
	}
}

func TestRosterIsReplaced(t *testing.T) {
	d := newDomain(t)
	s := d.serve("127.0.0.1:0", d.Credentials(trust.CPS, "cps-1"))
	stream := func(role trust.Role, name string) grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse] {
		t.Helper()
		peer := d.Credentials(role, name)
		conn, err := peer.Dial(s.address, peer.Peer(trust.CPS, "cps-1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		stream, err := grpc_health_v1.NewHealthClient(conn).Watch(patient(t), &grpc_health_v1.HealthCheckRequest{Service: "stays"})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	removed, stays := stream(trust.Forwarder, "IF-1"), stream(trust.PCE, "pce-1")
	s.guard.SetRoster(trust.Roster{trust.Forwarder: {"IF-2"}, trust.PCE: {"pce-1"}})
	if _, err := removed.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the open stream of a removed peer got %v", err)
	}
	if lines, count := s.seen.all(); len(lines) == 0 || count == 0 ||
		!strings.HasPrefix(lines[0], "channel-closed subject=spiffe://example.margay/forwarder/IF-1") || !strings.Contains(lines[0], `no forwarder of the name "IF-1" is configured here`) {
		t.Errorf("audited %q", lines)
	}
	close(s.leave)
	if _, err := stays.Recv(); err != io.EOF {
		t.Errorf("the stream of one who stays got %v", err)
	}
	added := d.Credentials(trust.Forwarder, "IF-2")
	if err := call(t, s, added, added.Peer(trust.CPS, "cps-1"), nil); err != nil {
		t.Errorf("the added peer: %v", err)
	}
}

func TestPortCheckIsNotAudited(t *testing.T) {
	d := newDomain(t)
	s := d.serve("127.0.0.1:0", d.Credentials(trust.CPS, "cps-1"))
	conn, err := net.Dial("tcp", string(s.address))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	// The refusal that follows is audited; the connection before it would have been by then.
	refused(t, s, &tls.Config{InsecureSkipVerify: true}, "127.0.0.1:", "client didn't provide a certificate")
	if lines, _ := s.seen.all(); len(lines) != 1 {
		t.Errorf("audited %q, want one line", lines)
	}
}
