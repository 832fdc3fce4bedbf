package forwarder

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	core "github.com/margay-net/margay/internal/forwarder"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/wire/catsreq"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// server is a gRPC server on one address.
type server struct {
	grpc     *grpc.Server
	listener net.Listener
}

// methods is who may call what.
var methods = trust.Methods{
	pb.ForwarderService_Announce_FullMethodName:         {trust.Client, trust.Operator},
	pb.ForwarderService_GetCounters_FullMethodName:      {trust.Operator},
	pb.ForwarderService_ListHeldBindings_FullMethodName: {trust.Operator},
	pb.ForwarderService_ListPendingFlows_FullMethodName: {trust.Operator},
}

// listen opens the forwarder's own service on every configured address.
func (a *App) listen() (servers []*server, err error) {
	a.guard = trust.NewGuard(a.config.roster(), methods, a.base.Audit, a.base.Refusals)
	for _, address := range a.config.Listen {
		l, err := trust.Listen(address)
		if err != nil {
			return servers, err
		}
		s := &server{trust.NewServer(a.base.Trust, a.guard), l}
		pb.RegisterForwarderServiceServer(s.grpc, &service{app: a})
		servers = append(servers, s)
	}
	return servers, nil
}

// service answers the calls of clients and operators.
type service struct {
	pb.UnimplementedForwarderServiceServer
	app *App
}

// ask has the owner run f, and waits for it.
func (s *service) ask(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if !s.app.hand(event{call: func() { defer close(ran); f() }}) {
		return status.Error(codes.Unavailable, "the forwarder stops")
	}
	select {
	case <-ran:
		return nil
	case <-s.app.stop:
		return status.Error(codes.Unavailable, "the forwarder stops")
	}
}

// Announce keeps request metadata for a coming flow.
func (s *service) Announce(ctx context.Context, m *pb.AnnounceRequest) (*pb.AnnounceResponse, error) {
	caller, err := trust.PeerIdentity(ctx)
	if err != nil {
		return nil, err
	}
	a, err := decodeAnnouncement(m)
	if err != nil {
		return nil, s.refused(caller, err)
	}
	a.By = caller.String()
	answers := make(chan core.AnnounceAnswer, 1)
	var denied error
	if err := s.ask(ctx, func() {
		if denied = s.app.config.mayAnnounce(caller, a.Tuple.Source.Addr()); denied == nil {
			s.app.announce(a, answers)
		}
	}); err != nil {
		return nil, err
	}
	if denied != nil {
		return nil, s.refused(caller, denied)
	}
	select {
	case answer := <-answers:
		if answer.Reason != cats.ReasonNone {
			return nil, failed(answer.Reason, answer.Detail)
		}
		return &pb.AnnounceResponse{
			ValidMs: uint32(answer.For.Milliseconds()), CsId: string(answer.CSID), Constraints: v1alpha1.EncodeConstraints(a.Constraints),
		}, nil
	case <-s.app.stop:
		return nil, status.Error(codes.Unavailable, "the forwarder stops")
	}
}

// refused counts and audits an announcement that does not come to the core, and gives the status of its call.
func (s *service) refused(caller trust.Identity, err error) error {
	reason := cmp.Or(cats.ReasonOf(err), cats.ReasonMalformed)
	s.app.base.Refusals.Inc(reason)
	s.app.base.Audit.RecordFrom(caller.String(), "announce-refused", caller.String(), s.app.name, reason, err.Error())
	return failed(err, err.Error())
}

// announce gives the core an announcement, whose answer goes to answers.
func (a *App) announce(m core.Announcement, answers chan core.AnnounceAnswer) {
	a.token++
	m.Token = a.token
	a.answers[m.Token] = answers
	a.in.Announcements = append(a.in.Announcements, m)
}

func decodeAnnouncement(m *pb.AnnounceRequest) (a core.Announcement, err error) {
	if m.GetAttachment() != "" {
		if a.Attachment, err = cats.ParseName("attachment", m.GetAttachment()); err != nil {
			return a, errors.Join(err, cats.ReasonMalformed)
		}
	}
	if a.Tuple, err = v1alpha1.DecodeTuple(m.GetTuple()); err != nil {
		return a, err
	}
	request, err := catsreq.DecodeBody(m.GetBody())
	if err != nil {
		return a, err
	}
	a.Constraints, a.Generation = request.Constraints, request.Generation
	a.Identity = core.Identity{Name: request.Identity.Name, Number: request.Identity.Number, Address: request.Identity.Address}
	return a, nil
}

// GetCounters gives the packet counters.
func (s *service) GetCounters(ctx context.Context, _ *pb.GetCountersRequest) (*pb.GetCountersResponse, error) {
	var r *pb.GetCountersResponse
	var failure error
	if err := s.ask(ctx, func() { r, failure = s.app.counters() }); err != nil {
		return nil, err
	}
	return r, failure
}

