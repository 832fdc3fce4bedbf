package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// What one connection carries, octets. Both begin with the connection's serial number.
const (
	requestOctets  = 64
	responseOctets = 256
)

// connLimit is how long one connection may take.
const connLimit = 30 * time.Second

// generator opens TCP connections from a set of addresses: each connects, sends a request, takes the response and
// closes. So many are under way at once; when one is done, the next begins. No address and port is used twice.
type generator struct {
	target  netip.AddrPort
	sources []netip.Addr
	window  int
	port    int // of the first connection of each source; 0: the kernel chooses
	serial  int // of the next connection; decides its address and port
	epoll   int
	open    map[int32]*outbound // by descriptor
	free    []*outbound
	failed  int   // connections
	first   error // of them
	took    []float64
}

// outbound is one connection.
type outbound struct {
	fd     int
	serial uint64
	begun  time.Time
	sent   bool
	got    int
	buffer [responseOctets]byte
}

// newGenerator makes a generator. It must be called, and run, on a thread inside the client's namespace.
func newGenerator(target netip.AddrPort, sources []netip.Addr, window, port int) (*generator, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &generator{target: target, sources: sources, window: window, port: port, epoll: epoll, open: map[int32]*outbound{}}, nil
}

func (g *generator) close() error {
	for _, x := range g.open {
		_ = unix.Close(x.fd) // nothing is lost with it
	}
	return unix.Close(g.epoll)
}

// run makes n connections and gives how long each took, µs. It is an error if one of them fails.
func (g *generator) run(ctx context.Context, n int) (took []float64, err error) {
	g.took, g.failed, g.first = make([]float64, 0, n), 0, nil
	events := make([]unix.EpollEvent, 512)
	begun, checked := 0, time.Now()
	for len(g.took)+g.failed < n {
		for begun < n && len(g.open) < g.window {
			begun++
			if err := g.begin(); err != nil {
				return nil, err
			}
		}
		ready, err := unix.EpollWait(g.epoll, events, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:max(0, ready)] {
			g.advance(g.open[e.Fd])
		}
		if time.Since(checked) > time.Second {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			g.expire()
			checked = time.Now()
		}
	}
	if g.failed > 0 {
		return nil, fmt.Errorf("%d of %d connections were lost; the first: %w", g.failed, n, g.first)
	}
	return g.took, nil
}

// begin starts the next connection.
func (g *generator) begin() error {
	source := g.sources[g.serial%len(g.sources)]
	port := g.port
	if port > 0 {
		if port += g.serial / len(g.sources); port > 65_535 {
			return errors.New("no source ports are left")
		}
	}
	g.serial++
	x := &outbound{}
	if last := len(g.free) - 1; last >= 0 {
		x, g.free = g.free[last], g.free[:last]
		*x = outbound{}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	x.fd, x.serial, x.begun = fd, uint64(g.serial), time.Now()
	g.open[int32(fd)] = x
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: source.As4(), Port: port}); err != nil {
		return fmt.Errorf("connection from %s, port %d: %w", source, port, err)
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: g.target.Addr().As4(), Port: int(g.target.Port())})
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connection from %s, port %d: %w", source, port, err)
	}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// advance does what a connection is ready for.
func (g *generator) advance(x *outbound) {
	var err error
	if !x.sent {
		err = g.request(x)
	} else {
		err = g.response(x)
	}
	if err != nil {
		g.fail(x, err)
	}
}

func (g *generator) request(x *outbound) error {
	code, err := unix.GetsockoptInt(x.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	binary.BigEndian.PutUint64(x.buffer[:], x.serial)
	if n, err := unix.Write(x.fd, x.buffer[:requestOctets]); n != requestOctets {
		return fmt.Errorf("sending the request: %d octets, %w", n, err)
	}
	x.sent = true
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_MOD, x.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(x.fd)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

func (g *generator) response(x *outbound) error {
	n, err := unix.Read(x.fd, x.buffer[x.got:])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("receiving the response: %w", err)
	case n == 0:
		return fmt.Errorf("the response ends after %d octets", x.got)
	}
	if x.got += n; x.got < responseOctets {
		return nil
	}
	if answered := binary.BigEndian.Uint64(x.buffer[:]); answered != x.serial {
		return fmt.Errorf("request %d is answered by the response to %d", x.serial, answered)
	}
	g.took = append(g.took, float64(time.Since(x.begun))/float64(time.Microsecond))
	g.end(x)
	return nil
}

func (g *generator) fail(x *outbound, err error) {
	if g.first == nil {
		g.first = fmt.Errorf("connection %d, after %s: %w", x.serial, time.Since(x.begun).Round(time.Millisecond), err)
	}
	g.failed++
	g.end(x)
}

func (g *generator) end(x *outbound) {
	delete(g.open, int32(x.fd))
	_ = unix.Close(x.fd) // everything was read; the kernel ends the connection
	g.free = append(g.free, x)
}

func (g *generator) expire() {
	for _, x := range g.open {
		if time.Since(x.begun) > connLimit {
			g.fail(x, fmt.Errorf("not done after %s", connLimit))
		}
	}
}
