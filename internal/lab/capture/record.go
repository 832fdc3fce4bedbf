package capture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab/packetsocket"
)

// batch is how many frames are read at a call.
const batch = 16

// recorder reads the frames of one interface until it is closed.
type recorder struct {
	name string
	file *os.File
	take func(Frame) error
	done chan struct{}

	mu      sync.Mutex
	closing bool  // guarded by mu
	err     error // guarded by mu: why it ended before it was closed
}

// record starts a recorder, which hands every frame to take on a goroutine of its own, and ends when that fails. As many
// octets as buffer says wait in the kernel when take is slow; more are missed. It must be called from a thread inside
// the interface's network namespace.
func record(name string, buffer int, take func(Frame) error) (*recorder, error) {
	fd, err := packetsocket.Open(name, packetsocket.Options{Buffer: buffer})
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	r := &recorder{name: name, file: os.NewFile(uintptr(fd), "capture "+name), take: take, done: make(chan struct{})}
	go r.run()
	return r, nil
}

// close ends the recording and waits for it.
func (r *recorder) close() (missed uint64, err error) {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	raw, err := r.file.SyscallConn()
	if err == nil {
		var asked error
		err = raw.Control(func(fd uintptr) { missed, asked = packetsocket.Missed(int(fd)) })
		err = errors.Join(err, asked)
	}
	err = errors.Join(err, r.file.Close())
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		err = errors.Join(err, fmt.Errorf("capture on %s: %w", r.name, r.err))
	}
	return missed, err
}

func (r *recorder) run() {
	defer close(r.done)
	raw, err := r.file.SyscallConn()
	if err != nil {
		r.fail(err)
		return
	}
	reader := packetsocket.NewReader(batch, 1<<16)
	for {
		var n int
		var received error
		err := raw.Read(func(fd uintptr) bool {
			n, received = reader.Read(int(fd))
			return received != unix.EAGAIN
		})
		switch {
		case err != nil: // the file is closed
			r.fail(err)
			return
		case received == unix.ENETDOWN || received == unix.EINTR:
			continue // the interface may come back
		case received != nil:
			r.fail(received)
			return
		}
		for i := range n {
			f := reader.Frame(i)
			if err := r.take(Frame{At: time.Unix(0, f.At), Outgoing: f.Outgoing, Octets: bytes.Clone(f.Octets)}); err != nil {
				r.fail(err)
				return
			}
		}
	}
}

// fail keeps why the recording ended, unless close ended it.
func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.err = err
	}
}