// counters runs in the owner.
func (a *App) counters() (*pb.GetCountersResponse, error) {
	counters, err := a.system.plane.Counters()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	r := &pb.GetCountersResponse{
		Forwarder: a.name, ServiceRequests: a.totals.Requests, Held: counters.Held.Packets, Released: a.totals.Released,
		Bindings: uint64(len(a.system.halves.placed)), Capacity: uint64(a.config.Bindings),
	}
	for _, t := range treatments(&counters) {
		r.Packets = append(r.Packets, &pb.PacketCounter{Kind: t.name, Packets: t.Packets, Octets: t.Octets})
	}
	drops := dropped(&counters, a.totals.Drops)
	for _, reason := range cats.Reasons() {
		r.Drops = append(r.Drops, &pb.DropCounter{Reason: v1alpha1.EncodeReason(reason), Packets: drops[reason]})
	}
	return r, nil
}

// The bounds of one list of bindings.
const (
	defaultList = 1024
	mostList    = 16384
)

// ListHeldBindings gives the binding records, in the order of their transactions.
func (s *service) ListHeldBindings(ctx context.Context, m *pb.ListHeldBindingsRequest) (*pb.ListHeldBindingsResponse, error) {
	limit := int(m.GetLimit())
	if limit == 0 {
		limit = defaultList
	}
	after := m.GetAfter()
	if limit > mostList || len(after) != 0 && len(after) != len(cats.Transaction{}) {
		return nil, status.Errorf(codes.InvalidArgument, "limit %d, after %d octets: need a limit up to %d, and a transaction of 16 octets or none", limit, len(after), mostList)
	}
	var views []core.BindingView
	var now cats.Instant
	if err := s.ask(ctx, func() { views, now = s.app.core.Bindings(), s.app.clock.now() }); err != nil {
		return nil, err
	}
	r := &pb.ListHeldBindingsResponse{}
	for i := range views {
		v := &views[i]
		if len(after) != 0 && string(v.Binding.Transaction[:]) <= string(after) {
			continue
		}
		// Both halves of one binding stay together, so that the next list can go on after it.
		if n := len(r.Bindings); n >= limit && string(r.Bindings[n-1].Binding.Transaction) != string(v.Binding.Transaction[:]) {
			r.More = true
			break
		}
		r.Bindings = append(r.Bindings, encodeView(v, now))
	}
	return r, nil
}

func encodeView(v *core.BindingView, now cats.Instant) *pb.HeldHalf {
	m := &pb.HeldHalf{
		Half: pb.Half_HALF_INGRESS, Binding: v1alpha1.EncodeBinding(&v.Binding), State: v1alpha1.EncodeFlowState(state(v)),
		Forward: v1alpha1.EncodeUsage(v.Forward), Reverse: v1alpha1.EncodeUsage(v.Reverse),
	}
	if v.Half == cats.EgressHalf {
		m.Half = pb.Half_HALF_EGRESS
	}
	if v.InForce && v.LastSeen > 0 {
		idle := uint64(max(0, now.Sub(v.LastSeen)).Milliseconds())
		m.IdleForMs = &idle
	}
	return m
}

func state(v *core.BindingView) cats.FlowState {
	switch {
	case v.Draining:
		return cats.Draining
	case !v.InForce:
		return cats.BindingReady
	}
	return cats.Active
}

// ListPendingFlows gives the flows that wait for a decision.
func (s *service) ListPendingFlows(ctx context.Context, _ *pb.ListPendingFlowsRequest) (*pb.ListPendingFlowsResponse, error) {
	var views []core.PendingView
	var now cats.Instant
	if err := s.ask(ctx, func() { views, now = s.app.core.Pending(), s.app.clock.now() }); err != nil {
		return nil, err
	}
	r := &pb.ListPendingFlowsResponse{}
	for _, v := range views {
		r.Flows = append(r.Flows, &pb.PendingFlow{
			Transaction: v.Transaction[:], FlowKey: v1alpha1.EncodeFlowKey(v.Key), Packets: uint32(v.Packets), Octets: uint32(v.Octets),
			RemainingMs: uint32(max(0, v.Deadline.Sub(now)) / time.Millisecond),
		})
	}
	return r, nil
}

// failed gives the status of a refusal; its message begins with the reason.
func failed(err error, detail string) error {
	reason := cmp.Or(cats.ReasonOf(err), cats.ReasonMalformed)
	code := codes.FailedPrecondition
	switch reason {
	case cats.ReasonMalformed, cats.ReasonVersion, cats.ReasonUnknownType, cats.ReasonDuplicate, cats.ReasonBadPacket:
		code = codes.InvalidArgument
	case cats.ReasonUnauthorized:
		code = codes.PermissionDenied
	case cats.ReasonUnknownService:
		code = codes.NotFound
	case cats.ReasonOverload:
		code = codes.ResourceExhausted
	}
	return status.Errorf(code, "%s: %s", reason, detail)
}

var _ run.App[Config] = (*App)(nil)
