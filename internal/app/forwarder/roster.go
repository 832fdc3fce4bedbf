package forwarder

import (
	"fmt"
	"net/netip"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/trust"
)

// roster is who may open a channel.
func (c *Config) roster() trust.Roster {
	r := trust.Roster{trust.Operator: {}, trust.Client: {}}
	for _, name := range c.Operators {
		r[trust.Operator] = append(r[trust.Operator], string(name))
	}
	for i := range c.Clients {
		r[trust.Client] = append(r[trust.Client], string(c.Clients[i].Name))
	}
	return r
}

// mayAnnounce gives an error that wraps ReasonUnauthorized unless the caller may announce flows of that source: an
// operator any, a client its own.
func (c *Config) mayAnnounce(caller trust.Identity, source netip.Addr) error {
	if caller.Role == trust.Operator {
		return nil
	}
	for i := range c.Clients {
		if string(c.Clients[i].Name) != caller.Name {
			continue
		}
		for _, p := range c.Clients[i].Prefixes {
			if p.Contains(source) {
				return nil
			}
		}
	}
	return fmt.Errorf("the source %s is in no prefix of client %s: %w", source, caller.Name, cats.ReasonUnauthorized)
}
