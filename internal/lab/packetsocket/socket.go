// Package packetsocket reads and writes whole Ethernet frames of an interface (packet(7)), many at a call. Each frame
// that is read has the time at which the kernel took it, and the VLAN tag that the kernel strips is put back.
package packetsocket

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options of a socket.
type Options struct {
	Buffer         int  // octets that may wait to be read
	IgnoreOutgoing bool // read only what comes in
}

// Open gives a socket of an interface, which does not block. It must be called from a thread inside the interface's
// network namespace; the socket can be used from anywhere.
func Open(name string, o Options) (fd int, err error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	const protocol = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // network order
	// Without a protocol it receives nothing until it is bound, or else it began with frames of all interfaces.
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("packet socket on %s: %w", name, err)
	}
	for _, s := range []struct{ level, option, value int }{
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, o.Buffer},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
		{unix.SOL_PACKET, unix.PACKET_AUXDATA, 1},
	} {
		err = errors.Join(err, unix.SetsockoptInt(fd, s.level, s.option, s.value))
	}
	if o.IgnoreOutgoing {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
	}
	err = errors.Join(err, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index}))
	if err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("packet socket on %s: %w", name, err)
	}
	return fd, nil
}

// OpenToWrite is Open for a socket that receives nothing.
func OpenToWrite(name string) (fd int, err error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("packet socket on %s: %w", name, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("packet socket on %s: %w", name, err)
	}
	return fd, nil
}

// Gone tells whether the interface of a socket was removed.
func Gone(fd int) bool {
	name, err := unix.Getsockname(fd)
	link, ok := name.(*unix.SockaddrLinklayer)
	return err != nil || !ok || link.Ifindex <= 0
}

// Missed gives how many frames the kernel could not keep for want of room since the last call.
func Missed(fd int) (uint64, error) {
	s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("statistics of a packet socket: %w", err)
	}
	return uint64(s.Drops), nil
}

// message is struct mmsghdr of recvmmsg(2).
type message struct {
	header unix.Msghdr
	length uint32
}

// tagOctets is the length of a VLAN tag; it goes behind the two addresses.
const (
	tagOctets     = 4
	addressOctets = 12
	controlOctets = 128 // for a time and auxiliary data
)

// Reader reads frames in batches into memory of its own.
type Reader struct {
	messages []message
	vectors  []unix.Iovec
	from     []unix.RawSockaddrLinklayer
	memory   [][]byte // one a frame, with room for a tag in front
	control  [][controlOctets]byte
}

// NewReader makes a reader of at most so many frames at once, each of at most so many octets; longer ones are cut.
func NewReader(frames, octets int) *Reader {
	r := &Reader{
		messages: make([]message, frames), vectors: make([]unix.Iovec, frames), from: make([]unix.RawSockaddrLinklayer, frames),
		memory: make([][]byte, frames), control: make([][controlOctets]byte, frames),
	}
	for i := range r.messages {
		r.memory[i] = make([]byte, tagOctets+octets)
		r.vectors[i].Base = &r.memory[i][tagOctets]
		r.vectors[i].SetLen(octets)
		h := &r.messages[i].header
		h.Iov, h.Control, h.Name = &r.vectors[i], &r.control[i][0], (*byte)(unsafe.Pointer(&r.from[i]))
		h.SetIovlen(1)
	}
	return r
}

// Read gives how many frames it has read; unix.EAGAIN if there is none.
func (r *Reader) Read(fd int) (frames int, err error) {
	for i := range r.messages {
		h := &r.messages[i].header
		h.Namelen, h.Flags = uint32(unsafe.Sizeof(r.from[i])), 0
		h.SetControllen(controlOctets)
	}
	n, _, failed := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.messages[0])),
		uintptr(len(r.messages)), unix.MSG_DONTWAIT, 0, 0)
	if failed != 0 {
		return 0, failed
	}
	return int(n), nil
}

// Frame is one frame; its octets are valid until the reader's next Read.
type Frame struct {
	At       int64 // when the kernel took it, ns since the Unix epoch
	Outgoing bool
	Octets   []byte
}

// Frame gives a frame of the last Read.
func (r *Reader) Frame(i int) Frame {
	m := &r.messages[i]
	f := Frame{Outgoing: r.from[i].Pkttype == unix.PACKET_OUTGOING, Octets: r.memory[i][tagOctets : tagOctets+int(m.length)]}
	var auxiliary unix.TpacketAuxdata
	for rest := r.control[i][:m.header.Controllen]; len(rest) >= unix.SizeofCmsghdr; {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&rest[0]))
		if int(c.Len) < unix.SizeofCmsghdr || int(c.Len) > len(rest) {
			break
		}
		body := rest[unix.CmsgLen(0):c.Len]
		switch {
		case c.Level == unix.SOL_SOCKET && c.Type == unix.SCM_TIMESTAMPNS && len(body) >= int(unsafe.Sizeof(unix.Timespec{})):
			f.At = (*unix.Timespec)(unsafe.Pointer(&body[0])).Nano()
		case c.Level == unix.SOL_PACKET && c.Type == unix.PACKET_AUXDATA && len(body) >= int(unsafe.Sizeof(auxiliary)):
			auxiliary = *(*unix.TpacketAuxdata)(unsafe.Pointer(&body[0]))
		}
		rest = rest[min(len(rest), unix.CmsgSpace(len(body))):]
	}
	if auxiliary.Status&unix.TP_STATUS_VLAN_VALID != 0 && m.length >= addressOctets {
		f.Octets = r.tagged(i, auxiliary)
	}
	return f
}

// tagged puts the tag of a frame back.
func (r *Reader) tagged(i int, a unix.TpacketAuxdata) []byte {
	all := r.memory[i][:tagOctets+int(r.messages[i].length)]
	protocol := uint16(unix.ETH_P_8021Q)
	if a.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		protocol = a.Vlan_tpid
	}
	copy(all, all[tagOctets:tagOctets+addressOctets])
	tag := all[addressOctets:]
	tag[0], tag[1], tag[2], tag[3] = byte(protocol>>8), byte(protocol), byte(a.Vlan_tci>>8), byte(a.Vlan_tci)
	return all
}

// Writer writes frames in batches.
type Writer struct {
	messages []message
	vectors  []unix.Iovec
}

// NewWriter makes a writer of at most so many frames at once.
func NewWriter(frames int) *Writer {
	w := &Writer{messages: make([]message, frames), vectors: make([]unix.Iovec, frames)}
	for i := range w.messages {
		w.messages[i].header.Iov = &w.vectors[i]
		w.messages[i].header.SetIovlen(1)
	}
	return w
}

// Write sends frames, none of which is empty, and gives how many the kernel refused: too long, no room, or the interface
// is down.
func (w *Writer) Write(fd int, frames [][]byte) (refused int) {
	for len(frames) > 0 {
		n := min(len(frames), len(w.messages))
		for i, f := range frames[:n] {
			w.vectors[i].Base = &f[0]
			w.vectors[i].SetLen(len(f))
		}
		sent, _, failed := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&w.messages[0])),
			uintptr(n), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case failed == unix.EINTR:
			continue
		case failed != 0: // the first of them
			refused++
			sent = 1
		}
		frames = frames[sent:]
	}
	return refused
}
