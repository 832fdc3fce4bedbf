package trust

import (
	"net"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/margay-net/margay/cats"
)

// channel is an open connection of a verified peer.
type channel struct {
	net.Conn
	peer Identity
	all  *channels
}

// Close closes the connection; the server closes each of its connections once it is done with it.
func (c *channel) Close() error {
	c.all.remove(c)
	return c.Conn.Close()
}

// channels are the open connections of a server.
type channels struct {
	mutex sync.Mutex // guards open
	open  map[*channel]struct{}
}

func (s *channels) add(c *channel) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.open == nil {
		s.open = map[*channel]struct{}{}
	}
	s.open[c] = struct{}{}
}

func (s *channels) remove(c *channel) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.open, c)
}

func (s *channels) list() []*channel {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	list := make([]*channel, 0, len(s.open))
	for c := range s.open {
		list = append(list, c)
	}
	return list
}

// admitted notes a connection that a handshake has just admitted.
func (g *Guard) admitted(conn net.Conn, info credentials.AuthInfo) (net.Conn, error) {
	tls, ok := info.(credentials.TLSInfo)
	if !ok || len(tls.State.PeerCertificates) == 0 {
		return nil, &Refusal{Why: "the channel is not authenticated"}
	}
	peer, err := CertificateIdentity(tls.State.PeerCertificates[0])
	if err != nil {
		return nil, err
	}
	c := &channel{Conn: conn, peer: peer, all: &g.channels}
	g.channels.add(c)
	g.recheck(c) // the roster may have been replaced since the handshake looked
	return c, nil
}

// recheck closes a channel whose peer is not on the roster any more.
func (g *Guard) recheck(c *channel) {
	if err := g.Authorize(c.peer); err != nil {
		g.count.Inc(cats.ReasonUnauthorized)
		g.audit.Record("channel-closed", c.peer.String(), c.LocalAddr().String(), cats.ReasonUnauthorized, "the configuration changed: "+err.Error())
		_ = c.Close() // its only reader and writer, the server, learns of it
	}
}
