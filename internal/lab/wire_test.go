package lab_test

import (
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/capture"
)

// record captures at an interface of a node until the test ends.
func record(t *testing.T, l *lab.Lab, node, iface string) *capture.Capture {
	t.Helper()
	var c *capture.Capture
	in(t, l, node, func() (err error) { c, err = capture.Open(iface); return err })
	t.Cleanup(func() { c.Close() })
	return c
}

// TestPacketsAreOnTheWireAsTheyWereSent moves a stream that any offload would join into larger pieces.
func TestPacketsAreOnTheWireAsTheyWereSent(t *testing.T) {
	l := up(t, lab.ServicesAlone)
	at := []*capture.Capture{record(t, l, "A", "eth0"), record(t, l, "EF-1", "svc0")}
	if _, body, err := get(l, "EF-1", "http://198.51.100.11:443/bytes/3000000"); err != nil || len(body) != 3000000 {
		t.Fatalf("%d octets, %v", len(body), err)
	}
	for i, c := range at {
		largest := 0
		for _, f := range c.Frames() {
			largest = max(largest, len(f.Octets))
		}
		if largest != 1514 {
			t.Errorf("capture %d: the largest frame has %d octets, want 1514", i, largest)
		}
	}
}

// TestRedirectedFramesArrive has XDP on IF-1 redirect what comes from the client to the core, as the data plane does.
func TestRedirectedFramesArrive(t *testing.T) {
	l := up(t, lab.NetworkAlone)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	in(t, l, "client", func() error { return ping("192.0.2.1") }) // resolve the neighbour first
	in(t, l, "IF-1", func() error {
		client, err := net.InterfaceByName("client0")
		if err != nil {
			return err
		}
		core, err := net.InterfaceByName("core1")
		if err != nil {
			return err
		}
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, int32(core.Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		}})
		if err != nil {
			return err
		}
		defer prog.Close()
		attached, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: client.Index, Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { attached.Close() })
		}
		return err
	})
	far := record(t, l, "R1", "if1")
	in(t, l, "client", func() error {
		c, err := net.Dial("udp", "192.0.2.1:9")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("redirect me"))
		return err
	})
	eventually(t, "the redirected frame reaches R1", func() bool {
		for _, p := range far.Packets() {
			if string(p.Payload) == "redirect me" {
				return true
			}
		}
		return false
	})
}
