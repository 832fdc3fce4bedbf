package impair

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/datapath/kernel"
	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/lab/packetsocket"
	"github.com/margay-net/margay/internal/testenv"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// patience bounds every wait. It is no expectation of speed.
const patience = 60 * time.Second

// stage is a link with a middle: left (namespace left) – a, b (namespace middle) – right (namespace right).
type stage struct {
	t                   testing.TB
	left, middle, right *namespace.Namespace
	out                 int // sends at left
	in                  int // receives at right
	writer              *packetsocket.Writer
	reader              *packetsocket.Reader
	control             endpoint.Address
	observe             endpoint.Address
}

var serial atomic.Int32

const mtu = 9000

func newStage(t testing.TB) *stage {
	t.Helper()
	testenv.RequireRoot(t)
	s := &stage{t: t, writer: packetsocket.NewWriter(1), reader: packetsocket.NewReader(64, 1<<16)}
	for _, n := range []struct {
		name string
		to   **namespace.Namespace
	}{{"left", &s.left}, {"middle", &s.middle}, {"right", &s.right}} {
		name := fmt.Sprintf("mgyt-impair-%d-%d-%s", os.Getpid(), serial.Add(1), n.name)
		made, err := namespace.New(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { made.Close(); namespace.Remove(name) })
		*n.to = made
		s.do(made, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0) })
	}
	s.wire(s.left, "left", "a")
	s.wire(s.right, "right", "b")
	for name, in := range map[string]*namespace.Namespace{"left": s.left, "a": s.middle, "b": s.middle, "right": s.right} {
		s.eventually(name+" comes up", func() bool { // the kernel drops what is sent before
			state := netlink.LinkOperState(netlink.OperUnknown)
			s.do(in, func() error {
				link, err := netlink.LinkByName(name)
				if err == nil {
					state = link.Attrs().OperState
				}
				return err
			})
			return state == netlink.OperUp
		})
	}
	s.do(s.middle, func() error { return Join("a", "b") })
	s.do(s.left, func() (err error) { s.out, err = packetsocket.OpenToWrite("left"); return err })
	s.do(s.right, func() (err error) {
		s.in, err = packetsocket.Open("right", packetsocket.Options{Buffer: 64 << 20, IgnoreOutgoing: true})
		return err
	})
	t.Cleanup(func() { unix.Close(s.out); unix.Close(s.in) })
	return s
}

func (s *stage) do(n *namespace.Namespace, f func() error) {
	s.t.Helper()
	if err := n.Do(f); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) wire(n *namespace.Namespace, outer, inner string) {
	s.t.Helper()
	s.do(n, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = outer, mtu
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: inner, PeerNamespace: netlink.NsFd(s.middle.Fd()), PeerMTU: mtu})
	})
	for _, e := range []struct {
		in   *namespace.Namespace
		name string
	}{{n, outer}, {s.middle, inner}} {
		s.do(e.in, func() error {
			link, err := netlink.LinkByName(e.name)
			if err == nil {
				err = errors.Join(netlink.LinkSetUp(link), kernel.SetOffload(e.name, kernel.OffloadGRO, true))
			}
			return err
		})
	}
}

// process runs a Process in the middle until the test, or the function that it gives, ends it.
func (s *stage) process() (end func()) {
	s.t.Helper()
	dir := s.t.TempDir()
	s.control, s.observe = endpoint.Address("unix:"+filepath.Join(dir, "control")), endpoint.Address("unix:"+filepath.Join(dir, "observe"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- s.middle.Do(func() error {
			return Process(ctx, ProcessOptions{A: "a", B: "b", Control: s.control, Observe: s.observe, Log: slog.New(slog.DiscardHandler)})
		})
	}()
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the process ended: %v", err)
		}
	}
	s.t.Cleanup(end)
	s.eventually("the process answers", func() bool {
		select {
		case err := <-done:
			s.t.Fatalf("the process ended: %v", err)
		default:
		}
		_, err := Ask(context.Background(), s.control)
		return err == nil
	})
	return end
}

