package trust_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/margay-net/margay/internal/observe/audit"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

// A peer without certificate tries again and again. Each refusal counts; the audit log gets a bounded number of records,
// and one that tells how many more there were.
func TestFloodOfRefusedHandshakes(t *testing.T) {
	const attempts = 200
	for _, address := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
		network, _, _ := strings.Cut(address, ":")
		t.Run("SM-12-2 over "+network, func(t *testing.T) {
			d := newDomain(t)
			path := filepath.Join(t.TempDir(), "audit")
			log, err := audit.Open(audit.Options{File: path, MaxSize: 1 << 30, Keep: 1}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			var counted records
			own := d.Credentials(trust.CPS, "cps-1")
			guard := trust.NewGuard(trust.Roster{trust.Forwarder: {"IF-1"}}, trust.Methods{check: {trust.Forwarder}}, log, &counted)
			s := &server{address: endpoint.Address(address), guard: guard}
			listener, err := trust.Listen(s.address)
			if err != nil {
				t.Fatal(err)
			}
			if listener.Addr().Network() == "tcp" {
				s.address = endpoint.Address(listener.Addr().String())
			}
			g := trust.NewServer(own, guard)
			grpc_health_v1.RegisterHealthServer(g, s)
			stop := trusttest.Serve(t, g, listener, func() {})

			network, where := s.address.Network()
			for range attempts {
				conn, err := net.Dial(network, where)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, conn) // until the server hangs up
				conn.Close()
			}
			testenv.Eventually(t, "every refusal is counted", func() bool { _, n := counted.all(); return n == attempts })
			if err := call(t, s, d.Credentials(trust.Forwarder, "IF-1"), own.Self(), nil); err != nil {
				t.Errorf("who may come in cannot: %v", err)
			}
			stop()
			if err := log.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			refused := strings.Count(string(content), `"event":"channel-refused"`)
			source := "127.0.0.1/32"
			if network == "unix" {
				source = "a process of this machine"
			}
			if want := fmt.Sprintf("%d more from %s", attempts-refused, source); refused < 1 || refused > 20 || !strings.Contains(string(content), want) {
				t.Errorf("%d refusals are recorded, want a few and %q in\n%s", refused, want, content)
			}
		})
	}
}
