package trust_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

const (
	check = "/grpc.health.v1.Health/Check"
	watch = "/grpc.health.v1.Health/Watch"
)

// domain is a lab authority.
type domain struct {
	t *testing.T
	trusttest.Authority
}

func newDomain(t *testing.T) domain {
	t.Helper()
	return domain{t, trusttest.New(t)}
}

// crafted signs a certificate that margay pki would not: change alters its template.
func (d domain) crafted(role trust.Role, name string, change func(*x509.Certificate)) tls.Certificate {
	d.t.Helper()
	authority, err := tls.LoadX509KeyPair(filepath.Join(d.Dir, "ca.crt"), filepath.Join(d.Dir, "ca.key"))
	if err != nil {
		d.t.Fatal(err)
	}
	files := d.Issue(role, name, pki.Options{})
	pair, err := tls.LoadX509KeyPair(string(files.Certificate), string(files.Key))
	if err != nil {
		d.t.Fatal(err)
	}
	template := *pair.Leaf
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.ExtraExtensions, template.Extensions = nil, nil
	change(&template)
	der, err := x509.CreateCertificate(rand.Reader, &template, authority.Leaf, pair.PrivateKey.(crypto.Signer).Public(), authority.PrivateKey)
	if err != nil {
		d.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: pair.PrivateKey}
}

// records is an Auditor and a Counter that remembers.
type records struct {
	mutex sync.Mutex
	lines []string
	count int
}

func (r *records) Record(event, subject, object string, reason cats.Reason, detail string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%s subject=%s object=%s reason=%s detail=%s", event, subject, object, reason, detail))
}

func (r *records) RecordFrom(source, event, subject, object string, reason cats.Reason, detail string) bool {
	r.Record(event, subject, object, reason, detail+" source="+source)
	return true
}

func (r *records) Inc(reason cats.Reason) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if reason == cats.ReasonUnauthorized {
		r.count++
	}
}

func (r *records) all() ([]string, int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string(nil), r.lines...), r.count
}

// server is a gRPC server that counts what reaches its handlers.
type server struct {
	grpc_health_v1.UnimplementedHealthServer
	address endpoint.Address
	guard   *trust.Guard
	seen    records
	handled atomic.Int64
	callers sync.Map      // Identity -> true
	leave   chan struct{} // ends the streams that stay
}

func (s *server) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.handled.Add(1)
	id, err := trust.PeerIdentity(ctx)
	if err != nil {
		return nil, err
	}
	s.callers.Store(id, true)
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (s *server) Watch(request *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	s.handled.Add(1)
	if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}); err != nil {
		return err
	}
	if request.Service == "stays" {
		select {
		case <-s.leave:
		case <-stream.Context().Done():
		}
	}
	return nil
}

// serve starts a C-PS: the roster names a forwarder, a pce, any C-SMA and an operator; the operator may only Check.
func (d domain) serve(address endpoint.Address, credentials *trust.Credentials) *server {
	d.t.Helper()
	listener, err := trust.Listen(address)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.serveOn(listener, address, credentials)
}

func (d domain) serveOn(listener net.Listener, address endpoint.Address, credentials *trust.Credentials) *server {
	s := &server{address: address, leave: make(chan struct{})}
	if listener.Addr().Network() == "tcp" {
		s.address = endpoint.Address(listener.Addr().String())
	}
	s.guard = trust.NewGuard(
		trust.Roster{trust.Forwarder: {"IF-1"}, trust.PCE: {"pce-1"}, trust.CSMA: {trust.AnyName}, trust.Operator: {"admin"}},
		trust.Methods{check: {trust.Forwarder, trust.PCE, trust.CSMA, trust.Operator}, watch: {trust.Forwarder, trust.PCE}},
		&s.seen, &s.seen)
	g := trust.NewServer(credentials, s.guard)
	grpc_health_v1.RegisterHealthServer(g, s)
	trusttest.Serve(d.t, g, listener, func() {})
	return s
}

// patient is a deadline that only a broken test meets.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// call dials s as expect and calls Check.
func call(t *testing.T, s *server, c *trust.Credentials, expect trust.Identity, audit trust.Auditor) error {
	t.Helper()
	conn, err := c.Dial(s.address, expect, audit)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(patient(t), &grpc_health_v1.HealthCheckRequest{})
	return err
}

func uri(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}
