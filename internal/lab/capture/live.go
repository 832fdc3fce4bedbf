package capture

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab/packetsocket"
)

// Point is an interface to watch.
type Point struct {
	Name      string                   // for people
	Interface string                   //
	Enter     func(func() error) error // runs a function inside the interface's network namespace
	Far       bool                     // the interface is the other end of the wire: what goes out there comes in here
}

// ErrEnough ends Live without being an error.
var ErrEnough = errors.New("enough frames")

// Bounds of Live.
const (
	liveBuffer = 16 << 20         // octets of a point that wait in the kernel
	liveHeld   = 8192             // frames that are put in order of time
	liveTurn   = 64               // batches of a point that are read before it is the next one's turn
	settled    = time.Millisecond // from a frame's time until it can surely be read
)

// Live hands the frames that pass the points to take, point by its place, in the order of their times, until ctx ends or
// take gives an error, which it returns unless that is ErrEnough. Its memory is bounded: when take is slow, the kernel
// keeps what it can, and missed tells how many frames of all points it could not.
func Live(ctx context.Context, points []Point, take func(point int, f Frame) error) (missed uint64, err error) {
	l := live{points: points, take: take, reader: packetsocket.NewReader(batch, 1<<16)}
	defer func() {
		if l.keep != nil && l.keep() {
			err = errors.Join(err, unix.Close(l.end))
		}
		for _, p := range l.polled {
			err = errors.Join(err, unix.Close(int(p.Fd)))
		}
	}()
	if err := l.open(ctx); err != nil {
		return 0, err
	}
	for ctx.Err() == nil && err == nil {
		err = l.turn(true)
	}
	if err == nil {
		err = l.turn(false) // what has passed until now is shown, too
	}
	if err == nil {
		err = l.flush(time.Time{})
	}
	if errors.Is(err, ErrEnough) {
		err = nil
	}
	for _, p := range l.polled[1:] {
		n, failed := packetsocket.Missed(int(p.Fd))
		missed, err = missed+n, errors.Join(err, failed)
	}
	return missed, err
}

type live struct {
	points []Point
	take   func(int, Frame) error
	reader *packetsocket.Reader
	polled []unix.PollFd // an event descriptor, which tells that ctx has ended, and the socket of each point
	held   byTime
	end    int         // another descriptor of the event, which ctx's end writes to and closes
	keep   func() bool // keeps it from that; false if it has begun
}

func (l *live) open(ctx context.Context) error {
	end, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("capture: event descriptor: %w", err)
	}
	l.polled = append(l.polled, unix.PollFd{Fd: int32(end), Events: unix.POLLIN})
	for _, p := range l.points {
		if err := p.Enter(func() error {
			fd, err := packetsocket.Open(p.Interface, packetsocket.Options{Buffer: liveBuffer})
			if err == nil {
				l.polled = append(l.polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
			return err
		}); err != nil {
			return fmt.Errorf("capture at %s: %w", p.Name, err)
		}
	}
	if l.end, err = unix.Dup(end); err != nil {
		return fmt.Errorf("capture: event descriptor: %w", err)
	}
	l.keep = context.AfterFunc(ctx, func() {
		_, _ = unix.Write(l.end, []byte{0, 0, 0, 0, 0, 0, 0, 1})
		_ = unix.Close(l.end)
	})
	return nil
}

// turn waits for frames, reads them, and hands on those before which none can come any more.
func (l *live) turn(wait bool) error {
	if wait {
		var timeout *unix.Timespec
		if len(l.held) > 0 {
			t := unix.NsecToTimespec(int64(settled))
			timeout = &t
		}
		if _, err := unix.Ppoll(l.polled, timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("capture: waiting: %w", err)
		}
	}
	until := time.Now().Add(-settled)
	for i := range l.points {
		last, all, err := l.read(i)
		if err != nil {
			return err
		}
		if !all && last.Before(until) {
			until = last
		}
	}
	return l.flush(until)
}

// read takes in what has passed a point: all of it, or as much as has its turn, with the time of the last frame.
func (l *live) read(point int) (last time.Time, all bool, err error) {
	for range liveTurn {
		n, err := l.reader.Read(int(l.polled[1+point].Fd))
		switch {
		case errors.Is(err, unix.ENETDOWN) && packetsocket.Gone(int(l.polled[1+point].Fd)):
			return last, false, fmt.Errorf("capture at %s: the interface is gone", l.points[point].Name)
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENETDOWN): // it may come up again
			return last, true, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return last, false, fmt.Errorf("capture at %s: %w", l.points[point].Name, err)
		}
		for i := range n {
			f := l.reader.Frame(i)
			last = time.Unix(0, f.At)
			if len(l.held) == liveHeld { // the order may suffer, the memory must not
				if err := l.pop(); err != nil {
					return last, false, err
				}
			}
			heap.Push(&l.held, pointFrame{point, Frame{At: last, Outgoing: f.Outgoing != l.points[point].Far, Octets: bytes.Clone(f.Octets)}})
		}
	}
	return last, last.IsZero(), nil
}

// flush hands on the frames until a time; all for the zero Time.
func (l *live) flush(until time.Time) error {
	for len(l.held) > 0 && (until.IsZero() || !l.held[0].At.After(until)) {
		if err := l.pop(); err != nil {
			return err
		}
	}
	return nil
}

func (l *live) pop() error {
	f := heap.Pop(&l.held).(pointFrame)
	return l.take(f.point, f.Frame)
}

type pointFrame struct {
	point int
	Frame
}

// byTime is a heap.Interface.
type byTime []pointFrame

func (h byTime) Len() int { return len(h) }
func (h byTime) Less(i, j int) bool {
	if h[i].At.Equal(h[j].At) {
		return h[i].point < h[j].point
	}
	return h[i].At.Before(h[j].At)
}
func (h byTime) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byTime) Push(x any)   { *h = append(*h, x.(pointFrame)) }
func (h *byTime) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	(*h)[last] = pointFrame{}
	*h = (*h)[:last]
	return f
}
