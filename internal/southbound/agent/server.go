package agent

import (
	"cmp"

	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/session"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// Session is the C-PS's end of the session of one forwarder. A batch that is sent must not be touched afterwards.
type Session = session.Session[cats.SteeringBatch]

// ServerHandler takes what happens on the sessions of the forwarders. The calls for one session come from one
// goroutine, in order: batches and refusals, then Closed; those of the next session of the same forwarder come after.
// While one blocks, nothing more of that session is read.
type ServerHandler interface {
	// Batch brings a message; the first of a session has the Hello, whole. It is not touched afterwards.
	Batch(s *Session, b cats.ForwarderBatch)
	// Refused tells of a message that breaks the contract, which ends the session; it is to be audited and counted.
	Refused(s *Session, reason cats.Reason, detail string)
	Closed(s *Session) // Session.Cause tells why
}

// Server is the C-PS's end of the sessions of the forwarders, one each: a later one takes the place of an earlier one.
type Server struct {
	pb.UnimplementedSteeringServiceServer
	handler ServerHandler
	table   *session.Table[cats.SteeringBatch]
}

// NewServer makes a Server; Register puts it to work.
func NewServer(h ServerHandler) *Server {
	return &Server{handler: h, table: session.NewTable[cats.SteeringBatch](queueLength)}
}

// Methods is which roles may call what, for the trust.Guard of the server.
func Methods() trust.Methods {
	return trust.Methods{pb.SteeringService_Steer_FullMethodName: {trust.Forwarder}}
}

// Register makes r answer for s. r has to authenticate its peers as trust.NewServer does.
func (s *Server) Register(r grpc.ServiceRegistrar) { pb.RegisterSteeringServiceServer(r, s) }

// Open gives how many sessions there are.
func (s *Server) Open() int { return s.table.Open() }

// Wait returns when nothing of the Server runs any more; stop its gRPC server first.
func (s *Server) Wait() { s.table.Wait() }

// Steer is the session of a forwarder.
func (s *Server) Steer(call pb.SteeringService_SteerServer) error {
	var reader v1alpha1.ForwarderReader
	return session.Serve(s.table, call, session.Call[*pb.SteerRequest, cats.SteeringBatch]{
		Receive: call.Recv,
		Send: func(b cats.SteeringBatch) error {
			for _, m := range v1alpha1.EncodeSteering(&b) {
				if err := call.Send(m); err != nil {
					return err
				}
			}
			return nil
		},
		Opened: func(*Session) {}, // its Hello opens it for the core
		Take: func(from *Session, m *pb.SteerRequest) error {
			b, err := reader.Next(m)
			if err != nil {
				s.handler.Refused(from, cmp.Or(cats.ReasonOf(err), cats.ReasonMalformed), err.Error())
				return err
			}
			if !b.IsEmpty() { // else a part of a Hello
				s.handler.Batch(from, b)
			}
			return nil
		},
		Closed: s.handler.Closed,
	})
}
