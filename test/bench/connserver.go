package main

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// server answers each connection's request, and ends it when the client does.
type server struct {
	epoll    int
	listener int
	stop     int // event descriptor
	pending  map[int32]*inbound
	served   atomic.Int64 // requests
	done     chan error
}

// inbound is one connection at the server.
type inbound struct {
	fd       int
	got      int
	buffer   [responseOctets]byte
	answered bool
}

// serve listens until close, in the network namespace that enter runs a function in.
func serve(enter func(func() error) error, at netip.AddrPort) (*server, error) {
	s := &server{epoll: -1, listener: -1, stop: -1, pending: map[int32]*inbound{}, done: make(chan error, 1)}
	if err := enter(func() error { return s.listen(at) }); err != nil {
		return nil, errors.Join(fmt.Errorf("server at %s: %w", at, err), s.release())
	}
	go func() { s.done <- s.run() }()
	return s, nil
}

func (s *server) listen(at netip.AddrPort) (err error) {
	if s.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	if err = unix.SetsockoptInt(s.listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err = unix.Bind(s.listener, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); err != nil {
		return err
	}
	if err = unix.Listen(s.listener, 4096); err != nil {
		return err
	}
	if s.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return err
	}
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	for _, fd := range []int{s.listener, s.stop} {
		err = errors.Join(err, unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
	}
	return err
}

// close ends the server and waits for it.
func (s *server) close() error {
	_, err := unix.Write(s.stop, []byte{0, 0, 0, 0, 0, 0, 0, 1})
	return errors.Join(err, <-s.done, s.release())
}

func (s *server) release() error {
	var failed []error
	for _, c := range s.pending {
		failed = append(failed, unix.Close(c.fd))
	}
	for _, fd := range []int{s.epoll, s.listener, s.stop} {
		if fd >= 0 {
			failed = append(failed, unix.Close(fd))
		}
	}
	return errors.Join(failed...)
}

func (s *server) run() error {
	events := make([]unix.EpollEvent, 512)
	for {
		n, err := unix.EpollWait(s.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("server: epoll: %w", err)
		}
		for _, e := range events[:max(0, n)] {
			switch int(e.Fd) {
			case s.stop:
				return nil
			case s.listener:
				err = s.accept()
			default:
				s.advance(s.pending[e.Fd])
			}
			if err != nil {
				return fmt.Errorf("server: %w", err)
			}
		}
	}
}

func (s *server) accept() error {
	for {
		fd, _, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("accepting: %w", err)
		}
		s.pending[int32(fd)] = &inbound{fd: fd}
		if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
	}
}

// advance reads of a connection, answers a whole request, and ends the connection with the client's end. What fails here
// is the client's to find out.
func (s *server) advance(c *inbound) {
	n, err := unix.Read(c.fd, c.buffer[c.got:requestOctets+1])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return
	case err != nil || n == 0 || c.answered:
		delete(s.pending, int32(c.fd))
		_ = unix.Close(c.fd)
		return
	}
	if c.got += n; c.got < requestOctets {
		return
	}
	c.answered = true
	s.served.Add(1)
	_, _ = unix.Write(c.fd, c.buffer[:responseOctets])
}