func (s *stage) eventually(what string, f func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func (s *stage) apply(i *Impairment, directions ...Direction) State {
	s.t.Helper()
	state, err := Apply(context.Background(), s.control, Change{Directions: directions, To: i})
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

func (s *stage) counts(d Direction) Counts {
	s.t.Helper()
	state, err := Ask(context.Background(), s.control)
	if err != nil {
		s.t.Fatal(err)
	}
	return state.Counts[d]
}

// numbered is a frame with a number and the time of its sending. Its type is one that nobody takes for anything.
func numbered(number, length int) []byte {
	f := make([]byte, max(length, 30))
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}) // IEEE 802 local experimental
	binary.BigEndian.PutUint64(f[14:], uint64(number))
	return f
}

// send sends a numbered frame, with the time at that moment.
func (s *stage) send(number, length int) {
	f := numbered(number, length)
	binary.BigEndian.PutUint64(f[22:], uint64(time.Now().UnixNano()))
	if s.writer.Write(s.out, [][]byte{f}) != 0 {
		s.t.Errorf("frame %d was refused", number)
	}
}

// arrival is a numbered frame that came to the right side.
type arrival struct {
	number   int
	sent, at int64 // ns since the epoch
}

// take gives what has arrived since the last call.
func (s *stage) take() (all []arrival) {
	for {
		n, err := s.reader.Read(s.in)
		if errors.Is(err, unix.EAGAIN) {
			return all
		}
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range n {
			if f := s.reader.Frame(i); len(f.Octets) >= 30 && f.Octets[12] == 0x88 && f.Octets[13] == 0xb5 {
				all = append(all, arrival{int(binary.BigEndian.Uint64(f.Octets[14:])), int64(binary.BigEndian.Uint64(f.Octets[22:])), f.At})
			}
		}
	}
}

// await waits until n frames have arrived.
func (s *stage) await(n int) (all []arrival) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d frames arrive", n), func() bool {
		all = append(all, s.take()...)
		return len(all) >= n
	})
	if len(all) > n {
		s.t.Fatalf("%d frames arrived, want %d", len(all), n)
	}
	return all
}

func (s *stage) inOrder(all []arrival) {
	s.t.Helper()
	for i, a := range all {
		if a.number != i {
			s.t.Fatalf("frame %d is the %dth to arrive", a.number, i)
		}
	}
}

// TestFramesPassAsTheyAre holds every octet on either side against the other, without a process and through one.
func TestFramesPassAsTheyAre(t *testing.T) {
	s := newStage(t)
	tagged := func(protocol uint16, tags ...uint16) []byte {
		f := numbered(1, 200)
		var head []byte
		for i, tag := range tags {
			p := uint16(unix.ETH_P_8021Q)
			if i == 0 {
				p = protocol
			}
			head = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(head, p), tag)
		}
		return slices.Insert(f, 12, head...)
	}
	frames := map[string][]byte{
		"smallest": numbered(1, 60), "1514": numbered(2, 1514), "jumbo": numbered(3, 14+mtu), "spanning tree": numbered(4, 100),
		"VLAN": tagged(unix.ETH_P_8021Q, 0x2064), "QinQ": tagged(unix.ETH_P_8021AD, 100, 200), "IPv6": numbered(5, 400),
	}
	copy(frames["spanning tree"], []byte{0x01, 0x80, 0xc2, 0, 0, 0})
	copy(frames["IPv6"][12:], []byte{0x86, 0xdd, 0x60})
	for _, f := range frames {
		for i := max(30, len(f)-40); i < len(f); i++ {
			f[i] = byte(i)
		}
	}
	check := func(t *testing.T) {
		for name, want := range frames {
			if s.writer.Write(s.out, [][]byte{want}) != 0 {
				t.Errorf("%s: refused", name)
				continue
			}
			var got []byte
			s.eventually(name+" arrives", func() bool {
				n, err := s.reader.Read(s.in)
				if n > 0 {
					got = bytes.Clone(s.reader.Frame(0).Octets)
				}
				return err == nil && n == 1
			})
			if !bytes.Equal(got, want) {
				t.Errorf("%s: sent\n%x\ngot\n%x", name, want, got)
			}
		}
	}
	t.Run("without a process", check)
	s.process()
	t.Run("past an idle process", check)
	s.apply(&Impairment{Queue: 1}, AToB)
	t.Run("through the process", check)
	if c := s.counts(AToB); c.Frames != uint64(len(frames)) || c.Sent != c.Frames {
		t.Errorf("counts %+v", c)
	}
}

