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
	tenants map[string]int
	clients map[netip.Prefix]int
}

// Client is what a client is counted as: an IPv4 address, or the /64 of an IPv6 address.
func Client(address netip.Addr) netip.Prefix {
	bits := 64
	if address.Is4() {
		bits = 32
	}
	prefix, err := address.Prefix(bits)
	if err != nil { // an invalid address counts as one client
		return netip.Prefix{}
	}
	return prefix
}

// Enter counts one more transaction of a flow, or gives ReasonOverload, wrapped with the limit that is reached, and
// counts nothing.
func (p *Pending) Enter(l *Limits, key *cats.FlowKey) error {
	client := Client(key.Tuple.Source.Addr())
	switch {
	case p.total >= l.Total:
		return fmt.Errorf("%d transactions are under way: %w", p.total, cats.ReasonOverload)
	case p.tenants[key.Tenant] >= l.PerTenant:
		return fmt.Errorf("tenant %s has %d transactions under way: %w", key.Tenant, p.tenants[key.Tenant], cats.ReasonOverload)
	case p.clients[client] >= l.PerClient:
		return fmt.Errorf("client %s has %d transactions under way: %w", client, p.clients[client], cats.ReasonOverload)
	}
	if p.tenants == nil {
		p.tenants, p.clients = make(map[string]int), make(map[netip.Prefix]int)
	}
	p.total++
	p.tenants[key.Tenant]++
	p.clients[client]++
	return nil
}

// Leave takes back what Enter counted for a flow.
func (p *Pending) Leave(key *cats.FlowKey) {
	p.total--
	decrement(p.tenants, key.Tenant)
	decrement(p.clients, Client(key.Tuple.Source.Addr()))
}

func decrement[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] <= 0 {
		delete(counts, k)
	}
}

// Total gives the transactions under way.
func (p *Pending) Total() int { return p.total }
