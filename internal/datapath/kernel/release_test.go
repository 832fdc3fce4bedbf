package kernel_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/datapath/kernel"
	"github.com/margay-net/margay/internal/lab/namespace"
)

func openRelease(t *testing.T, n *namespace.Namespace, c kernel.ReleaseConfig) *kernel.Release {
	t.Helper()
	var r *kernel.Release
	in(t, n, func() (err error) { r, err = kernel.OpenRelease(c); return err })
	t.Cleanup(func() { r.Close() })
	return r
}

// listen opens a packet socket on an interface; every frame that the interface receives comes out of it.
func listen(t *testing.T, n *namespace.Namespace, index int) int {
	t.Helper()
	var fd int
	in(t, n, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		const all = 0x0300 // ETH_P_ALL in network order
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index, Protocol: all})
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func frame(n, length int) []byte {
	f := make([]byte, length)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5})
	copy(f[14:], fmt.Sprintf("frame %d", n))
	return f
}

func TestReleaseDeliversEveryFrameInOrder(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, "rel")
	r := openRelease(t, n, releaseNames)
	fd := listen(t, n, r.ProgramIndex)
	var frames [][]byte
	for i := range 150 { // more than two batches
		frames = append(frames, frame(i, 60+i*20))
	}
	if err := r.Send(frames); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10000)
	for i, want := range frames {
		got, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if at, ok := from.(*unix.SockaddrLinklayer); !ok || at.Pkttype != unix.PACKET_HOST {
			t.Fatalf("frame %d is not for this host, so that the kernel would not forward it: %+v", i, from)
		}
		if !bytes.Equal(buf[:got], want) {
			t.Fatalf("frame %d: got %d octets % x, want %d octets % x", i, got, buf[:min(got, 40)], len(want), want[:40])
		}
	}
}

func TestReleaseSkipsAFrameThatCannotBeSent(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, "rel")
	r := openRelease(t, n, releaseNames)
	fd := listen(t, n, r.ProgramIndex)
	err := r.Send([][]byte{frame(0, 60), frame(1, kernel.ReleaseMTU+100), frame(2, 60)})
	if !errors.Is(err, unix.EMSGSIZE) || !strings.Contains(err.Error(), "1 of 3") {
		t.Errorf("error %v, want 1 of 3 refused as too long", err)
	}
	buf := make([]byte, 10000)
	for _, want := range []string{"frame 0", "frame 2"} {
		got, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil || !strings.HasPrefix(string(buf[14:got]), want) {
			t.Errorf("received %q, %v; want %s", buf[14:got], err, want)
		}
	}
}

func TestReleaseSurvivesARestart(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, "rel")
	first := openRelease(t, n, releaseNames)
	detach := attachXDP(t, n, first.ProgramIndex)
	defer detach()
	first.Close()
	second := openRelease(t, n, releaseNames)
	if second.ProgramIndex != first.ProgramIndex || second.SendIndex != first.SendIndex {
		t.Errorf("indexes %d, %d became %d, %d", first.ProgramIndex, first.SendIndex, second.ProgramIndex, second.SendIndex)
	}
	in(t, n, func() error {
		l, err := netlink.LinkByIndex(second.ProgramIndex)
		if err == nil && (l.Attrs().Xdp == nil || !l.Attrs().Xdp.Attached) {
			t.Error("the XDP program is gone")
		}
		return err
	})
	for range 2 {
		in(t, n, func() error { return kernel.RemoveRelease(releaseNames) })
	}
	in(t, n, func() error {
		links, err := netlink.LinkList()
		if len(links) != 1 {
			t.Errorf("after RemoveRelease %d interfaces, want lo alone", len(links))
		}
		return err
	})
}

// attachXDP attaches a program that passes everything, natively: it fails if the pair's MTU does not allow that.
func attachXDP(t *testing.T, n *namespace.Namespace, index int) (detach func()) {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	var l link.Link
	in(t, n, func() (err error) {
		l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: index, Flags: link.XDPDriverMode})
		return err
	})
	return func() { l.Close() }
}

func TestReleaseIsSilent(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, "rel")
	r := openRelease(t, n, releaseNames)
	in(t, n, func() error { return sysctl(map[string]string{"ipv6/conf/all/forwarding": "1"}) })
	for _, index := range []int{r.SendIndex, r.ProgramIndex} {
		in(t, n, func() error {
			l, err := netlink.LinkByIndex(index)
			if err != nil {
				return err
			}
			addrs, err := netlink.AddrList(l, unix.AF_UNSPEC)
			if len(addrs) != 0 {
				t.Errorf("%s has addresses %v", l.Attrs().Name, addrs)
			}
			return err
		})
	}
	// Whatever the kernel would say by itself (DAD, router solicitation, MLD) it says within a second or two.
	fd := listen(t, n, r.ProgramIndex)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 3}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	for start := time.Now(); time.Since(start) < 3*time.Second; {
		got, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			break
		}
		if from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_OUTGOING {
			t.Errorf("the program would see % x", buf[:got])
		}
	}
}

func TestReleaseRefusesWhatIsNotItsPair(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, "rel")
	in(t, n, func() error {
		for _, pair := range [][2]string{{"a0", "a1"}, {"b0", "b1"}} {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = pair[0]
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: pair[1]}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range []struct {
		config kernel.ReleaseConfig
		want   string
	}{
		{kernel.ReleaseConfig{Send: "a0", Program: "b0"}, "not the two ends"},
		{kernel.ReleaseConfig{Send: "a0", Program: "new"}, "only one of"},
		{kernel.ReleaseConfig{Send: "sixteen-octets-x", Program: "new"}, "1 to 15 octets"},
		{kernel.ReleaseConfig{Send: "", Program: "new"}, "1 to 15 octets"},
		{kernel.ReleaseConfig{Send: "same", Program: "same"}, "both ends"},
		{kernel.ReleaseConfig{Send: "x0", Program: "x1", MTU: 100}, "MTU 100"},
	} {
		in(t, n, func() error {
			if r, err := kernel.OpenRelease(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v, %v; want an error with %q", c.config, r, err, c.want)
			}
			return nil
		})
	}
}
