package packetsocket_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/lab/packetsocket"
	"github.com/margay-net/margay/internal/testenv"
)

// pair gives sockets of both ends of a wire: frames that are written to one are read at the other.
func pair(t *testing.T) (n *namespace.Namespace, out, in int) {
	t.Helper()
	testenv.RequireRoot(t)
	name := fmt.Sprintf("mgyt-socket-%d", os.Getpid())
	n, err := namespace.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(); namespace.Remove(name) })
	err = n.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "one"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "two"}); err != nil {
			return err
		}
		for _, name := range []string{"one", "two"} {
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(link)
			}
			if err != nil {
				return err
			}
		}
		// Until the kernel has taken note of the carrier it drops what is sent, without a word.
		for _, name := range []string{"one", "two"} {
			for end := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
				link, err := netlink.LinkByName(name)
				if err != nil || time.Now().After(end) {
					return fmt.Errorf("interface %s does not come up: %w", name, err)
				}
				if link.Attrs().OperState == netlink.OperUp {
					break
				}
			}
		}
		if out, err = packetsocket.OpenToWrite("one"); err != nil {
			return err
		}
		in, err = packetsocket.Open("two", packetsocket.Options{Buffer: 1 << 20, IgnoreOutgoing: true})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(out); unix.Close(in) })
	return n, out, in
}

func frame(mark byte, length int) []byte {
	f := bytes.Repeat([]byte{mark}, length)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}) // IEEE 802 local experimental
	return f
}

func TestBatches(t *testing.T) {
	n, out, in := pair(t)
	reader := packetsocket.NewReader(4, 1514)
	if _, err := reader.Read(in); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("reading of nothing: %v", err)
	}
	var frames [][]byte
	for i := range 10 {
		frames = append(frames, frame(byte(i), 60+i))
	}
	frames[5] = frame(5, 2000) // longer than the interface takes
	before := time.Now().UnixNano()
	if refused := packetsocket.NewWriter(3).Write(out, frames); refused != 1 {
		t.Errorf("%d frames were refused, want the one that is too long", refused)
	}
	want := append(frames[:5:5], frames[6:]...)
	for end := time.Now().Add(60 * time.Second); len(want) > 0; {
		n, err := reader.Read(in)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		for i := range n {
			f := reader.Frame(i)
			if !bytes.Equal(f.Octets, want[0]) || f.Outgoing || f.At < before || f.At > time.Now().UnixNano() {
				t.Errorf("%+v, want %x after %d", f, want[0], before)
			}
			want = want[1:]
		}
		if time.Now().After(end) {
			t.Fatalf("%d frames never came", len(want))
		}
	}
	flood := [][]byte{frame(0, 1514)}
	for range 10_000 {
		packetsocket.NewWriter(1).Write(out, flood)
	}
	read := 0
	for {
		n, err := reader.Read(in)
		if err != nil {
			break
		}
		read += n
	}
	if missed, err := packetsocket.Missed(in); err != nil || missed == 0 || int(missed)+read != 10_000 {
		t.Errorf("%d frames were read and %d missed, %v", read, missed, err)
	}
	if packetsocket.Gone(in) {
		t.Error("the interface is gone before it was removed")
	}
	if err := n.Do(func() error {
		link, err := netlink.LinkByName("one")
		if err == nil {
			err = netlink.LinkDel(link)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !packetsocket.Gone(in) {
		t.Error("the interface was removed and is not gone")
	}
}

func TestUnknownInterface(t *testing.T) {
	testenv.RequireRoot(t)
	for _, open := range []func() (int, error){
		func() (int, error) { return packetsocket.Open("nowhere0", packetsocket.Options{}) },
		func() (int, error) { return packetsocket.OpenToWrite("nowhere0") },
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), "interface nowhere0") {
			t.Errorf("%v", err)
		}
	}
}
