package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
)

// ReadMisses appends held packets to misses, up to its capacity (at least one). It waits for the first until deadline
// (the zero Time: for ever) and takes the rest without waiting. At the deadline it returns what it has, with no error;
// after Close, ErrClosed.
func (d *Datapath) ReadMisses(misses []Miss, deadline time.Time) ([]Miss, error) {
	d.ring.SetDeadline(deadline)
	for {
		err := d.ring.ReadInto(&d.record)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, ringbuf.ErrFlushed):
			return misses, nil
		case errors.Is(err, ringbuf.ErrClosed):
			return misses, ErrClosed
		case err != nil:
			return misses, fmt.Errorf("reading held packets: %w", err)
		}
		m, err := decodeMiss(d.record.RawSample)
		if err != nil {
			return misses, err
		}
		misses = append(misses, m)
		if d.record.Remaining == 0 || len(misses) >= cap(misses) {
			return misses, nil
		}
	}
}

// decodeMiss copies a record of the ring buffer.
func decodeMiss(record []byte) (Miss, error) {
	const header = int(unsafe.Sizeof(programMiss{}))
	if len(record) < header {
		return Miss{}, fmt.Errorf("held packet: a record of %d octets, need %d", len(record), header)
	}
	p := *(*programMiss)(unsafe.Pointer(unsafe.SliceData(record)))
	if int(p.Length) > len(record)-header {
		return Miss{}, fmt.Errorf("held packet: a frame of %d octets in a record of %d", p.Length, len(record))
	}
	return Miss{
		Key: decodeKey(&p.Key), Service: p.Service, Interface: int(p.Ingress), VLAN: p.Vlan, TCPFlags: p.TcpFlags,
		Over: p.Over != 0, Received: int64(p.Received),
		Frame: append([]byte(nil), record[header:header+int(p.Length)]...),
	}, nil
}

// What the program looks for on the release port (layout.h): an Ethernet header of the local experimental type, a magic
// number, the interface index.
const (
	releaseEthertype = 0x88b5
	releaseMagic     = 0x4d47
)

// ReleaseFrame appends to dst the frame that makes the program take up a held packet again, to be sent as it is on the
// other end of the private veth: a header that names the interface that the packet came in on, and the packet.
func ReleaseFrame(dst []byte, interfaceIndex int, frame []byte) []byte {
	dst = append(dst, make([]byte, 12)...) // both Ethernet addresses; the program does not read them
	dst = binary.BigEndian.AppendUint16(dst, releaseEthertype)
	dst = binary.BigEndian.AppendUint16(dst, releaseMagic)
	dst = binary.BigEndian.AppendUint32(dst, uint32(interfaceIndex))
	return append(dst, frame...)
}
