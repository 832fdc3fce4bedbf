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
	"sync"
	"time"
)

// maxFrames bounds the memory of one capture.
const maxFrames = 1 << 20

// Frame is one captured frame with the direction in which it passed the interface.
type Frame struct {
	At       time.Time // when the kernel took it
	Outgoing bool
	Octets   []byte // with VLAN tags
}

// Capture is a running recording of one interface.
type Capture struct {
	recorder *recorder

	mu     sync.Mutex
	frames []Frame // guarded by mu
}

// Open starts recording the interface. It must be called from a thread inside the interface's network namespace; what
// it returns can be used from anywhere.
func Open(name string) (*Capture, error) {
	c := &Capture{}
	r, err := record(name, 64<<20, c.keep)
	if err != nil {
		return nil, err
	}
	c.recorder = r
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
	missed, err := c.recorder.close()
	if missed > 0 {
		err = errors.Join(err, fmt.Errorf("capture on %s: %d frames were missed: they came faster than they could be read", c.recorder.name, missed))
	}
	return err
}

// WritePcap writes what was recorded so far as a pcap file.
func (c *Capture) WritePcap(w io.Writer) error {
	out, err := NewPcap(w)
	if err != nil {
		return err
	}
	for _, f := range c.Frames() {
		if err := out.Write(0, f); err != nil {
			return err
		}
	}
	return nil
}

func (c *Capture) keep(f Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.frames) == maxFrames {
		return fmt.Errorf("more than %d frames", maxFrames)
	}
	c.frames = append(c.frames, f)
	return nil
}

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
