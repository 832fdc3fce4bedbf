package agent

import (
	"context"
	"time"

	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/session"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// queueLength is how many batches may wait to be sent in one session before it is given up: the peer is too slow, and
// the next session begins with all there is.
const queueLength = 1024

// ClientHandler takes what happens on the session with the C-PS. It is called from the goroutine of Run, in order:
// Opened, Steering, Closed, and so on. While it blocks nothing more is read.
type ClientHandler interface {
	// Opened has to be answered with a batch that has a Hello, by Client.Send.
	Opened(cps string)
	// Steering hands a batch over; it is not touched afterwards.
	Steering(cps string, b *cats.SteeringBatch)
	// Closed also comes where a session could not be opened at all. The error says why.
	Closed(cps string, err error)
}

// ClientOptions are what a Client is made of.
type ClientOptions struct {
	Credentials *trust.Credentials
	Peer        config.Peer   // the C-PS
	Audit       trust.Auditor // is told of a peer that is not the C-PS
	Handler     ClientHandler
}

// longestWait is between attempts to reach the C-PS: new flows wait for it, and after its own start it waits a few
// seconds for its forwarders (CP section 10).
const longestWait = 2 * time.Second

// Client keeps a session with the C-PS. Run works until its context ends and tries again after 1, 2, 2 … s; Send takes a
// batch for the session, which must not be touched afterwards, never blocks, and tells whether there was one.
type Client = session.Client[cats.ForwarderBatch, *cats.SteeringBatch]

// NewClient makes the client of a forwarder. It dials when it runs.
func NewClient(o ClientOptions) *Client {
	name := string(o.Peer.Name)
	return session.NewClient(session.ClientOptions[cats.ForwarderBatch, *cats.SteeringBatch]{
		Credentials: o.Credentials, Address: o.Peer.Address, Peer: o.Credentials.Peer(trust.CPS, name), Audit: o.Audit, Length: queueLength, LongestWait: longestWait,
		Open:     open,
		Opened:   func() { o.Handler.Opened(name) },
		Received: func(b *cats.SteeringBatch) { o.Handler.Steering(name, b) },
		Closed:   func(err error) { o.Handler.Closed(name, err) },
	})
}

func open(ctx context.Context, conn *grpc.ClientConn) (s session.Stream[cats.ForwarderBatch, *cats.SteeringBatch], err error) {
	call, err := pb.NewSteeringServiceClient(conn).Steer(ctx)
	if err != nil {
		return s, err
	}
	s.Header = call.Header
	s.Send = func(b cats.ForwarderBatch) error {
		for _, m := range v1alpha1.EncodeForwarder(&b) {
			if err := call.Send(m); err != nil {
				return err
			}
		}
		return nil
	}
	s.Receive = func() (*cats.SteeringBatch, error) {
		m, err := call.Recv()
		if err != nil {
			return nil, err
		}
		b, err := v1alpha1.DecodeSteering(m)
		return &b, err
	}
	return s, nil
}
