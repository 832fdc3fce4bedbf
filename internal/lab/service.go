package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// ServiceOptions tell Service what to be.
type ServiceOptions struct {
	Name    string           // of the instance, in every answer
	Listen  []string         // "tcp:address:port" or "udp:address:port"
	Observe endpoint.Address // for /metrics, /healthz and /readyz; empty: none
	Log     *slog.Logger
}

// Limits of what a request may ask for.
const (
	maxStream   = 1 << 40 // octets
	maxInterval = time.Minute
	maxChunk    = 1 << 20 // octets
)

// Greeting is the answer of Service to an HTTP request that is none of its special ones.
type Greeting struct {
	Instance string `json:"instance"`
	Remote   string `json:"remote"` // the client as the instance sees it
	Local    string `json:"local"`  // the locator that was reached
	Host     string `json:"host"`
	Path     string `json:"path"`
}

// Service is a small real service that tells who answered, until ctx ends. Over TCP it speaks HTTP:
//
//	/bytes/N                                  N octets at once, the octet at offset i being Pattern(i)
//	/stream?octets=N&chunk=C&interval=20ms    N of the same octets, C at a time, with a pause after each
//	/echo                                     the request's body, as it arrives
//	anything else                             a Greeting in JSON
//
// Over UDP it answers each datagram with its name, a space and the datagram.
func Service(ctx context.Context, o ServiceOptions) error {
	s := &service{name: o.Name, log: o.Log}
	if err := s.listen(o.Listen); err != nil {
		return errors.Join(err, s.close())
	}
	var observed *observe.Server
	if o.Observe != "" {
		var err error
		if observed, err = observe.Serve(o.Observe, observe.NewRegistry(), &observe.Health{}, o.Log); err != nil {
			return errors.Join(err, s.close())
		}
	}
	o.Log.Info("serving", "instance", o.Name, "listen", o.Listen)
	err := s.run(ctx)
	if observed != nil {
		stop, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = errors.Join(err, observed.Stop(stop))
	}
	return err
}

type service struct {
	name    string
	log     *slog.Logger
	streams []net.Listener
	packets []net.PacketConn
}

func (s *service) listen(addresses []string) error {
	if len(addresses) == 0 {
		return errors.New("service: nothing to listen on; give --listen tcp:address:port or udp:address:port")
	}
	for _, a := range addresses {
		kind, at, _ := strings.Cut(a, ":")
		protocol, err := cats.ParseProtocol(kind)
		if err != nil {
			return fmt.Errorf("service: listen on %q: %w", a, err)
		}
		if _, err := netip.ParseAddrPort(at); err != nil {
			return fmt.Errorf("service: listen on %q: %w", a, err)
		}
		if protocol == cats.TCP {
			l, err := net.Listen("tcp", at)
			if err != nil {
				return fmt.Errorf("service: %w", err)
			}
			s.streams = append(s.streams, l)
			continue
		}
		p, err := net.ListenPacket("udp", at)
		if err != nil {
			return fmt.Errorf("service: %w", err)
		}
		s.packets = append(s.packets, p)
	}
	return nil
}

func (s *service) close() error {
	var failed []error
	for _, l := range s.streams {
		failed = append(failed, l.Close())
	}
	for _, p := range s.packets {
		failed = append(failed, p.Close())
	}
	return errors.Join(failed...)
}

// run serves until ctx ends or one of the sockets fails.
func (s *service) run(ctx context.Context) error {
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second,
		// Requests end with the service, so that a long stream does not keep it alive.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, len(s.streams)+len(s.packets))
	var serving sync.WaitGroup
	for _, l := range s.streams {
		serving.Go(func() { failed <- server.Serve(l) })
	}
	for _, p := range s.packets {
		serving.Go(func() { failed <- s.echo(p) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("service: %w", err)
	}
	stopped := server.Close()
	for _, p := range s.packets {
		stopped = errors.Join(stopped, p.Close())
	}
	serving.Wait()
	return errors.Join(err, stopped)
}

// echo answers datagrams until the socket is closed.
func (s *service) echo(p net.PacketConn) error {
	prefix := []byte(s.name + " ")
	buffer := make([]byte, len(prefix)+1<<16)
	copy(buffer, prefix)
	for {
		n, from, err := p.ReadFrom(buffer[len(prefix):])
		if err != nil {
			return err
		}
		if _, err := p.WriteTo(buffer[:len(prefix)+n], from); err != nil {
			s.log.Warn("answer not sent", "to", from.String(), "error", err)
		}
	}
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes/{n}", s.bytes)
	mux.HandleFunc("GET /stream", s.stream)
	mux.HandleFunc("/echo", s.echoBody)
	mux.HandleFunc("/", s.greet)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Instance", s.name)
		mux.ServeHTTP(w, r)
	})
}

func (s *service) greet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	s.sent(json.NewEncoder(w).Encode(Greeting{Instance: s.name, Remote: r.RemoteAddr, Local: local.String(), Host: r.Host, Path: r.URL.Path}))
}

func (s *service) bytes(w http.ResponseWriter, r *http.Request) {
	n, err := number(r.PathValue("n"), maxStream)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	_, err = io.CopyN(w, &patternReader{}, n)
	s.sent(err)
}

func (s *service) stream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	octets, err1 := number(q.Get("octets"), maxStream)
	chunk, err2 := number(q.Get("chunk"), maxChunk)
	interval, err3 := time.ParseDuration(q.Get("interval"))
	if err := errors.Join(err1, err2, err3); err != nil || chunk == 0 || interval < 0 || interval > maxInterval {
		http.Error(w, "need octets, chunk (1 to 1048576) and interval (up to 1m)", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(octets, 10))
	var source patternReader
	control := http.NewResponseController(w)
	for octets > 0 {
		n := min(chunk, octets)
		if _, err := io.CopyN(w, &source, n); err != nil {
			s.sent(err)
			return
		}
		s.sent(control.Flush())
		octets -= n
		select {
		case <-r.Context().Done():
			return
		case <-time.After(interval):
		}
	}
}

func (s *service) echoBody(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if err := control.EnableFullDuplex(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Body.Read(buffer)
		if n > 0 {
			_, written := w.Write(buffer[:n])
			s.sent(errors.Join(written, control.Flush()))
		}
		if err != nil {
			return
		}
	}
}

// sent notes an answer that did not reach the client; nobody is left to tell.
func (s *service) sent(err error) {
	if err != nil {
		s.log.Info("answer cut short", "error", err)
	}
}

func number(text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%q: need a whole number from 0 to %d", text, most)
	}
	return n, nil
}

// Pattern is the octet at an offset of what /bytes and /stream send: any octet lost, doubled or moved shows.
func Pattern(offset int64) byte { return byte(offset) ^ byte(offset>>8) ^ byte(offset>>16) }

// patternReader gives Pattern from offset 0 on, for ever.
type patternReader struct{ offset int64 }

func (p *patternReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = Pattern(p.offset)
		p.offset++
	}
	return len(b), nil
}
