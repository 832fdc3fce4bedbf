package sci

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/margay-net/margay/internal/trust/endpoint"
)

func TestTCPCheck(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	check := Check{TCP: endpoint.Address(listener.Addr().String()), Interval: 30 * time.Second}
	if err := check.run(context.Background()); err != nil {
		t.Errorf("a listener: %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := check.run(context.Background()); err == nil {
		t.Error("no listener: good")
	}
}

// TestHTTPCheckTimesOut has a server that accepts and says nothing.
func TestHTTPCheckTimesOut(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	check := Check{HTTP: "http://" + listener.Addr().String() + "/", Interval: 50 * time.Millisecond}
	if err := check.run(context.Background()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
