package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/lab/packetsocket"
	"github.com/margay-net/margay/internal/testenv"
)

var serial atomic.Int32

// chain makes namespaces and joins each to the next by a wire: n interfaces "out" of one lead to "in" of the next.
func chain(t *testing.T, n int) []*namespace.Namespace {
	t.Helper()
	testenv.RequireRoot(t)
	var all []*namespace.Namespace
	for i := range n {
		name := fmt.Sprintf("mgyt-capture-%d-%d", os.Getpid(), serial.Add(1))
		ns, err := namespace.New(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close(); namespace.Remove(name) })
		all = append(all, ns)
		do(t, ns, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0) })
		if i == 0 {
			continue
		}
		do(t, ns, func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "in"
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "out", PeerNamespace: netlink.NsFd(all[i-1].Fd())})
		})
		do(t, ns, func() error { return up("in") })
		do(t, all[i-1], func() error { return up("out") })
		do(t, ns, func() error { return carrier("in") })
		do(t, all[i-1], func() error { return carrier("out") })
	}
	return all
}

func do(t *testing.T, n *namespace.Namespace, f func() error) {
	t.Helper()
	if err := n.Do(f); err != nil {
		t.Fatal(err)
	}
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	return err
}

// carrier waits until the kernel has taken note that both ends are up: it drops what is sent before.
func carrier(name string) error {
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
		link, err := netlink.LinkByName(name)
		if err == nil && link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if err != nil || time.Now().After(end) {
			return fmt.Errorf("interface %s does not come up: %w", name, err)
		}
	}
}

// sender gives a function that sends a frame with a number out of an interface, and tells whether that went.
func sender(t *testing.T, n *namespace.Namespace, device string) func(number uint64) bool {
	t.Helper()
	var fd int
	do(t, n, func() (err error) { fd, err = packetsocket.OpenToWrite(device); return err })
	t.Cleanup(func() { unix.Close(fd) })
	w := packetsocket.NewWriter(1)
	return func(number uint64) bool {
		f := make([]byte, 60)
		copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}) // IEEE 802 local experimental
		binary.BigEndian.PutUint64(f[14:], number)
		return w.Write(fd, [][]byte{f}) == 0
	}
}

func numberOf(f Frame) uint64 { return binary.BigEndian.Uint64(f.Octets[14:]) }

