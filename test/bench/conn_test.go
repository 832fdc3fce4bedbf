package main

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// loopback gives a free TCP port there.
func loopback(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func generate(t *testing.T, at netip.AddrPort) *generator {
	t.Helper()
	g, err := newGenerator(at, []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}, 50, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.close() })
	return g
}

func here(f func() error) error { return f() }

func TestConnectionsAreServed(t *testing.T) {
	at := loopback(t)
	s, err := serve(here, at)
	if err != nil {
		t.Fatal(err)
	}
	g := generate(t, at)
	for range 2 {
		took, err := g.run(t.Context(), 500)
		if err != nil || len(took) != 500 || slices.Min(took) <= 0 {
			t.Fatalf("%d connections, %v", len(took), err)
		}
	}
	if s.served.Load() != 1000 || g.serial != 1000 || len(g.open) != 0 {
		t.Errorf("%d requests served, %d connections begun, %d open", s.served.Load(), g.serial, len(g.open))
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if _, err := serve(here, netip.MustParseAddrPort("203.0.113.1:1")); err == nil {
		t.Error("a server listens at an address of nobody")
	}
}

// TestLostConnectionsFailTheRun has servers that refuse, hang up, or answer what was not asked.
func TestLostConnectionsFailTheRun(t *testing.T) {
	at := loopback(t)
	if _, err := generate(t, at).run(t.Context(), 5); err == nil || !strings.Contains(err.Error(), "5 of 5 connections were lost") {
		t.Errorf("refused connections: %v", err)
	}
	for _, c := range []struct {
		answer []byte
		want   string
	}{
		{nil, "the response ends after 0 octets"}, {make([]byte, responseOctets-1), "the response ends after 255 octets"},
		{make([]byte, responseOctets), "answered by the response to 0"},
	} {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				buffer := make([]byte, requestOctets)
				conn.Read(buffer)
				conn.Write(c.answer)
				conn.Close()
			}
		}()
		_, err = generate(t, l.Addr().(*net.TCPAddr).AddrPort()).run(t.Context(), 3)
		if err == nil || !strings.Contains(err.Error(), "3 of 3 connections were lost") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		l.Close()
		<-done
	}
}

func TestGeneratorEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts nothing: the requests are never answered
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.Canceled)
	if _, err := generate(t, l.Addr().(*net.TCPAddr).AddrPort()).run(ctx, 3); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("%v", err)
	}
}

func TestConnResults(t *testing.T) {
	margay := &connLane{rates: []float64{60, 90, 80}, took: []float64{1, 2, 3, 4}, retransmits: 7}
	kernel := &connLane{rates: []float64{100, 100, 100}, took: []float64{1, 1, 1, 2}}
	got := map[string]Result{}
	for _, r := range connResults(margay, kernel) {
		got[r.Name] = r
	}
	if r := got["conn.per_s"]; r.Value != 80 || r.Min != 60 || r.Max != 90 || r.Runs != 3 {
		t.Errorf("%+v", r)
	}
	if r := got["conn.vs_kernel"]; r.Value != 0.8 || r.Ratio != 0.8 || r.RatioTo != "conn.nocode_per_s" || r.Min != 0.6 || r.Max != 0.9 {
		t.Errorf("%+v", r)
	}
	if got["conn.p50_us"].Value != 2 || got["conn.p99_us"].Value != 4 || got["conn.retransmits"].Value != 7 || got["conn.nocode_p99_us"].Value != 2 {
		t.Errorf("%+v", got)
	}
	if n, err := retransmitted(); err != nil || n < 0 {
		t.Errorf("%d, %v", n, err)
	}
}
