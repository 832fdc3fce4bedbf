package observe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type shown struct {
	t      *testing.T
	server *Server
	client *http.Client
	health *Health
}

func serve(t *testing.T, address endpoint.Address) shown {
	t.Helper()
	registry, health := NewRegistry(), &Health{}
	NewReasons(registry, "margay_refusals_total", "help").Add(cats.ReasonNoPath, 3)
	server, err := Serve(address, registry, health, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at := server.Address()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, at.Network(), at.String())
	}}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return shown{t, server, client, health}
}

func (s shown) get(path string) (int, string) {
	s.t.Helper()
	response, err := s.client.Get("http://margay" + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestServer(t *testing.T) {
	for _, address := range []endpoint.Address{"127.0.0.1:0", endpoint.Address("unix:" + filepath.Join(t.TempDir(), "s"))} {
		s := serve(t, address)
		if code, body := s.get("/healthz"); code != 200 || body != "ok\n" {
			t.Errorf("/healthz: %d %q", code, body)
		}
		code, body := s.get("/metrics")
		if code != 200 {
			t.Errorf("/metrics: %d", code)
		}
		for _, reason := range cats.Reasons() {
			want := fmt.Sprintf("margay_refusals_total{reason=%q} 0\n", reason.String())
			if reason == cats.ReasonNoPath {
				want = strings.Replace(want, " 0\n", " 3\n", 1)
			}
			if !strings.Contains(body, want) {
				t.Errorf("/metrics lacks %q", want)
			}
		}
		if !strings.Contains(body, "process_resident_memory_bytes ") || !strings.Contains(body, "go_goroutines ") {
			t.Error("/metrics lacks the process's or the runtime's metrics")
		}
		if code, _ := s.get("/"); code != http.StatusNotFound {
			t.Errorf("/: %d", code)
		}
		response, err := s.client.Post("http://margay/healthz", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST /healthz: %d", response.StatusCode)
		}
	}
}

func TestReadiness(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	if code, body := s.get("/readyz"); code != 200 || body != "" {
		t.Errorf("without conditions: %d %q", code, body)
	}
	first, second := s.health.Condition("cps-connected"), s.health.Condition("provisioned")
	check := func(want int, body string) {
		t.Helper()
		if code, got := s.get("/readyz"); code != want || got != body {
			t.Errorf("%d %q, want %d %q", code, got, want, body)
		}
	}
	check(503, "not ready cps-connected: not yet\nnot ready provisioned: not yet\n")
	first.Holds("")
	second.Fails("refused:\nunauthorized")
	check(503, "ok cps-connected\nnot ready provisioned: refused: unauthorized\n")
	second.Holds("generation 7")
	check(200, "ok cps-connected\nok provisioned: generation 7\n")
	first.Fails("connection lost")
	check(503, "not ready cps-connected: connection lost\nok provisioned: generation 7\n")
	defer func() {
		if recover() == nil {
			t.Error("a second condition of the same name was taken")
		}
	}()
	s.health.Condition("provisioned")
}

func TestHugeHeaderIsRefused(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	request, err := http.NewRequest(http.MethodGet, "http://margay/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", response.StatusCode)
	}
}

func TestTakenAddress(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	address := endpoint.Address(s.server.Address().String())
	if _, err := Serve(address, NewRegistry(), &Health{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "observe: listen on "+string(address)) {
		t.Errorf("Serve on a taken address = %v", err)
	}
}

// Stop waits for an answer that is under way, and cuts it off when its context ends.
func TestStop(t *testing.T) {
	for _, patient := range []bool{true, false} {
		registry := prometheus.NewRegistry()
		entered, leave := make(chan struct{}), make(chan struct{})
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow", Help: "h"}, func() float64 {
			close(entered)
			<-leave
			return 1
		}))
		server, err := Serve("127.0.0.1:0", registry, &Health{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		client := &http.Client{Transport: &http.Transport{}}
		go func() {
			response, err := client.Get("http://" + server.Address().String() + "/metrics")
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
			answered <- err
		}()
		<-entered
		ctx, cancel := context.WithCancel(context.Background())
		if patient {
			time.AfterFunc(20*time.Millisecond, func() { close(leave) })
		} else {
			cancel()
		}
		stopped := server.Stop(ctx)
		if (stopped == nil) != patient {
			t.Errorf("patient %v: Stop = %v", patient, stopped)
		}
		if err := <-answered; (err == nil) != patient {
			t.Errorf("patient %v: the request got %v", patient, err)
		}
		if !patient {
			close(leave)
		}
		cancel()
		client.CloseIdleConnections()
	}
}

func TestReasons(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := NewReasons(registry, "margay_drops_total", "Dropped packets.")
	r.Inc(cats.ReasonNoBinding)
	r.Add(cats.ReasonNoBinding, 4)
	if n, err := testutil.GatherAndCount(registry, "margay_drops_total"); err != nil || n != len(cats.Reasons()) {
		t.Errorf("%d series (%v), want one of each of %d reasons", n, err, len(cats.Reasons()))
	}
	if n := testutil.ToFloat64(r.counters[cats.ReasonNoBinding]); n != 5 {
		t.Errorf("no-binding counts %v, want 5", n)
	}
	for _, bad := range []cats.Reason{cats.ReasonNone, 255} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("counted %s", bad)
				}
			}()
			r.Inc(bad)
		}()
	}
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log, level := NewLogger(&out)
	log.Debug("hidden")
	log.Info("shown", "key", "value")
	level.Set(slog.LevelDebug)
	log.Debug("now shown")
	if s := out.String(); strings.Contains(s, "hidden") || !strings.Contains(s, "msg=shown key=value") || !strings.Contains(s, `msg="now shown"`) {
		t.Errorf("logged %q", s)
	}
	for s, want := range map[string]slog.Level{"": slog.LevelInfo, "debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError} {
		if got, err := ParseLevel(s); err != nil || got != want {
			t.Errorf("ParseLevel(%q) = %v, %v", s, got, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil {
		t.Error("ParseLevel took loud")
	}
}
