package session_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/session"
)

// TestRetry has a peer that accepts no connection: the waits between attempts double, less 20 % at most.
func TestRetry(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Init(dir, "example.margay"); err != nil {
		t.Fatal(err)
	}
	files, err := pki.Issue(dir, trust.SCI, "sci-a", pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := trust.Load(config.TLS{Certificate: config.Path(files.Certificate), Key: config.Path(files.Key), Authority: config.Path(files.Authority), Domain: "example.margay"})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	attempts := make(chan time.Time, 100)
	client := session.NewClient(session.ClientOptions[int, int]{
		Credentials: credentials, Address: endpoint.Address(address), Peer: credentials.Peer(trust.CSMA, "csma-1"), Length: 1,
		Open: func(ctx context.Context, conn *grpc.ClientConn) (session.Stream[int, int], error) {
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/x/y")
			if err == nil {
				err = errors.New("somebody listens")
				t.Error(err, stream)
			}
			return session.Stream[int, int]{}, err
		},
		Opened: func() { t.Error("a session was opened") },
		Closed: func(err error) {
			if err == nil {
				t.Error("no reason")
			}
			attempts <- time.Now()
		},
	})
	if client.Send(1) {
		t.Error("a message was taken without a session")
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { client.Run(ctx) })
	last := <-attempts
	for _, least := range []time.Duration{800 * time.Millisecond, 1600 * time.Millisecond} {
		next := <-attempts
		if gap := next.Sub(last); gap < least {
			t.Errorf("the next attempt came after %v, want at least %v", gap, least)
		}
		last = next
	}
	cancel()
	running.Wait()
}
