package grpc

import (
	"context"
	"crypto/ed25519"
	"time"

	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/session"
	"github.com/margay-net/margay/internal/wire/sealed"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// queueLength is how many updates, or how much feedback, may wait to be sent in one session.
const queueLength = 64

// ClientHandler takes what happens on the channel to one C-PS. It is called from the goroutine of Run, in order: Opened,
// Feedback (the first one is FeedbackHello), Closed, and so on. While it blocks nothing more is read.
type ClientHandler interface {
	Opened(cps string)
	Feedback(cps string, f cats.Feedback)
	// Closed also comes where a session could not be opened at all. The error says why.
	Closed(cps string, err error)
}

// ClientOptions are what a Client is made of.
type ClientOptions struct {
	Credentials *trust.Credentials // of a C-SMA or C-NMA; its key must be Ed25519
	Peer        config.Peer        // the C-PS
	Audit       trust.Auditor      // is told of a peer that is not the C-PS
	Handler     ClientHandler
}

// Client keeps a session with one C-PS for updates of type U. Run works until its context ends and tries again after
// 1, 2, 4 … 60 s; Send takes an update for the session, never blocks, and tells whether there was one; it sets the
// update's timestamp and seals it when it is sent.
type Client[U any] = session.Client[U, cats.Feedback]

// MetricClient is the Client of a C-SMA, NetworkClient that of a C-NMA.
type (
	MetricClient  = Client[cats.MetricUpdate]
	NetworkClient = Client[cats.NetworkUpdate]
)

// NewMetricClient makes the client of a C-SMA. It dials when it runs.
func NewMetricClient(o ClientOptions) (*MetricClient, error) {
	return newClient(o, func(ctx context.Context, conn *grpc.ClientConn) (s session.Stream[cats.MetricUpdate, cats.Feedback], err error) {
		call, err := pb.NewMetricServiceClient(conn).ReportMetrics(ctx)
		if err != nil {
			return s, err
		}
		return newStream(call, o.Credentials, func(u cats.MetricUpdate, key ed25519.PrivateKey) (*pb.ReportMetricsRequest, error) {
			u.Timestamp = time.Now()
			auth, err := sealed.SignEd25519(key, u.Source, sealed.CanonicalMetricUpdate(&u))
			return &pb.ReportMetricsRequest{Message: &pb.ReportMetricsRequest_Update{Update: v1alpha1.EncodeMetricUpdate(&u, auth)}}, err
		}, (*pb.ReportMetricsResponse).GetFeedback), nil
	})
}

// NewNetworkClient makes the client of a C-NMA. It dials when it runs.
func NewNetworkClient(o ClientOptions) (*NetworkClient, error) {
	return newClient(o, func(ctx context.Context, conn *grpc.ClientConn) (s session.Stream[cats.NetworkUpdate, cats.Feedback], err error) {
		call, err := pb.NewMetricServiceClient(conn).ReportNetwork(ctx)
		if err != nil {
			return s, err
		}
		return newStream(call, o.Credentials, func(u cats.NetworkUpdate, key ed25519.PrivateKey) (*pb.ReportNetworkRequest, error) {
			u.Timestamp = time.Now()
			auth, err := sealed.SignEd25519(key, u.Source, sealed.CanonicalNetworkUpdate(&u))
			return &pb.ReportNetworkRequest{Update: v1alpha1.EncodeNetworkUpdate(&u, auth)}, err
		}, (*pb.ReportNetworkResponse).GetFeedback), nil
	})
}

func newClient[U any](o ClientOptions, open func(context.Context, *grpc.ClientConn) (session.Stream[U, cats.Feedback], error)) (*Client[U], error) {
	if _, err := o.Credentials.SigningKey(); err != nil {
		return nil, err
	}
	name := string(o.Peer.Name)
	return session.NewClient(session.ClientOptions[U, cats.Feedback]{
		Credentials: o.Credentials, Address: o.Peer.Address, Peer: o.Credentials.Peer(trust.CPS, name), Audit: o.Audit, Length: queueLength,
		Open:     open,
		Opened:   func() { o.Handler.Opened(name) },
		Received: func(f cats.Feedback) { o.Handler.Feedback(name, f) },
		Closed:   func(err error) { o.Handler.Closed(name, err) },
	}), nil
}

// newStream makes the client's end of a call: seal gives the sealed message form of an update, feedback what is in an
// answer.
func newStream[U, Request, Response any](
	call grpc.BidiStreamingClient[Request, Response], c *trust.Credentials,
	seal func(U, ed25519.PrivateKey) (*Request, error), feedback func(*Response) *pb.Feedback,
) session.Stream[U, cats.Feedback] {
	return session.Stream[U, cats.Feedback]{
		Header: call.Header,
		Send: func(u U) error {
			key, err := c.SigningKey()
			if err != nil {
				return err
			}
			m, err := seal(u, key)
			if err != nil {
				return err
			}
			return call.Send(m)
		},
		Receive: func() (cats.Feedback, error) {
			m, err := call.Recv()
			if err != nil {
				return cats.Feedback{}, err
			}
			return v1alpha1.DecodeFeedback(feedback(m))
		},
	}
}
