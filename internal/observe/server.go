package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/margay-net/margay/internal/trust/endpoint"
)

const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 30 * time.Second
	idleTimeout    = 60 * time.Second
	maxHeader      = 8 << 10 // octets
	maxConnections = 64
)

// NewRegistry makes a registry that has the process's and the Go runtime's own metrics.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Server answers GET /metrics (Prometheus text), /healthz (200 while the process runs) and /readyz (200 when every
// condition holds, 503 otherwise, with the conditions in the body) in plain HTTP.
type Server struct {
	http     http.Server
	listener net.Listener
	served   chan error // what Serve returned; sent once
}

// Serve listens on address and answers from then on. Stop it with Stop.
func Serve(address endpoint.Address, registry *prometheus.Registry, health *Health, log *slog.Logger) (*Server, error) {
	listener, err := address.Listen()
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	s := &Server{
		listener: listener,
		served:   make(chan error, 1),
		http: http.Server{
			Handler:           handler(registry, health, log),
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       requestTimeout,
			WriteTimeout:      requestTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeader,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}
	go func() { s.served <- s.http.Serve(netutil.LimitListener(listener, maxConnections)) }()
	return s, nil
}

// Address gives where the server listens: useful where the configured port was 0.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

// Stop lets requests that are being answered finish until ctx ends, then cuts them off.
func (s *Server) Stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func handler(registry *prometheus.Registry, health *Health, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		MaxRequestsInFlight: 4,
		Timeout:             requestTimeout / 2,
		Registry:            registry,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, []byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		var body bytes.Buffer
		status := http.StatusOK
		if !health.Ready(&body) {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, body.Bytes())
	})
	return mux
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is gone; nobody is left to tell
}
