package grpc

import (
	"cmp"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/session"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// Session is the C-SMA's end of the channel of one SCI agent: what is sent to it are verdicts on its reports.
type Session = session.Session[cats.ReportVerdict]

// ServerHandler takes what happens on the sessions of the SCI agents. The calls for one session come from one goroutine,
// in order: Opened, then reports, then Closed; those of the next session of the same agent come after. While one blocks,
// nothing more of that session is read.
type ServerHandler interface {
	Opened(s *Session)
	// Report brings a well-formed report of the agent s.Peer().Name; it has to be answered with its verdict, by
	// Session.Send, from whichever goroutine.
	Report(s *Session, r cats.SCIReport)
	// Refused tells of a report that is malformed or one too many, which the agent is told already; it is to be counted,
	// and audited at a bounded rate.
	Refused(s *Session, reason cats.Reason, detail string)
	Closed(s *Session) // Session.Cause tells why
}

// Limit is how many reports an SCI agent may send: in a second, on average, and at once.
type Limit struct {
	Rate  float64
	Burst int
}

// Server is the C-SMA's end of the channels of the SCI agents.
type Server struct {
	pb.UnimplementedCollectServiceServer
	handler ServerHandler
	table   *session.Table[cats.ReportVerdict]
	limit   func(agent string) Limit

	mutex    sync.Mutex               // guards limiters
	limiters map[string]*rate.Limiter // by agent; a new session does not fill them
}

// NewServer makes a Server; Register puts it to work. limit gives what holds for an agent now; it is called from any
// goroutine.
func NewServer(h ServerHandler, limit func(agent string) Limit) *Server {
	return &Server{
		handler: h, table: session.NewTable[cats.ReportVerdict](queueLength), limit: limit, limiters: make(map[string]*rate.Limiter),
	}
}

// Methods is which roles may call what, for the trust.Guard of the server.
func Methods() trust.Methods {
	return trust.Methods{pb.CollectService_Collect_FullMethodName: {trust.SCI}}
}

// Register makes r answer for s. r has to authenticate its peers as trust.NewServer does.
func (s *Server) Register(r grpc.ServiceRegistrar) { pb.RegisterCollectServiceServer(r, s) }

// Drop ends the session of an agent, such as one that a reload took off the roster, and forgets it.
func (s *Server) Drop(agent trust.Identity, why error) {
	s.table.Close(agent, why)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.limiters, agent.Name)
}

// admit takes one report of an agent off its limit, or gives ReasonOverload (C-SMA section 12).
func (s *Server) admit(agent string) error {
	limit := s.limit(agent)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	l := s.limiters[agent]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(limit.Rate), limit.Burst)
		s.limiters[agent] = l
	}
	if l.Limit() != rate.Limit(limit.Rate) || l.Burst() != limit.Burst { // a reload
		l.SetLimit(rate.Limit(limit.Rate))
		l.SetBurst(limit.Burst)
	}
	if !l.Allow() {
		return fmt.Errorf("more than %g reports a second, or %d at once: %w", limit.Rate, limit.Burst, cats.ReasonOverload)
	}
	return nil
}

// Open gives how many agents have a session.
func (s *Server) Open() int { return s.table.Open() }

// Wait returns when nothing of the Server runs any more; stop its gRPC server first.
func (s *Server) Wait() { s.table.Wait() }

// Collect is the session of an SCI agent.
func (s *Server) Collect(call pb.CollectService_CollectServer) error {
	return session.Serve(s.table, call, session.Call[*pb.CollectRequest, cats.ReportVerdict]{
		Receive: call.Recv,
		Send: func(v cats.ReportVerdict) error {
			return call.Send(&pb.CollectResponse{Message: &pb.CollectResponse_Verdict{Verdict: v1alpha1.EncodeVerdict(v)}})
		},
		Opened: s.handler.Opened,
		Take: func(from *Session, m *pb.CollectRequest) error {
			err := s.admit(from.Peer().Name)
			if err == nil {
				var r cats.SCIReport
				if r, err = v1alpha1.DecodeReport(m.GetReport()); err == nil {
					s.handler.Report(from, r)
					return nil
				}
			}
			reason := cmp.Or(cats.ReasonOf(err), cats.ReasonMalformed)
			from.Send(cats.ReportVerdict{
				Epoch: m.GetReport().GetEpoch(), Sequence: m.GetReport().GetSeq(),
				Disposal: cats.ReportRefused, Reason: reason, Detail: err.Error(),
			})
			s.handler.Refused(from, reason, err.Error())
			return nil
		},
		Closed: s.handler.Closed,
	})
}
