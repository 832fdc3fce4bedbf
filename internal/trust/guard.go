package trust

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/margay-net/margay/cats"
)

// Roster is who may open a channel: the names allowed of each role. A role that is absent has no access.
type Roster map[Role][]string

// AnyName in a roster allows every name of the role that the authority signed.
const AnyName = "*"

// Methods is which roles may call each method; the keys are full gRPC names ("/package.Service/Method"). A method that
// is absent is refused to everybody.
type Methods map[string][]Role

// Auditor keeps records of refusals; *audit.Log is one. It may block until there is room.
type Auditor interface {
	// Record never drops.
	Record(event, subject, object string, reason cats.Reason, detail string)
	// RecordFrom is Record for what a peer can cause at will: of one event and source only so much is recorded at a
	// time, and the rest is counted and summarized. It tells whether this one is recorded.
	RecordFrom(source, event, subject, object string, reason cats.Reason, detail string) bool
}

// Counter counts refusals by reason; *observe.Reasons is one.
type Counter interface{ Inc(cats.Reason) }

// Guard admits the peers of one server: at the handshake by its roster, at each call by its methods and its roster.
type Guard struct {
	roster   atomic.Pointer[Roster]
	methods  Methods
	audit    Auditor
	count    Counter
	channels channels
}

// NewGuard makes a Guard. methods is not changed afterwards.
func NewGuard(roster Roster, methods Methods, audit Auditor, count Counter) *Guard {
	g := &Guard{methods: methods, audit: audit, count: count}
	g.SetRoster(roster)
	return g
}

// SetRoster replaces the roster, as a reload does, and closes the channels of those who are not on it any more; roster
// is not changed afterwards.
func (g *Guard) SetRoster(roster Roster) {
	g.roster.Store(&roster)
	for _, c := range g.channels.list() {
		g.recheck(c)
	}
}

// Authorize is the Guard's Authorizer: it looks the peer up in the roster.
func (g *Guard) Authorize(id Identity) error {
	names, ok := (*g.roster.Load())[id.Role]
	if !ok {
		return fmt.Errorf("role %s has no access here", id.Role)
	}
	if !slices.Contains(names, id.Name) && !slices.Contains(names, AnyName) {
		return fmt.Errorf("no %s of the name %q is configured here", id.Role, id.Name)
	}
	return nil
}

// PeerIdentity gives the verified identity of the peer that a server's handler was called by.
func PeerIdentity(ctx context.Context) (Identity, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Identity{}, &Refusal{Why: "the call came over no channel"}
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return Identity{}, &Refusal{Why: "the channel is not authenticated"}
	}
	return CertificateIdentity(info.State.PeerCertificates[0])
}

func (g *Guard) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := g.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

func (g *Guard) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := g.admit(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(server, stream)
}

// admit gives nil or a gRPC status: Unauthenticated or PermissionDenied.
func (g *Guard) admit(ctx context.Context, method string) error {
	id, err := PeerIdentity(ctx)
	if err != nil {
		g.refused("unknown", "call-refused", "unknown", method, err)
		return status.Error(codes.Unauthenticated, err.Error())
	}
	err = g.Authorize(id)
	if err == nil && !slices.Contains(g.methods[method], id.Role) {
		err = fmt.Errorf("role %s may not call %s", id.Role, method)
	}
	if err != nil {
		g.refused(id.String(), "call-refused", id.String(), method, err)
		return status.Error(codes.PermissionDenied, (&Refusal{id, err.Error()}).Error())
	}
	return nil
}

// refused counts, and audits at a bounded rate.
func (g *Guard) refused(source, event, subject, object string, err error) {
	g.count.Inc(cats.ReasonUnauthorized)
	g.audit.RecordFrom(source, event, subject, object, cats.ReasonUnauthorized, err.Error())
}

// handshakeRefused is for a peer that never got a channel. It may have shown any certificate, so that only its address
// tells it from others.
func (g *Guard) handshakeRefused(remote, local net.Addr, err error) {
	from, source := remote.String(), "a process of this machine"
	if tcp, ok := remote.(*net.TCPAddr); ok {
		source = cats.ClientOf(tcp.AddrPort().Addr()).String()
	} else {
		from = source // the other end of a Unix socket, which has no name
	}
	subject := from
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Peer != (Identity{}) {
		subject = refusal.Peer.String()
	}
	g.refused(source, "channel-refused", subject, local.String(), fmt.Errorf("from %s: %w", from, err))
}
