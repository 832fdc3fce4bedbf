// Package capture records what really passes an interface, through a packet socket, and reads it with a parser of its
// own, so that tests and the demonstration judge the data plane by the wire and not by the code that wrote the packet.
//
// A frame that XDP redirects is never shown to a packet socket on the interface where XDP took it: capture at the peer.
package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"
)

// maxFrames bounds the memory of one capture.
const maxFrames = 1 << 20

// Frame is one captured frame with the direction in which it passed the interface.
type Frame struct {
	At       time.Time
	Outgoing bool
	Octets   []byte
}

// Capture is a running recording of one interface.
type Capture struct {
	name string
	file *os.File
	done chan struct{}

	mu      sync.Mutex
	frames  []Frame // guarded by mu
	closing bool    // guarded by mu
	err     error   // guarded by mu
}

// Open starts recording the interface. It must be called from a thread inside the interface's network namespace; what
// it returns can be used from anywhere.
func Open(name string) (*Capture, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("capture on %s: %w", name, err)
	}
	const protocol = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("capture on %s: packet socket: %w", name, err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("capture on %s: %w", name, err)
	}
	c := &Capture{name: name, file: os.NewFile(uintptr(fd), "capture "+name), done: make(chan struct{})}
	go c.record()
	return c, nil
}

// Frames gives what was recorded so far, in the order of arrival.
func (c *Capture) Frames() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Frame(nil), c.frames...)
}

// Packets reads what was recorded so far; frames that carry no IP packet (ARP …) are left out.
func (c *Capture) Packets() []Packet {
	var packets []Packet
	for _, f := range c.Frames() {
		if p, err := Parse(f.Octets); err == nil {
			p.At, p.Outgoing = f.At, f.Outgoing
			packets = append(packets, p)
		}
	}
	return packets
}

// Close ends the recording and waits for it. The error tells whether anything was missed.
func (c *Capture) Close() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	err := c.file.Close()
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(err, c.err)
}

// WritePcap writes what was recorded so far as a pcap file.
func (c *Capture) WritePcap(w io.Writer) error {
	out := pcapgo.NewWriter(w)
	if err := out.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		return err
	}
	for _, f := range c.Frames() {
		info := gopacket.CaptureInfo{Timestamp: f.At, CaptureLength: len(f.Octets), Length: len(f.Octets)}
		if err := out.WritePacket(info, f.Octets); err != nil {
			return err
		}
	}
	return nil
}

func (c *Capture) record() {
	defer close(c.done)
	raw, err := c.file.SyscallConn()
	if err != nil {
		c.fail(err)
		return
	}
	buffer := make([]byte, 1<<16)
	for {
		var n int
		var from unix.Sockaddr
		var received error
		err := raw.Read(func(fd uintptr) bool {
			n, from, received = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
			return received != unix.EAGAIN
		})
		switch {
		case err != nil: // the file is closed
			c.fail(err)
			return
		case received == unix.ENETDOWN || received == unix.EINTR:
			continue // the interface may come back
		case received != nil:
			c.fail(received)
			return
		}
		link, _ := from.(*unix.SockaddrLinklayer)
		f := Frame{At: time.Now(), Octets: append([]byte(nil), buffer[:n]...)}
		f.Outgoing = link != nil && link.Pkttype == unix.PACKET_OUTGOING
		if !c.keep(f) {
			c.fail(fmt.Errorf("capture on %s: more than %d frames", c.name, maxFrames))
			return
		}
	}
}

func (c *Capture) keep(f Frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.frames) == maxFrames {
		return false
	}
	c.frames = append(c.frames, f)
	return true
}

// fail keeps why the recording ended, unless Close ended it.
func (c *Capture) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		c.err = err
	}
}

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
