package session

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/margay-net/margay/internal/trust"
)

// Session is the accepting end of the stream of one peer; Out is what is sent to it. Its methods may be called from any
// goroutine.
type Session[Out any] struct {
	peer  trust.Identity
	id    uint64
	queue chan Out
	ended chan struct{} // closed by Close
	left  chan struct{} // closed when nothing more is told of it

	mutex sync.Mutex // guards why
	why   error      // for which it was closed; nil: it is open
}

// Peer gives the verified identity of the peer.
func (s *Session[Out]) Peer() trust.Identity { return s.peer }

// ID gives a number that no other session of its Table has; a later session has a higher one.
func (s *Session[Out]) ID() uint64 { return s.id }

// Send queues a message and tells whether the session took it. It never blocks: a session whose queue is full is closed
// with ErrSlow.
func (s *Session[Out]) Send(m Out) bool {
	select {
	case <-s.ended:
		return false
	default:
	}
	select {
	case s.queue <- m:
		return true
	default:
		s.Close(ErrSlow)
		return false
	}
}

// Close ends the session; the peer is told why.
func (s *Session[Out]) Close(why error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.why == nil {
		s.why = why
		close(s.ended)
	}
}

// Cause gives what the session was closed for; nil: it is open.
func (s *Session[Out]) Cause() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.why
}

// Table is the sessions that one server has, at most one a peer. Make it with NewTable.
type Table[Out any] struct {
	length  int
	running sync.WaitGroup // calls, and the goroutines that read and write their streams

	mutex    sync.Mutex // guards what follows
	sessions map[trust.Identity]*Session[Out]
	serial   uint64
}

// NewTable makes a Table whose sessions queue at most length messages each.
func NewTable[Out any](length int) *Table[Out] {
	return &Table[Out]{length: length, sessions: make(map[trust.Identity]*Session[Out])}
}

// Call is one call of a peer. Its functions are called from one goroutine: Opened, then Take for each message, then
// Closed; those of the next session of the same peer come after. While one blocks, nothing more is read from this peer.
type Call[In, Out any] struct {
	Receive func() (In, error)
	Send    func(Out) error
	Opened  func(*Session[Out])
	Take    func(*Session[Out], In) error // an error ends the session, and the peer is told it
	Closed  func(*Session[Out])           // Session.Cause tells why
}

// Serve works on a call until it ends or a later session of the same peer takes its place, and gives the status that
// the call's handler has to return.
func Serve[In, Out any](t *Table[Out], stream grpc.ServerStream, c Call[In, Out]) error {
	id, err := trust.PeerIdentity(stream.Context())
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	t.running.Add(1)
	defer t.running.Done()
	s := t.enter(id)
	defer t.leave(s)
	if err := stream.SendHeader(metadata.MD{}); err != nil { // tells the peer that it is accepted
		return err
	}
	messages := make(chan In)
	t.running.Go(func() { read(s, c.Receive, messages) })
	t.running.Go(func() { write(s, c.Send) })
	c.Opened(s)
	for {
		select {
		case <-s.ended:
			c.Closed(s)
			return status.Error(codes.Unavailable, s.Cause().Error())
		case m := <-messages:
			if err := c.Take(s, m); err != nil {
				s.Close(err)
				c.Closed(s)
				return status.Error(codes.InvalidArgument, err.Error())
			}
		}
	}
}

// Close ends the session of a peer, if it has one.
func (t *Table[Out]) Close(peer trust.Identity, why error) {
	t.mutex.Lock()
	s := t.sessions[peer]
	t.mutex.Unlock()
	if s != nil {
		s.Close(why)
	}
}

// Open gives how many sessions are open.
func (t *Table[Out]) Open() int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return len(t.sessions)
}

// Wait returns when nothing of the Table runs any more; stop its gRPC server first.
func (t *Table[Out]) Wait() { t.running.Wait() }

// enter opens a session and waits until the previous one of the same peer is closed.
func (t *Table[Out]) enter(id trust.Identity) *Session[Out] {
	t.mutex.Lock()
	t.serial++
	s := &Session[Out]{peer: id, id: t.serial, queue: make(chan Out, t.length), ended: make(chan struct{}), left: make(chan struct{})}
	previous := t.sessions[id]
	t.sessions[id] = s
	t.mutex.Unlock()
	if previous != nil {
		previous.Close(errReplaced)
		<-previous.left
	}
	return s
}

func (t *Table[Out]) leave(s *Session[Out]) {
	s.Close(errEnded)
	t.mutex.Lock()
	if t.sessions[s.peer] == s {
		delete(t.sessions, s.peer)
	}
	t.mutex.Unlock()
	close(s.left)
}

// read hands what is received to out until the session ends. Like write it may outlive Serve by the moment that gRPC
// takes to end the call.
func read[In, Out any](s *Session[Out], receive func() (In, error), out chan<- In) {
	for {
		m, err := receive()
		if err != nil {
			s.Close(err)
			return
		}
		select {
		case out <- m:
		case <-s.ended:
			return
		}
	}
}

// write sends queued messages until the session ends.
func write[Out any](s *Session[Out], send func(Out) error) {
	for {
		select {
		case m := <-s.queue:
			if err := send(m); err != nil {
				s.Close(err)
				return
			}
		case <-s.ended:
			return
		}
	}
}
