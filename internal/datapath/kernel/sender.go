package kernel

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// senderBatch is how many frames go to the kernel in one call.
const senderBatch = 64

// sender writes Ethernet frames to one interface with AF_PACKET and sendmmsg. One goroutine at a time may use it.
type sender struct {
	fd       int
	headers  [senderBatch]mmsghdr
	vectors  [senderBatch]unix.Iovec
	unsent   int
	firstErr error
}

// mmsghdr is struct mmsghdr of <sys/socket.h>.
type mmsghdr struct {
	header unix.Msghdr
	length uint32
}

func newSender(index int) (*sender, error) {
	// Protocol 0: the socket only sends, nothing is queued on it.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	s := &sender{fd: fd}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket: bind to interface %d: %w", index, err)
	}
	for i := range s.headers {
		s.headers[i].header.Iov = &s.vectors[i]
		s.headers[i].header.SetIovlen(1)
	}
	return s, nil
}

// close may be called again: the descriptor's number could be someone else's by then.
func (s *sender) close() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}

func (s *sender) send(frames [][]byte) error {
	s.unsent, s.firstErr = 0, nil
	total := len(frames)
	for len(frames) > 0 {
		n := min(len(frames), senderBatch)
		s.sendBatch(frames[:n])
		frames = frames[n:]
	}
	if s.unsent > 0 {
		return fmt.Errorf("release: %d of %d frames not sent: %w", s.unsent, total, s.firstErr)
	}
	return nil
}

// sendBatch sends up to senderBatch frames. The kernel stops at the first that fails; that one is skipped.
func (s *sender) sendBatch(frames [][]byte) {
	for i, f := range frames {
		s.vectors[i].Base = unsafe.SliceData(f)
		s.vectors[i].SetLen(len(f))
	}
	for done := 0; done < len(frames); {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.headers[done])),
			uintptr(len(frames)-done), 0, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			s.unsent++
			if s.firstErr == nil {
				s.firstErr = sendError(errno, len(frames[done]))
			}
			done++
		default:
			done += int(n)
		}
	}
	runtime.KeepAlive(frames)
	for i := range frames {
		s.vectors[i].Base = nil // the frames are the caller's again
	}
}

func sendError(errno unix.Errno, length int) error {
	switch {
	case errors.Is(errno, unix.EMSGSIZE):
		return fmt.Errorf("frame of %d octets is larger than the pair's MTU: %w", length, errno)
	case errors.Is(errno, unix.ENETDOWN), errors.Is(errno, unix.ENXIO), errors.Is(errno, unix.ENODEV):
		return fmt.Errorf("the pair is down or was removed; restart the forwarder: %w", errno)
	}
	return errno
}
