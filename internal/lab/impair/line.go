package impair

import (
	"math/rand/v2"
	"time"
)

// memoryOctets bounds the frames under way in one direction.
const memoryOctets = 64 << 20

// line decides the fate of each frame in one direction, in the order in which they come: whether it is lost, and when it
// leaves. As the order is kept, the first frame is always the next to leave, and a queue is all the timer that it takes.
// Instants are ns of a clock that never goes back.
type line struct {
	set    Impairment
	random *rand.Rand
	free   int64 // when the rate is through with the frames so far
	last   int64 // when the last frame leaves

	held    []held // a ring
	head    int    // of the first frame
	count   int    // frames in it
	waiting int    // those at its end that the rate still holds back
	spare   [][]byte
	size    int // octets of the memory of one frame
	most    int // frames under way
	counts  Counts
}

// held is a frame under way.
type held struct {
	leaves  int64
	through int64  // when the rate has let the whole of it go
	memory  []byte // of its size; the frame is its beginning
	length  int
}

// newLine makes a line for frames of at most size octets.
func newLine(size int) *line { return &line{size: size, most: memoryOctets / size} }

// change sets a new impairment. Frames under way keep their time, unless the new one is sooner over.
func (l *line) change(to Impairment, d Direction, now int64) {
	l.set = to
	l.random = rand.New(rand.NewPCG(to.Seed, uint64(d)))
	l.free = now
	limit := now + int64(to.Delay+to.Jitter)
	l.last = min(l.last, limit)
	for i := range l.count {
		h := &l.held[(l.head+i)%len(l.held)]
		h.leaves, h.through = min(h.leaves, limit), min(h.through, now)
	}
}

// enter takes a frame that came at an instant. The rate is a token bucket one frame deep, told by when it is full again.
func (l *line) enter(frame []byte, at int64) {
	l.counts.Frames++
	// Two numbers for each frame, used or not: its fate depends on its place and the seed alone.
	loss, swing := l.random.Float64(), l.random.Float64()
	if loss < l.set.Loss {
		l.counts.Lost++
		return
	}
	if l.count == l.most || l.set.Rate > 0 && l.backlog(at) >= l.set.Queue {
		l.counts.Full++
		return
	}
	through := at
	if l.set.Rate > 0 {
		through = max(at, l.free) + int64(float64(len(frame))*8/float64(l.set.Rate)*float64(time.Second))
		l.free = through
	}
	l.last = max(l.last, through+int64(l.set.Delay)+int64((2*swing-1)*float64(l.set.Jitter)))
	h := held{leaves: l.last, through: through, memory: l.memory(), length: len(frame)}
	copy(h.memory, frame)
	l.push(h)
}

// backlog gives how many frames the rate holds back.
func (l *line) backlog(now int64) int {
	for l.waiting > 0 && l.held[(l.head+l.count-l.waiting)%len(l.held)].through <= now {
		l.waiting--
	}
	return l.waiting
}

func (l *line) push(h held) {
	if l.count == len(l.held) {
		larger := make([]held, max(64, 2*len(l.held)))
		for i := range l.count {
			larger[i] = l.held[(l.head+i)%len(l.held)]
		}
		l.held, l.head = larger, 0
	}
	l.held[(l.head+l.count)%len(l.held)] = h
	l.count++
	l.waiting++
}

func (l *line) memory() []byte {
	if n := len(l.spare); n > 0 {
		m := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return m
	}
	return make([]byte, l.size)
}

// next gives when the next frame leaves; false if there is none.
func (l *line) next() (int64, bool) {
	if l.count == 0 {
		return 0, false
	}
	return l.held[l.head].leaves, true
}

// due appends the frames that leave at an instant or before, at most so many. They are gone after done.
func (l *line) due(now int64, frames [][]byte, most int) [][]byte {
	for i := range min(l.count, most) {
		h := &l.held[(l.head+i)%len(l.held)]
		if h.leaves > now {
			break
		}
		frames = append(frames, h.memory[:h.length])
	}
	return frames
}

// done forgets the first n frames.
func (l *line) done(n int) {
	for range n {
		h := &l.held[l.head]
		l.spare = append(l.spare, h.memory)
		*h = held{}
		l.head = (l.head + 1) % len(l.held)
		l.count--
	}
	l.waiting = min(l.waiting, l.count)
}