// TestLiveMergesByTime sends frames in turn on two wires, and sees each at both ends of its wire, in the order of sending.
func TestLiveMergesByTime(t *testing.T) {
	n := chain(t, 3)
	points := []Point{
		{Name: "second", Interface: "out", Enter: n[1].Do}, {Name: "third", Interface: "in", Enter: n[2].Do},
		{Name: "first", Interface: "in", Enter: n[1].Do, Far: true}, {Name: "second's in", Interface: "in", Enter: n[1].Do},
	}
	const frames = 400
	first, second := sender(t, n[0], "out"), sender(t, n[1], "out")
	go func() {
		// The points may not all be open yet: those that are sent until then do not count.
		for i := range uint64(1 << 20) {
			if t.Context().Err() != nil {
				return
			}
			if i%2 == 0 {
				first(i)
			} else {
				second(i)
			}
			time.Sleep(200 * time.Microsecond)
		}
	}()
	type seen struct {
		point    int
		number   uint64
		outgoing bool
	}
	var all []seen
	var last time.Time
	_, err := Live(t.Context(), points, func(point int, f Frame) error {
		if f.At.Before(last) {
			t.Errorf("a frame of %s comes after one of %s", f.At, last)
		}
		last = f.At
		all = append(all, seen{point, numberOf(f), f.Outgoing})
		if len(all) == 2*frames {
			return ErrEnough
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all = all[frames:] // from here on every point is open
	for i := 1; i < len(all); i++ {
		if all[i].number != all[i-1].number && all[i].number != all[i-1].number+1 {
			t.Fatalf("frame %d is followed by %d", all[i-1].number, all[i].number)
		}
	}
	for _, want := range []seen{{point: 0, outgoing: true}, {point: 1}, {point: 2, outgoing: true}, {point: 3}} {
		k := slices.IndexFunc(all, func(s seen) bool { return s.point == want.point })
		if k < 0 || all[k].outgoing != want.outgoing {
			t.Errorf("point %s: %+v, want outgoing %t", points[want.point].Name, all[max(0, k)], want.outgoing)
		}
	}
}

func TestLiveEndsCleanly(t *testing.T) {
	n := chain(t, 2)
	points := []Point{{Name: "a", Interface: "out", Enter: n[0].Do}, {Name: "b", Interface: "in", Enter: n[1].Do}}
	send := sender(t, n[0], "out")
	ctx, cancel := context.WithCancel(t.Context())
	taken := 0
	time.AfterFunc(50*time.Millisecond, func() { send(1); cancel() })
	if _, err := Live(ctx, points, func(int, Frame) error { taken++; return nil }); err != nil {
		t.Error(err)
	}
	wrong := errors.New("the file is full")
	go func() {
		for t.Context().Err() == nil {
			send(2)
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := Live(t.Context(), points, func(int, Frame) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("the error of take comes back as %v", err)
	}
	t.Run("an interface that goes down and comes up again, and is removed", func(t *testing.T) {
		seen := 0
		set := func(change func(netlink.Link) error) {
			do(t, n[1], func() error {
				link, err := netlink.LinkByName("in")
				if err == nil {
					err = change(link)
				}
				return err
			})
		}
		_, err := Live(t.Context(), points[1:], func(int, Frame) error {
			switch seen++; seen {
			case 1:
				set(netlink.LinkSetDown)
				set(netlink.LinkSetUp)
			case 2:
				set(netlink.LinkDel)
			}
			return nil
		})
		if seen < 2 || err == nil || !strings.Contains(err.Error(), "b: the interface is gone") {
			t.Errorf("after %d frames: %v", seen, err)
		}
	})
	points[1].Interface = "nowhere"
	if _, err := Live(t.Context(), points[1:], nil); err == nil || !strings.Contains(err.Error(), "capture at b: interface nowhere") {
		t.Errorf("an unknown interface: %v", err)
	}
}

// TestLiveInBoundedMemory has a consumer that stops: frames are missed, and every one of them is told of.
func TestLiveInBoundedMemory(t *testing.T) {
	n := chain(t, 2)
	send := sender(t, n[0], "out")
	const flood, first, last = 150_000, 1 << 40, 1 << 41
	var marked atomic.Uint64
	mark := func(number uint64, stop <-chan struct{}) {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				send(number)
				marked.Add(1)
			}
		}
	}
	begun, over := make(chan struct{}), make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() { mark(first, begun) })
	taken, flooded := uint64(0), false
	missed, err := Live(t.Context(), []Point{{Name: "b", Interface: "in", Enter: n[1].Do}}, func(_ int, f Frame) error {
		taken++
		if numberOf(f) == last {
			return ErrEnough
		}
		if !flooded {
			flooded = true
			close(begun)
			ended.Wait() // only one sends at a time
			for i := range uint64(flood) {
				send(i)
			}
			ended.Go(func() { mark(last, over) })
		}
		return nil
	})
	close(over)
	ended.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if missed == 0 || taken+missed < flood || taken+missed > flood+marked.Load() {
		t.Errorf("%d frames were taken and %d missed, of %d and %d marks", taken, missed, flood, marked.Load())
	}
}

func TestRecordingKeepsTagsAndTimes(t *testing.T) {
	n := chain(t, 2)
	var c *Capture
	do(t, n[1], func() (err error) { c, err = Open("in"); return err })
	before := time.Now()
	var fd int
	do(t, n[0], func() (err error) { fd, err = packetsocket.OpenToWrite("out"); return err })
	defer unix.Close(fd)
	frame := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0x00, 0x20, 0x64, 0x88, 0xb5}, make([]byte, 60)...)
	if packetsocket.NewWriter(1).Write(fd, [][]byte{frame}) != 0 {
		t.Fatal("refused")
	}
	for end := time.Now().Add(60 * time.Second); len(c.Frames()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was recorded")
		}
	}
	got := c.Frames()[0]
	if !bytes.Equal(got.Octets, frame) || got.Outgoing || got.At.Before(before) || got.At.After(time.Now()) {
		t.Errorf("recorded %+v, sent %x", got, frame)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestCaptureFiles(t *testing.T) {
	points := []Point{{Name: "IF-1:core1"}, {Name: "R1:if1"}}
	frames := []Frame{
		{At: time.Unix(1000, 123456789), Octets: make([]byte, 60)}, {At: time.Unix(1001, 1), Octets: bytes.Repeat([]byte{7}, 1514)},
	}
	var plain, next bytes.Buffer
	p, err := NewPcap(&plain)
	if err != nil {
		t.Fatal(err)
	}
	ng, err := NewPcapNG(&next, points)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		if err := errors.Join(p.Write(i, f), ng.Write(i, f)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := pcapgo.NewReader(&plain)
	if err != nil {
		t.Fatal(err)
	}
	nr, err := pcapgo.NewNgReader(&next, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		data, info, err := r.ReadPacketData()
		if err != nil || !bytes.Equal(data, f.Octets) || !info.Timestamp.Equal(f.At) {
			t.Errorf("pcap, frame %d: %v, %v", i, info, err)
		}
		data, info, err = nr.ReadPacketData()
		if err != nil || !bytes.Equal(data, f.Octets) || !info.Timestamp.Equal(f.At) {
			t.Errorf("pcapng, frame %d: %v, %v", i, info, err)
			continue
		}
		if face, err := nr.Interface(info.InterfaceIndex); err != nil || face.Name != points[i].Name {
			t.Errorf("pcapng, frame %d is of %q, want %s", i, face.Name, points[i].Name)
		}
	}
}
