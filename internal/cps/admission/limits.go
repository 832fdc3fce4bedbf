// Package admission bounds what clients can make the C-PS hold: transactions under way in all, per tenant and per
// client (CP section 12), and the request generations that it remembers (CP section 8.2).
package admission

import (
	"fmt"
	"net/netip"

	"github.com/margay-net/margay/cats"
)

// Limits are the most transactions under way at once.
type Limits struct {
	Total     int
	PerTenant int
	PerClient int
}

// Pending counts the transactions under way. The zero Pending is empty.
type Pending struct {
	total   int
	tenants cats.Tally[string]
	clients cats.Tally[netip.Prefix]
}

// Enter counts one more transaction of a flow, or gives ReasonOverload, wrapped with the limit that is reached, and
// counts nothing.
func (p *Pending) Enter(l *Limits, key *cats.FlowKey) error {
	client := cats.ClientOf(key.Tuple.Source.Addr())
	switch {
	case p.total >= l.Total:
		return fmt.Errorf("%d transactions are under way: %w", p.total, cats.ReasonOverload)
	case p.tenants.Of(key.Tenant) >= l.PerTenant:
		return fmt.Errorf("tenant %s has %d transactions under way: %w", key.Tenant, p.tenants.Of(key.Tenant), cats.ReasonOverload)
	case p.clients.Of(client) >= l.PerClient:
		return fmt.Errorf("client %s has %d transactions under way: %w", client, p.clients.Of(client), cats.ReasonOverload)
	}
	p.total++
	p.tenants.Add(key.Tenant)
	p.clients.Add(client)
	return nil
}

// Leave takes back what Enter counted for a flow.
func (p *Pending) Leave(key *cats.FlowKey) {
	p.total--
	p.tenants.Remove(key.Tenant)
	p.clients.Remove(cats.ClientOf(key.Tuple.Source.Addr()))
}

// Total gives the transactions under way.
func (p *Pending) Total() int { return p.total }
