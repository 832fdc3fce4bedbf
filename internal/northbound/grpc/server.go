package grpc

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/session"
	"github.com/margay-net/margay/internal/wire/sealed"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// Session is the C-PS's end of the channel of one source: what may be sent to it is feedback. The first has to be
// FeedbackHello.
type Session = session.Session[cats.Feedback]

// ServerHandler takes what happens on the sessions of the sources. The calls for one session come from one goroutine, in
// order: Opened, then updates and refusals, then Closed; those of the next session of the same source come after. While
// one blocks, nothing more of that session is read.
type ServerHandler interface {
	// Opened has to be answered with FeedbackHello, by Session.Send, from whichever goroutine.
	Opened(s *Session)
	// MetricUpdate and NetworkUpdate bring updates whose sender, seal, timestamp and nonce are good; each has to be
	// answered with FeedbackApplied, FeedbackRefused or FeedbackNeedFull.
	MetricUpdate(s *Session, u cats.MetricUpdate)
	NetworkUpdate(s *Session, u cats.NetworkUpdate)
	// Refused tells of an update that was not let through, which the source is told already; it is to be audited and
	// counted.
	Refused(s *Session, reason cats.Reason, detail string)
	Closed(s *Session) // Session.Cause tells why
}

// ServerOptions are what a Server is made of.
type ServerOptions struct {
	Handler   ServerHandler
	Tolerance time.Duration // of timestamps; zero: 30 s
}

// Server is the C-PS's end of the channels of C-SMAs and C-NMAs.
type Server struct {
	pb.UnimplementedMetricServiceServer
	handler ServerHandler
	table   *session.Table[cats.Feedback]

	mutex   sync.Mutex // guards windows
	windows map[trust.Role]*sealed.Window
}

// NewServer makes a Server; Register puts it to work.
func NewServer(o ServerOptions) *Server {
	return &Server{
		handler: o.Handler,
		table:   session.NewTable[cats.Feedback](queueLength),
		windows: map[trust.Role]*sealed.Window{trust.CSMA: sealed.NewWindow(o.Tolerance), trust.CNMA: sealed.NewWindow(o.Tolerance)},
	}
}

// Methods is which roles may call what, for the trust.Guard of the server.
func Methods() trust.Methods {
	return trust.Methods{
		pb.MetricService_ReportMetrics_FullMethodName: {trust.CSMA},
		pb.MetricService_ReportNetwork_FullMethodName: {trust.CNMA},
	}
}

// Register makes r answer for s. r has to authenticate its peers as trust.NewServer does.
func (s *Server) Register(r grpc.ServiceRegistrar) { pb.RegisterMetricServiceServer(r, s) }

// Restore raises the nonce that the updates of a source must exceed, to the last one applied before a restart.
func (s *Server) Restore(role trust.Role, source string, epoch, sequence uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.windows[role].Restore(source, sealed.Nonce{Epoch: epoch, Sequence: sequence})
}

// Drop ends the session of a source, such as one that a reload took off the roster.
func (s *Server) Drop(source trust.Identity, why error) { s.table.Close(source, why) }

// Wait returns when nothing of the Server runs any more; stop its gRPC server first.
func (s *Server) Wait() { s.table.Wait() }

// ReportMetrics is the session of a C-SMA.
func (s *Server) ReportMetrics(call pb.MetricService_ReportMetricsServer) error {
	return serve(s, call, func(f *pb.Feedback) *pb.ReportMetricsResponse { return &pb.ReportMetricsResponse{Feedback: f} },
		func(from *Session, key ed25519.PublicKey, m *pb.ReportMetricsRequest) error {
			if m.GetUpdate() == nil {
				return fmt.Errorf("a message without an update: %w", cats.ReasonUnknownType)
			}
			u, auth, err := v1alpha1.DecodeMetricUpdate(m.GetUpdate())
			if err != nil {
				return err
			}
			if err := s.verify(from, key, &u.UpdateHeader, auth, func() []byte { return sealed.CanonicalMetricUpdate(&u) }); err != nil {
				return err
			}
			s.handler.MetricUpdate(from, u)
			return nil
		})
}

// ReportNetwork is the session of a C-NMA.
func (s *Server) ReportNetwork(call pb.MetricService_ReportNetworkServer) error {
	return serve(s, call, func(f *pb.Feedback) *pb.ReportNetworkResponse { return &pb.ReportNetworkResponse{Feedback: f} },
		func(from *Session, key ed25519.PublicKey, m *pb.ReportNetworkRequest) error {
			u, auth, err := v1alpha1.DecodeNetworkUpdate(m.GetUpdate())
			if err != nil {
				return err
			}
			if err := s.verify(from, key, &u.UpdateHeader, auth, func() []byte { return sealed.CanonicalNetworkUpdate(&u) }); err != nil {
				return err
			}
			s.handler.NetworkUpdate(from, u)
			return nil
		})
}

// serve works on one call: take hands a message's update to the handler, or gives the reason why not.
func serve[Request, Response any](
	s *Server, call grpc.BidiStreamingServer[Request, Response],
	answer func(*pb.Feedback) *Response, take func(*Session, ed25519.PublicKey, *Request) error,
) error {
	key, err := trust.PeerSigningKey(call.Context())
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return session.Serve(s.table, call, session.Call[*Request, cats.Feedback]{
		Receive: call.Recv,
		Send:    func(f cats.Feedback) error { return call.Send(answer(v1alpha1.EncodeFeedback(&f))) },
		Opened:  s.handler.Opened,
		Take: func(from *Session, m *Request) error {
			err := take(from, key, m)
			if err == nil {
				return nil
			}
			reason, text := cmp.Or(cats.ReasonOf(err), cats.ReasonMalformed), err.Error()
			late, only := errors.AsType[*lateError](err)
			if only { // this update is lost, and the session goes on
				from.Send(cats.Feedback{Kind: cats.FeedbackRefused, Epoch: late.epoch, Sequence: late.sequence, Reason: reason, Detail: text})
				err = nil
			}
			s.handler.Refused(from, reason, text)
			return err
		},
		Closed: s.handler.Closed,
	})
}

// verify checks who an update is from, its seal, timestamp and nonce (C-SMA section 8.3).
func (s *Server) verify(from *Session, key ed25519.PublicKey, h *cats.UpdateHeader, auth cats.Auth, octets func() []byte) error {
	source := from.Peer()
	if h.Source != source.Name {
		return fmt.Errorf("an update of %q on the channel of %s: %w", h.Source, source, cats.ReasonUnauthorized)
	}
	keys := sealed.Keys{Ed25519: map[string]ed25519.PublicKey{source.Name: key}}
	if err := keys.Verify(octets(), auth); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.windows[source.Role].Accept(time.Now(), h); err != nil {
		return &lateError{err, h.Epoch, h.Sequence}
	}
	return nil
}

// lateError is a replayed, delayed or misdated update: refused, but no reason to end the session.
type lateError struct {
	error
	epoch, sequence uint64
}

// Unwrap gives the error of the window.
func (e *lateError) Unwrap() error { return e.error }