func TestDelayOnTheWire(t *testing.T) {
	s := newStage(t)
	s.process()
	const delay, jitter, n = 5 * time.Millisecond, time.Millisecond, 500
	s.apply(&Impairment{Delay: delay, Jitter: jitter, Queue: 1, Seed: 1}, AToB)
	for i := range n {
		s.send(i, 200)
		time.Sleep(500 * time.Microsecond)
	}
	all := s.await(n)
	s.inOrder(all)
	var took []float64
	for _, a := range all {
		d := time.Duration(a.at - a.sent)
		if d < delay-jitter {
			t.Fatalf("frame %d took %s, less than %s", a.number, d, delay-jitter)
		}
		took = append(took, float64(d)/float64(time.Millisecond))
	}
	slices.Sort(took)
	t.Logf("one way: least %.3f ms, median %.3f ms, 95th percentile %.3f ms, most %.3f ms", took[0], took[n/2], took[n*95/100], took[n-1])
	// What a busy machine adds is not bounded; the quickest frame tells of the delay itself.
	if took[0] > 10 {
		t.Errorf("the quickest of %d frames took %.3f ms, want about 4", n, took[0])
	}
	if c := s.counts(AToB); c != (Counts{Frames: n, Sent: n}) {
		t.Errorf("counts %+v", c)
	}
}

func TestLossOnTheWire(t *testing.T) {
	s := newStage(t)
	s.process()
	const n, loss = 10_000, 0.02
	set := Impairment{Loss: loss, Queue: 1, Seed: 42}
	s.apply(&set, AToB)
	for i := range n {
		s.send(i, 60)
	}
	s.eventually("every frame has met its fate", func() bool { c := s.counts(AToB); return c.Sent+c.Lost == n })
	lost := s.counts(AToB).Lost
	all := s.await(n - int(lost))
	// Four standard deviations of a binomial distribution.
	if within := 4 * math.Sqrt(n*loss*(1-loss)); math.Abs(float64(lost)-n*loss) > within {
		t.Errorf("%d of %d were lost, want %g ± %.0f", lost, n, n*loss, within)
	}
	model := newLine(1600)
	model.change(set, AToB, 0)
	want, _ := pass(model, 60, every(1, n))
	for i := range all {
		if all[i].number != want[i] {
			t.Fatalf("the %dth frame to arrive is %d, the seed says %d", i, all[i].number, want[i])
		}
	}
}

func TestRateOnTheWire(t *testing.T) {
	s := newStage(t)
	s.process()
	const n = 200
	s.apply(&Impairment{Rate: 4e6, Queue: n}, AToB)
	for i := range n {
		s.send(i, 1000) // 2 ms each at 4 Mbit/s
	}
	all := s.await(n)
	s.inOrder(all)
	// Frames sent later than the first may leave late, never early: the whole takes at least as long as the rate says.
	if took, want := time.Duration(all[n-1].at-all[0].sent), n*2*time.Millisecond; took < want {
		t.Errorf("%d octets took %s, want %s at least", n*1000, took, want)
	} else {
		t.Logf("%d octets at 4 Mbit/s took %s, by the rate %s", n*1000, took, want)
	}
	s.apply(&Impairment{Rate: 1e5, Queue: 10}, AToB)
	for i := range n {
		s.send(i, 1000) // 80 ms each: all come before the queue has moved much
	}
	s.eventually("every frame has met its fate", func() bool { c := s.counts(AToB); return c.Sent+c.Full == 2*n })
	if full := s.counts(AToB).Full; full < n/2 {
		t.Errorf("%d frames were dropped by a queue of 10 behind a slow rate", full)
	}
}

func TestOneDirectionAlone(t *testing.T) {
	s := newStage(t)
	s.process()
	state := s.apply(&Impairment{Loss: 1, Queue: 1}, BToA)
	if state.Impairments[AToB] != nil || state.Impairments[BToA] == nil || state.Impairments[BToA].Loss != 1 {
		t.Errorf("state %+v", state)
	}
	for i := range 100 {
		s.send(i, 60)
	}
	s.inOrder(s.await(100))
	if c := s.counts(AToB); c != (Counts{}) {
		t.Errorf("the direction that is not impaired went through the process: %+v", c)
	}
}

