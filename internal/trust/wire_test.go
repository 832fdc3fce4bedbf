package trust_test

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// wire is somebody between the two ends of a channel: it passes octets on, keeps what the client sent, and may change
// it.
type wire struct {
	address endpoint.Address
	mutex   sync.Mutex // guards the rest
	sent    []byte
	change  func([]byte) // once
}

func newWire(t *testing.T, to endpoint.Address) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: endpoint.Address(listener.Addr().String())}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", string(to))
			if err != nil {
				t.Errorf("the wire cannot reach the server: %v", err)
				client.Close()
				return
			}
			running.Go(func() { pass(server, client, w.tap) })
			running.Go(func() { pass(client, server, func([]byte) {}) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	return w
}

func pass(to, from net.Conn, tap func([]byte)) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			tap(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) tap(octets []byte) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.sent = append(w.sent, octets...)
	if w.change != nil {
		w.change(octets)
		w.change = nil
	}
}

// tamper changes the next thing that the client sends.
func (w *wire) tamper(change func([]byte)) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.change = change
}

func (w *wire) taken() []byte {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.Clone(w.sent)
}

// The C-PS's channels with forwarders and with a PCE, with somebody on the wire between them.
func TestChannelWithTheCPS(t *testing.T) {
	d := newDomain(t)
	own := d.Credentials(trust.CPS, "cps-1")
	for role, name := range map[trust.Role]string{trust.Forwarder: "IF-1", trust.PCE: "pce-1"} {
		t.Run("CP-12-2 "+string(role)+" channel: authentication, integrity, replay protection, access control", func(t *testing.T) {
			s := d.serve("127.0.0.1:0", own)
			w := newWire(t, s.address)
			peer := d.Credentials(role, name)

			for _, stranger := range []*trust.Credentials{d.Credentials(role, "stranger"), d.Credentials(trust.SCI, name), newDomain(t).Credentials(role, name)} {
				if err := call(t, s, stranger, own.Self(), nil); err == nil || s.handled.Load() != 0 {
					t.Fatalf("authentication: %v; %d calls of a stranger were handled", err, s.handled.Load())
				}
			}
			conn, err := peer.Dial(w.address, own.Self(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			client := grpc_health_v1.NewHealthClient(conn)
			if _, err := client.Check(patient(t), &grpc_health_v1.HealthCheckRequest{Service: "in clear?"}); err != nil {
				t.Fatal(err)
			}
			recorded := w.taken()
			if len(recorded) == 0 || bytes.Contains(recorded, []byte("in clear?")) {
				t.Fatalf("the request is readable on the wire, or was not seen there (%d octets)", len(recorded))
			}

			_, err = client.List(patient(t), &grpc_health_v1.HealthListRequest{})
			if status.Code(err) != codes.PermissionDenied {
				t.Fatalf("access control: a method that the role may not call gave %v", err)
			}

			w.tamper(func(octets []byte) { octets[len(octets)-1] ^= 1 })
			if _, err := client.Check(patient(t), &grpc_health_v1.HealthCheckRequest{}); err == nil {
				t.Fatal("integrity: a changed request was answered")
			}

			replayed, err := net.Dial("tcp", string(s.address))
			if err != nil {
				t.Fatal(err)
			}
			defer replayed.Close()
			if _, err := replayed.Write(recorded); err != nil {
				t.Logf("the server hung up while the record was replayed: %v", err)
			}
			_, _ = io.Copy(io.Discard, replayed) // until the server has had enough of it
			if n := s.handled.Load(); n != 1 {
				t.Fatalf("%d calls were handled, want the one honest one", n)
			}
		})
	}
}
