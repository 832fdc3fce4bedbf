package grpc

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/session"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// queueLength is how many reports, or verdicts, may wait to be sent in one session.
const queueLength = 64

// ClientHandler takes what happens on the channel to the C-SMA. It is called from the goroutine of Run, in order: Opened,
// Verdict and Pull, Closed, and so on.
type ClientHandler interface {
	Opened()
	Verdict(v cats.ReportVerdict)
	Pull() // the C-SMA wants a full report now
	// Closed also comes where a session could not be opened at all. The error says why.
	Closed(err error)
}

// ClientOptions are what a Client is made of.
type ClientOptions struct {
	Credentials *trust.Credentials // of an SCI agent
	Peer        config.Peer        // the C-SMA
	Audit       trust.Auditor      // is told of a peer that is not the C-SMA
	Handler     ClientHandler
}

// answer is one message of the C-SMA: a verdict, or a pull where it is nil.
type answer struct{ verdict *cats.ReportVerdict }

// Client keeps a session with the C-SMA. Run works until its context ends and tries again after 1, 2, 4 … 60 s; Send
// takes a report for the session, never blocks, and tells whether there was one.
type Client = session.Client[cats.SCIReport, answer]

// NewClient makes a Client. It dials when it runs.
func NewClient(o ClientOptions) *Client {
	return session.NewClient(session.ClientOptions[cats.SCIReport, answer]{
		Credentials: o.Credentials, Address: o.Peer.Address, Peer: o.Credentials.Peer(trust.CSMA, string(o.Peer.Name)), Audit: o.Audit, Length: queueLength,
		Open:   open,
		Opened: o.Handler.Opened,
		Received: func(a answer) {
			if a.verdict != nil {
				o.Handler.Verdict(*a.verdict)
			} else {
				o.Handler.Pull()
			}
		},
		Closed: o.Handler.Closed,
	})
}

func open(ctx context.Context, conn *grpc.ClientConn) (s session.Stream[cats.SCIReport, answer], err error) {
	call, err := pb.NewCollectServiceClient(conn).Collect(ctx)
	if err != nil {
		return s, err
	}
	return session.Stream[cats.SCIReport, answer]{
		Header: call.Header,
		Send: func(r cats.SCIReport) error {
			return call.Send(&pb.CollectRequest{Report: v1alpha1.EncodeReport(&r)})
		},
		Receive: func() (answer, error) {
			m, err := call.Recv()
			if err != nil || m.GetPull() != nil {
				return answer{}, err
			}
			v, err := v1alpha1.DecodeVerdict(m.GetVerdict())
			return answer{&v}, err
		},
	}, nil
}
