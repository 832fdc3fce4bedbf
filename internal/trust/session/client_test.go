package session_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/session"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

// attempts runs a client whose peer accepts no connection, and gives the times at which its attempts have failed.
func attempts(t *testing.T, longest time.Duration) <-chan time.Time {
	t.Helper()
	credentials := trusttest.New(t).Credentials(trust.SCI, "sci-a")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	failed := make(chan time.Time, 10000)
	client := session.NewClient(session.ClientOptions[int, int]{
		Credentials: credentials, Address: endpoint.Address(address), Peer: credentials.Peer(trust.CSMA, "csma-1"), Length: 1, LongestWait: longest,
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
			failed <- time.Now()
		},
	})
	if client.Send(1) {
		t.Error("a message was taken without a session")
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { client.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return failed
}

// TestRetry: the waits between attempts double, less 20 % at most.
func TestRetry(t *testing.T) {
	failed := attempts(t, 0)
	last := <-failed
	for _, least := range []time.Duration{800 * time.Millisecond, 1600 * time.Millisecond} {
		next := <-failed
		if gap := next.Sub(last); gap < least {
			t.Errorf("the next attempt came after %v, want at least %v", gap, least)
		}
		last = next
	}
}

// TestLongestWait: nine attempts take more than 80 s where the waits double as they usually do.
func TestLongestWait(t *testing.T) {
	const longest = 50 * time.Millisecond
	failed := attempts(t, longest)
	first := <-failed
	last := first
	for range 8 {
		next := <-failed
		if gap := next.Sub(last); gap < longest*8/10 {
			t.Errorf("the next attempt came after %v, want at least %v", gap, longest*8/10)
		}
		last = next
	}
	if all := last.Sub(first); all > time.Minute {
		t.Errorf("nine attempts took %v", all)
	}
}
