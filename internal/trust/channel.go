package trust

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// The limits of every channel. A peer beyond them waits. What a message may be at the most is v1alpha1.MaxMessageOctets.
const (
	MaxConnections = 1024 // of one listener
	MaxStreams     = 256  // open at once on one connection
)

const (
	handshakeTimeout = 10 * time.Second
	// A peer that answers nothing for keepaliveTime and then keepaliveTimeout is gone.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// Reconnection backs off 1, 2, 4, 8 … 60 s (C-SMA section 10.2).
	firstRetry = time.Second
	lastRetry  = 60 * time.Second
)

// NewServer makes a gRPC server that admits whom guard admits and holds the limits of this package.
func NewServer(c *Credentials, guard *Guard, more ...grpc.ServerOption) *grpc.Server {
	config := c.ServerConfig(guard.Authorize)
	options := []grpc.ServerOption{
		grpc.Creds(&serverCredentials{credentials.NewTLS(config), guard}),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(MaxStreams),
		grpc.MaxRecvMsgSize(v1alpha1.MaxMessageOctets),
		grpc.MaxSendMsgSize(v1alpha1.MaxMessageOctets),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime / 2, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(guard.unary),
		grpc.ChainStreamInterceptor(guard.stream),
	}
	return grpc.NewServer(append(options, more...)...)
}

// Listen opens a listener for a server of this package; beyond MaxConnections it accepts nobody until one has closed.
func Listen(address endpoint.Address) (net.Listener, error) {
	listener, err := address.Listen()
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(listener, MaxConnections), nil
}

// Dial makes the client of a channel to expect. It connects on first use and again whenever the channel breaks. A peer
// that is not expect is refused and audited; audit may be nil for a program that has no audit log.
func (c *Credentials) Dial(address endpoint.Address, expect Identity, audit Auditor, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	network, where := address.Network()
	target := "passthrough:///" + where
	if network == "unix" {
		target = "unix:" + where
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(&clientCredentials{credentials.NewTLS(c.ClientConfig(expect)), c.self, expect, audit}),
		grpc.WithNoProxy(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry, Multiplier: 2, Jitter: 0.2, MaxDelay: lastRetry},
			MinConnectTimeout: handshakeTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(v1alpha1.MaxMessageOctets), grpc.MaxCallSendMsgSize(v1alpha1.MaxMessageOctets)),
	}
	conn, err := grpc.NewClient(target, append(options, more...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s at %s: %w", expect, address, err)
	}
	return conn, nil
}

// serverCredentials audits the handshakes that fail, and notes the channels of those that do not.
type serverCredentials struct {
	credentials.TransportCredentials
	guard *Guard
}

func (s *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.TransportCredentials.ServerHandshake(raw)
	if err == nil {
		conn, err = s.guard.admitted(conn, info)
	}
	// A peer that hangs up at once, like a port check, has asked for nothing.
	if err != nil && !errors.Is(err, io.EOF) {
		s.guard.handshakeRefused(raw.RemoteAddr(), raw.LocalAddr(), err)
	}
	return conn, info, err
}

func (s *serverCredentials) Clone() credentials.TransportCredentials {
	return &serverCredentials{s.TransportCredentials.Clone(), s.guard}
}

// clientCredentials audits the peers that are not who they should be, and waits until the peer has accepted us.
type clientCredentials struct {
	credentials.TransportCredentials
	self   Identity
	expect Identity
	audit  Auditor // may be nil
}

func (s *clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.TransportCredentials.ClientHandshake(ctx, authority, raw)
	var refusal *Refusal
	if s.audit != nil && errors.As(err, &refusal) {
		s.audit.Record("peer-refused", refusal.Peer.String(), s.expect.String(), cats.ReasonUnauthorized, "at "+raw.RemoteAddr().String()+": "+err.Error())
	}
	if err != nil {
		return nil, nil, err
	}
	accepted, err := awaitAcceptance(ctx, conn)
	if err != nil {
		_ = conn.Close() // err says more
		if strings.Contains(err.Error(), "remote error: tls: ") {
			err = fmt.Errorf("%s refused our certificate, %s (its audit log says why): %w: %w", s.expect, s.self, cats.ReasonUnauthorized, err)
		}
		return nil, nil, err
	}
	return accepted, info, nil
}

func (s *clientCredentials) Clone() credentials.TransportCredentials {
	return &clientCredentials{s.TransportCredentials.Clone(), s.self, s.expect, s.audit}
}

// awaitAcceptance waits for the first octet of the peer's HTTP/2 settings. In TLS 1.3 our side of the handshake is done
// before the peer has looked at our certificate. Were we to send at once, its refusal would be lost in the reset of the
// connection, and all that the caller learned would be "broken pipe".
func awaitAcceptance(ctx context.Context, conn net.Conn) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // fails only on a closed one
	first := make([]byte, 1)
	_, err := io.ReadFull(conn, first)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return &acceptedConn{Conn: conn, first: first}, nil
}

// acceptedConn gives back what awaitAcceptance took.
type acceptedConn struct {
	net.Conn
	first []byte // not read yet; the transport reads from one goroutine
}

func (c *acceptedConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
