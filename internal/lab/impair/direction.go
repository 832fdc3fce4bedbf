package impair

import (
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab/packetsocket"
)

const (
	batch        = 64                   // frames read or written at a call
	rounds       = 8                    // batches read before what is due is sent
	socketBuffer = 16 << 20             // octets that wait while the process has no CPU
	headers      = 14 + 2*4             // Ethernet and two VLAN tags, octets
	settle       = 2 * time.Millisecond // from when the program lets no more frames through until the socket has the last
	oldest       = time.Second          // how long ago a frame may have come when it is read
)

// direction takes the frames that come in at one interface of the middle and sends them out at the other, while it is
// impaired. Its methods are for one goroutine at a time.
type direction struct {
	which   Direction
	in, out int // packet sockets
	wake    int // event descriptor: there is something in next
	divert  *ebpf.Map
	size    int // octets of the largest frame
	start   time.Time

	now   *Impairment // what holds; nil: nothing, and there is no thread
	next  *Impairment // handed to the thread: nil: end
	reply chan error  // the thread has done so

	failed  chan struct{} // closed when the thread has ended by itself
	failure error         // then

	mutex  sync.Mutex
	counts Counts // guarded by mutex
}

// openDirection prepares a direction, which does nothing yet. It must be called inside the namespace of the middle.
func openDirection(which Direction, in, out string) (d *direction, err error) {
	d = &direction{which: which, in: -1, out: -1, wake: -1, start: time.Now(), reply: make(chan error), failed: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("from %s to %s: %w", in, out, err), d.close())
		}
	}()
	link, err := net.InterfaceByName(in)
	if err != nil {
		return d, fmt.Errorf("interface %s: %w", in, err)
	}
	d.size = link.MTU + headers
	if err = Restore(in); err != nil { // from a process before, which was killed
		return d, err
	}
	if d.divert, err = openDivert(in); err != nil {
		return d, err
	}
	if d.in, err = packetsocket.Open(in, packetsocket.Options{Buffer: socketBuffer, IgnoreOutgoing: true}); err != nil {
		return d, err
	}
	if d.out, err = packetsocket.OpenToWrite(out); err != nil {
		return d, err
	}
	if d.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return d, fmt.Errorf("event descriptor: %w", err)
	}
	return d, nil
}

// close clears the direction and lets go of everything.
func (d *direction) close() error {
	failed := []error{d.set(nil)}
	for _, fd := range []int{d.in, d.out, d.wake} {
		if fd >= 0 {
			failed = append(failed, unix.Close(fd))
		}
	}
	if d.divert != nil {
		failed = append(failed, d.divert.Close())
	}
	return errors.Join(failed...)
}

// set makes an impairment hold for frames from now on; nil ends it, and the frames under way leave at once.
func (d *direction) set(to *Impairment) (err error) {
	running := d.now != nil
	if !running && to == nil {
		return nil
	}
	d.next = to
	if running {
		if _, err := unix.Write(d.wake, []byte{0, 0, 0, 0, 0, 0, 0, 1}); err != nil {
			return fmt.Errorf("waking the thread: %w", err)
		}
	} else {
		go d.run()
	}
	select {
	case err = <-d.reply:
	case <-d.failed:
		err, to = d.failure, nil
	}
	if err == nil || to == nil {
		d.now = to
	}
	return err
}

// state gives what holds, and the counts since the beginning.
func (d *direction) state() (*Impairment, Counts, error) {
	missed, err := packetsocket.Missed(d.in)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.counts.Missed += missed
	return d.now, d.counts, err
}

// clock gives the time since the beginning, ns.
func (d *direction) clock() int64 { return int64(time.Since(d.start)) }

// run is the thread of an impaired direction. It ends when it is told so.
func (d *direction) run() {
	runtime.LockOSThread() // never unlocked: the thread's slack goes with it
	l := newLine(d.size)
	d.mutex.Lock()
	l.counts = d.counts
	d.mutex.Unlock()
	l.change(*d.next, d.which, d.clock())
	// The kernel may put off a wake-up by the slack, 50 µs unless one asks for less.
	err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if err == nil {
		err = d.divert.Put(uint32(0), diverted)
	}
	d.reply <- err
	if err != nil {
		return
	}
	io := exchange{direction: d, line: l, reader: packetsocket.NewReader(batch, d.size), writer: packetsocket.NewWriter(batch)}
	for {
		woken, err := io.wait()
		if err == nil && woken {
			to := d.next
			if to == nil {
				d.reply <- io.finish()
				return
			}
			l.change(*to, d.which, d.clock())
			d.reply <- nil
		}
		if err == nil {
			err = io.receive(rounds)
		}
		if err != nil {
			d.failure = errors.Join(err, d.divert.Put(uint32(0), uint32(0)))
			close(d.failed)
			return
		}
		io.send(d.clock())
	}
}

// exchange is the thread's reading and writing.
type exchange struct {
	*direction
	line   *line
	reader *packetsocket.Reader
	writer *packetsocket.Writer
	frames [][]byte
}

// wait waits for frames, for the next one that leaves, or to be woken.
func (x *exchange) wait() (woken bool, err error) {
	polled := []unix.PollFd{{Fd: int32(x.in), Events: unix.POLLIN}, {Fd: int32(x.wake), Events: unix.POLLIN}}
	var timeout *unix.Timespec
	if at, ok := x.line.next(); ok {
		t := unix.NsecToTimespec(max(0, at-x.clock()))
		timeout = &t
	}
	if _, err := unix.Ppoll(polled, timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("waiting: %w", err)
	}
	if polled[1].Revents == 0 {
		return false, nil
	}
	var events [8]byte
	if _, err := unix.Read(x.wake, events[:]); err != nil {
		return false, fmt.Errorf("event descriptor: %w", err)
	}
	return true, nil
}

// receive takes in what has come, at most so many batches.
func (x *exchange) receive(rounds int) error {
	for range rounds {
		n, err := x.reader.Read(x.in)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN): // it may come up again
			continue
		case err != nil:
			return fmt.Errorf("receiving: %w", err)
		}
		// The delay counts from when the kernel had the frame, however late this thread reads it.
		now := time.Now()
		for i := range n {
			f := x.reader.Frame(i)
			age := min(max(0, now.UnixNano()-f.At), int64(oldest))
			x.line.enter(f.Octets, int64(now.Sub(x.start))-age)
		}
	}
	return nil
}

// send sends what is due.
func (x *exchange) send(now int64) {
	for {
		x.frames = x.line.due(now, x.frames[:0], batch)
		if len(x.frames) == 0 {
			break
		}
		refused := x.writer.Write(x.out, x.frames)
		x.line.counts.Refused += uint64(refused)
		x.line.counts.Sent += uint64(len(x.frames) - refused)
		x.line.done(len(x.frames))
	}
	x.mutex.Lock()
	defer x.mutex.Unlock()
	missed := x.counts.Missed
	x.counts = x.line.counts
	x.counts.Missed, x.counts.Held = missed, uint64(x.line.count)
}

// finish hands the frames back to the kernel, and lets go of those that are here.
func (x *exchange) finish() error {
	if err := x.divert.Put(uint32(0), uint32(0)); err != nil {
		return fmt.Errorf("handing frames back to the kernel: %w", err)
	}
	time.Sleep(settle)
	err := x.receive(math.MaxInt)
	x.send(math.MaxInt64)
	return err
}
