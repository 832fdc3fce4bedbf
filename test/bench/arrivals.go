package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab"
)

// flow is a UDP socket at the client, connected to the service: answers from any other address never reach it.
type flow struct{ fd int }

type flows []flow

func (f flows) close() {
	for _, s := range f {
		_ = unix.Close(s.fd) // nothing is lost with it
	}
}

// openFlows opens n flows at the client, with source ports from port on.
func (l *lane) openFlows(port, n int) (all flows, err error) {
	node, err := l.lab.Node("client")
	if err != nil {
		return nil, err
	}
	err = node.Do(func() error {
		for i := range n {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("socket of a flow: %w", err)
			}
			all = append(all, flow{fd})
			err = errors.Join(
				unix.Bind(fd, &unix.SockaddrInet4{Addr: client.Addr().As4(), Port: port + i}),
				unix.Connect(fd, &unix.SockaddrInet4{Addr: service.Addr().As4(), Port: int(service.Port())}),
			)
			if err != nil {
				return fmt.Errorf("flow from port %d: %w", port+i, err)
			}
		}
		return nil
	})
	if err != nil {
		all.close()
		return nil, err
	}
	return all, nil
}

// awaitReply takes one answer of the service.
func (f flow) awaitReply(limit time.Duration) error {
	ready, err := poll([]unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLIN}}, time.Now().Add(limit))
	if err != nil {
		return err
	}
	if !ready {
		return fmt.Errorf("no answer from %s within %s", service, limit)
	}
	var buffer [256]byte
	if _, err := unix.Read(f.fd, buffer[:]); err != nil {
		return fmt.Errorf("answer from %s: %w", service, err)
	}
	return nil
}

// arrivals sees what reaches the instances, each packet with the time at which the kernel there received it.
type arrivals struct {
	polled []unix.PollFd // packet sockets
	serial uint64        // of the last packet sent
}

// openArrivals watches instances of a lab.
func openArrivals(l *lab.Lab, instances ...string) (*arrivals, error) {
	a := &arrivals{}
	for _, name := range instances {
		n, err := l.Node(name)
		if err == nil {
			err = n.Do(a.open)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watching instance %s: %w", name, err), a.close())
		}
	}
	return a, nil
}

// open adds the network namespace of this thread.
func (a *arrivals) open() error {
	const protocol = unix.ETH_P_IP<<8 | unix.ETH_P_IP>>8 // network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	a.polled = append(a.polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
	)
}

func (a *arrivals) close() error {
	var errs []error
	for _, p := range a.polled {
		errs = append(errs, unix.Close(int(p.Fd)))
	}
	return errors.Join(errs...)
}

// measure sends one packet on a flow and gives the time until it reached an instance.
func (a *arrivals) measure(f flow, limit time.Duration) (time.Duration, error) {
	a.serial++
	var payload [payloadOctets]byte
	binary.BigEndian.PutUint64(payload[:], a.serial)
	sent := time.Now()
	if _, err := unix.Write(f.fd, payload[:]); err != nil {
		return 0, fmt.Errorf("sending: %w", err)
	}
	for deadline := sent.Add(limit); ; {
		ready, err := poll(a.polled, deadline)
		if err != nil {
			return 0, err
		}
		if !ready {
			return 0, fmt.Errorf("a packet to %s reached no instance within %s", service, limit)
		}
		for _, p := range a.polled {
			for {
				at, serial, more, err := receive(int(p.Fd))
				if err != nil {
					return 0, err
				}
				if serial == a.serial {
					return time.Duration(at - sent.UnixNano()), nil
				}
				if !more {
					break
				}
			}
		}
	}
}

// poll waits until something can be read, or the deadline.
func poll(fds []unix.PollFd, deadline time.Time) (ready bool, err error) {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false, nil
		}
		timeout := unix.NsecToTimespec(int64(left))
		n, err := unix.Ppoll(fds, &timeout, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("waiting for packets: %w", err)
		}
		return n > 0, nil
	}
}

// receive takes one packet off a packet socket: when the kernel received it (CLOCK_REALTIME, ns), and its serial number,
// 0 if it is none of ours. More is false when nothing was there.
func receive(fd int) (at int64, serial uint64, more bool, err error) {
	var packet, control [256]byte
	n, controls, _, _, err := unix.Recvmsg(fd, packet[:], control[:], 0)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, false, fmt.Errorf("receiving: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	if err != nil {
		return 0, 0, false, fmt.Errorf("time of receipt: %w", err)
	}
	for _, m := range messages {
		if m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			at = (*unix.Timespec)(unsafe.Pointer(&m.Data[0])).Nano()
		}
	}
	serial = serialOf(packet[:n])
	if serial != 0 && at == 0 {
		return 0, 0, false, errors.New("the kernel gave no time of receipt")
	}
	return at, serial, true, nil
}

// serialOf reads the serial number of an IPv4 packet to the instances' UDP port.
func serialOf(packet []byte) uint64 {
	if len(packet) < 28+8 || packet[0] != 0x45 || packet[9] != unix.IPPROTO_UDP {
		return 0
	}
	if binary.BigEndian.Uint16(packet[22:]) != instance.Port() {
		return 0
	}
	return binary.BigEndian.Uint64(packet[28:])
}
