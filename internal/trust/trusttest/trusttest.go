// Package trusttest gives tests a domain: an authority, certificates it signed, and servers that end with the test.
package trusttest

import (
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/pki"
)

// Domain is the trust domain of every Authority.
const Domain = "example.margay"

// Authority is a lab authority in a directory.
type Authority struct {
	t   testing.TB
	Dir string
}

// New makes an authority.
func New(t testing.TB) Authority {
	t.Helper()
	return In(t, t.TempDir())
}

// In makes an authority in a directory.
func In(t testing.TB, dir string) Authority {
	t.Helper()
	if _, err := pki.Init(dir, Domain); err != nil {
		t.Fatal(err)
	}
	return Authority{t, dir}
}

// Issue issues a certificate as margay pki does; where o names no directory, in one of its own.
func (a Authority) Issue(role trust.Role, name string, o pki.Options) config.TLS {
	a.t.Helper()
	if o.Out == "" {
		o.Out = a.t.TempDir()
	}
	files, err := pki.Issue(a.Dir, role, name, o)
	if err != nil {
		a.t.Fatal(err)
	}
	return config.TLS{Certificate: config.Path(files.Certificate), Key: config.Path(files.Key), Authority: config.Path(files.Authority), Domain: Domain}
}

// Credentials gives those of a program with a certificate of its own.
func (a Authority) Credentials(role trust.Role, name string) *trust.Credentials {
	a.t.Helper()
	return Load(a.t, a.Issue(role, name, pki.Options{}))
}

// Load reads credentials.
func Load(t testing.TB, files config.TLS) *trust.Credentials {
	t.Helper()
	c, err := trust.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Serve has server answer at a listener until the test ends, or stop; then it waits for it, and calls wait.
func Serve(t testing.TB, server *grpc.Server, listener net.Listener, wait func()) (stop func()) {
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		server.Stop()
		serving.Wait()
		wait()
	})
	t.Cleanup(stop)
	return stop
}

// Ignore is told of refusals where a test has nothing to do with them.
type Ignore struct{}

// Record forgets.
func (Ignore) Record(string, string, string, cats.Reason, string) {}

// RecordFrom forgets.
func (Ignore) RecordFrom(string, string, string, string, cats.Reason, string) bool { return true }

// Inc forgets.
func (Ignore) Inc(cats.Reason) {}
