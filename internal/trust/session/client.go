package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

const (
	firstRetry    = time.Second
	lastRetry     = 60 * time.Second
	acceptTimeout = 10 * time.Second
)

// Stream is the opening end of one call: Out is what is sent, In what is received.
type Stream[Out, In any] struct {
	Header  func() (metadata.MD, error)
	Send    func(Out) error
	Receive func() (In, error)
}

// ClientOptions are what a Client is made of. Opened, Received and Closed are called from the goroutine of Run, in this
// order; while one blocks, nothing more is read.
type ClientOptions[Out, In any] struct {
	Credentials *trust.Credentials
	Address     endpoint.Address
	Peer        trust.Identity
	Audit       trust.Auditor // is told of a peer that is not Peer
	Length      int           // messages that wait to be sent
	LongestWait time.Duration // between attempts, before the ± 20 %; zero: 60 s (C-SMA section 10.2)

	Open     func(context.Context, *grpc.ClientConn) (Stream[Out, In], error)
	Opened   func()
	Received func(In)
	Closed   func(why error) // also where a session could not be opened at all
}

// Client keeps a session with one peer. Make it with NewClient.
type Client[Out, In any] struct {
	options ClientOptions[Out, In]

	mutex sync.Mutex // guards what follows
	queue chan Out   // of the session; nil: none
	end   context.CancelCauseFunc
}

// NewClient makes a Client, which does nothing until it runs.
func NewClient[Out, In any](o ClientOptions[Out, In]) *Client[Out, In] {
	return &Client[Out, In]{options: o}
}

// Run keeps a session open until ctx ends. It tries again after 1, 2, 4 … 60 s or up to LongestWait, each ± 20 % (C-SMA
// section 10.2), and begins anew with 1 s after a session that the peer had accepted.
func (c *Client[Out, In]) Run(ctx context.Context) {
	longest := cmp.Or(c.options.LongestWait, lastRetry)
	wait := &backoff.ExponentialBackOff{InitialInterval: min(firstRetry, longest), Multiplier: 2, MaxInterval: longest, RandomizationFactor: 0.2}
	wait.Reset()
	for {
		accepted, err := c.session(ctx)
		if accepted {
			wait.Reset()
		}
		c.options.Closed(err)
		timer := time.NewTimer(wait.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Send queues a message and tells whether there was a session to take it. It never blocks: a session whose queue is
// full ends with ErrSlow. It may be called from any goroutine.
func (c *Client[Out, In]) Send(m Out) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.queue == nil {
		return false
	}
	select {
	case c.queue <- m:
		return true
	default:
		c.end(ErrSlow)
		return false
	}
}

// Depth gives how many messages wait to be sent.
func (c *Client[Out, In]) Depth() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.queue)
}

// session opens one session and works on it until it ends. The connection is made anew each time, so that what failed
// last is what is reported, and a reloaded certificate is used at once.
func (c *Client[Out, In]) session(parent context.Context) (accepted bool, err error) {
	ctx, end := context.WithCancelCause(parent)
	defer end(nil)
	conn, err := c.options.Credentials.Dial(c.options.Address, c.options.Peer, c.options.Audit)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	timer := time.AfterFunc(acceptTimeout, func() {
		end(fmt.Errorf("%s at %s did not accept within %s", c.options.Peer, c.options.Address, acceptTimeout))
	})
	defer timer.Stop()
	stream, err := c.options.Open(ctx, conn)
	if err != nil {
		return false, causeOr(ctx, err)
	}
	if header, err := stream.Header(); err != nil || header == nil {
		if err == nil {
			_, err = stream.Receive() // the status with which it was refused
		}
		return false, causeOr(ctx, err)
	}
	timer.Stop()
	return true, c.work(ctx, end, stream)
}

// work sends from the queue and hands on what is received, until one of them fails.
func (c *Client[Out, In]) work(ctx context.Context, end context.CancelCauseFunc, stream Stream[Out, In]) error {
	queue := make(chan Out, c.options.Length)
	c.attach(queue, end)
	var sender sync.WaitGroup
	sender.Go(func() {
		if err := send(ctx, stream, queue); !errors.Is(err, io.EOF) { // EOF: what is received says why
			end(err)
		}
	})
	c.options.Opened()
	err := c.receive(stream)
	c.attach(nil, nil)
	end(err)
	sender.Wait()
	return context.Cause(ctx)
}

func (c *Client[Out, In]) attach(queue chan Out, end context.CancelCauseFunc) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.queue, c.end = queue, end
}

func (c *Client[Out, In]) receive(stream Stream[Out, In]) error {
	for {
		m, err := stream.Receive()
		if err != nil {
			return err
		}
		c.options.Received(m)
	}
}

func send[Out, In any](ctx context.Context, stream Stream[Out, In], queue <-chan Out) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m := <-queue:
			if err := stream.Send(m); err != nil {
				return err
			}
		}
	}
}

// causeOr prefers the cause for which a session was ended to what its stream makes of it.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
