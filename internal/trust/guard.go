package trust

import (
	"context"
	"errors"
	"fmt"
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

// Auditor keeps a record of a refusal; *audit.Log is one. It may block until there is room, and never drops.
type Auditor interface {
	Record(event, subject, object string, reason cats.Reason, detail string)
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
		g.refused("call-refused", "unknown", method, err)
		return status.Error(codes.Unauthenticated, err.Error())
	}
	err = g.Authorize(id)
	if err == nil && !slices.Contains(g.methods[method], id.Role) {
		err = fmt.Errorf("role %s may not call %s", id.Role, method)
	}
	if err != nil {
		g.refused("call-refused", id.String(), method, err)
		return status.Error(codes.PermissionDenied, (&Refusal{id, err.Error()}).Error())
	}
	return nil
}

// refused audits and counts.
func (g *Guard) refused(event, subject, object string, err error) {
	g.count.Inc(cats.ReasonUnauthorized)
	g.audit.Record(event, subject, object, cats.ReasonUnauthorized, err.Error())
}

// handshakeRefused is for a peer that never got a channel.
func (g *Guard) handshakeRefused(remote, local string, err error) {
	if remote == "" || remote == "@" {
		remote = "a process of this machine" // at the other end of a Unix socket, which has no name
	}
	subject := remote
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Peer != (Identity{}) {
		subject = refusal.Peer.String()
	}
	g.refused("channel-refused", subject, local, fmt.Errorf("from %s: %w", remote, err))
}