// TestChangesLoseNothing changes, clears, and ends and starts the process under traffic.
func TestChangesLoseNothing(t *testing.T) {
	s := newStage(t)
	end := s.process()
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				sent <- n
				return
			case <-time.After(50 * time.Microsecond):
				s.send(n, 100)
			}
		}
	}()
	for i := range 30 {
		s.apply(&Impairment{Delay: time.Duration(i%3) * time.Millisecond, Queue: 1}, AToB, BToA)
		time.Sleep(3 * time.Millisecond)
		if i%2 == 0 {
			s.apply(nil, AToB)
		}
		if i%10 == 9 {
			s.apply(&Impairment{Delay: time.Second, Queue: 1}, AToB)
			end()
			end = s.process()
		}
	}
	close(stop)
	n := <-sent
	seen := map[int]int{}
	for _, a := range s.await(n) {
		seen[a.number]++
	}
	if len(seen) != n {
		t.Errorf("of %d frames %d arrived", n, len(seen))
	}
}

// TestKilledProcess leaves what a killed process would leave: frames are diverted and nobody takes them.
func TestKilledProcess(t *testing.T) {
	s := newStage(t)
	kill := func() {
		s.do(s.middle, func() error {
			divert, err := openDivert("a")
			if err == nil {
				err = errors.Join(divert.Put(uint32(0), diverted), divert.Close())
			}
			return err
		})
	}
	kill()
	var tap int
	s.do(s.middle, func() (err error) {
		tap, err = packetsocket.Open("a", packetsocket.Options{Buffer: 1 << 20})
		return err
	})
	defer unix.Close(tap)
	s.send(0, 60)
	s.eventually("the frame is diverted", func() bool { n, err := s.reader.Read(tap); return err == nil && n > 0 })
	s.do(s.middle, func() error { return Restore("a", "b") })
	s.send(1, 60)
	if all := s.await(1); all[0].number != 1 {
		t.Errorf("frame %d arrived while frames were diverted to nobody", all[0].number)
	}
	kill()
	s.process()
	s.send(2, 60)
	if all := s.await(1); all[0].number != 2 {
		t.Errorf("frame %d arrived", all[0].number)
	}
}

func TestProcessRefusesWhatIsWrong(t *testing.T) {
	s := newStage(t)
	s.process()
	for _, c := range []struct {
		change Change
		want   string
	}{
		{Change{Directions: Directions, To: &Impairment{Queue: 1, Loss: 2}}, "loss 200%"},
		{Change{Directions: []Direction{AToB, 7}, To: &Impairment{Queue: 1}}, "no direction 7"},
	} {
		if _, err := Apply(context.Background(), s.control, c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.change, err, c.want)
		}
	}
	if state, err := Ask(context.Background(), s.control); err != nil || !state.Clear() {
		t.Errorf("a refused change holds: %+v, %v", state, err)
	}
	s.do(s.left, func() error {
		err := Process(context.Background(), ProcessOptions{A: "left", B: "nowhere", Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "not joined") {
			t.Errorf("a process in the wrong place: %v", err)
		}
		return nil
	})
}

func TestMetrics(t *testing.T) {
	s := newStage(t)
	s.process()
	s.apply(&Impairment{Queue: 1}, AToB)
	for i := range 10 {
		s.send(i, 60)
	}
	s.await(10)
	network, address := s.observe.Network()
	client := http.Client{Transport: &http.Transport{DialContext: dialer(network, address)}}
	defer client.CloseIdleConnections()
	s.eventually("the metrics tell of 10 frames", func() bool {
		response, err := client.Get("http://process/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(response.Body); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(b.String(), `margay_lab_impair_sent_total{direction="a to b"} 10`)
	})
}

// BenchmarkFrames sends 60 octets from end to end, never more than a window under way.
func BenchmarkFrames(b *testing.B) {
	for _, c := range []struct {
		name   string
		window int
		set    *Impairment
	}{{"joined", 64, nil}, {"process", 64, &Impairment{Queue: 1}}, {"joined alone", 1, nil}, {"process alone", 1, &Impairment{Queue: 1}}} {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b)
			s.process()
			s.apply(c.set, AToB)
			sent, arrived := 0, 0
			for b.Loop() {
				for sent-arrived == c.window {
					arrived += len(s.take())
				}
				s.send(sent, 60)
				sent++
			}
			s.eventually("all arrive", func() bool { arrived += len(s.take()); return arrived == sent })
		})
	}
}
