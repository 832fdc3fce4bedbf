package capture

import (
	"fmt"
	"io"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Pcap writes frames to a capture file as they come.
type Pcap struct {
	plain *pcapgo.Writer
	next  *pcapgo.NgWriter
}

const snapLength = 1 << 16

// NewPcap begins a pcap file; it does not say which frame is of which point.
func NewPcap(w io.Writer) (*Pcap, error) {
	p := &Pcap{plain: pcapgo.NewWriterNanos(w)}
	if err := p.plain.WriteFileHeader(snapLength, layers.LinkTypeEthernet); err != nil {
		return nil, fmt.Errorf("capture file: %w", err)
	}
	return p, nil
}

// NewPcapNG begins a pcapng file, in which every point is an interface with its name.
func NewPcapNG(w io.Writer, points []Point) (*Pcap, error) {
	p := &Pcap{}
	for i, at := range points {
		face := pcapgo.NgInterface{Name: at.Name, LinkType: layers.LinkTypeEthernet, SnapLength: snapLength, TimestampResolution: 9}
		var err error
		if i == 0 {
			p.next, err = pcapgo.NewNgWriterInterface(w, face, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "margay lab capture"}})
		} else {
			_, err = p.next.AddInterface(face)
		}
		if err != nil {
			return nil, fmt.Errorf("capture file: %w", err)
		}
	}
	return p, nil
}

// Write adds a frame of a point. It is in the file when Write returns.
func (p *Pcap) Write(point int, f Frame) error {
	info := gopacket.CaptureInfo{Timestamp: f.At, CaptureLength: len(f.Octets), Length: len(f.Octets)}
	var err error
	if p.plain != nil {
		err = p.plain.WritePacket(info, f.Octets)
	} else {
		info.InterfaceIndex = point
		if err = p.next.WritePacket(info, f.Octets); err == nil {
			err = p.next.Flush()
		}
	}
	if err != nil {
		return fmt.Errorf("capture file: %w", err)
	}
	return nil
}
