package forwarder

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/datapath/kernel"
	core "github.com/margay-net/margay/internal/forwarder"
)

// provisioner puts what the C-PS provisions into the data plane and the kernel: service addresses that are intercepted
// and answered for, and delivery rules of egress attachments.
type provisioner struct {
	plane   *datapath.Datapath
	routes  *routes
	proxy   *kernel.Proxy
	clients []string // interfaces that clients attach to; none: no service address is intercepted here

	inForce cats.Provision
}

// apply puts p in force as a whole; on an error the last one stays in force.
func (p *provisioner) apply(now cats.Instant, next *cats.Provision) error {
	if err := p.use(now, next.Deliveries); err != nil {
		return err
	}
	if err := p.set(next); err != nil {
		err = errors.Join(err, p.set(&p.inForce))
		p.drop(next.Deliveries)
		return err
	}
	before := p.inForce.Deliveries
	p.inForce = *next
	p.drop(before)
	return nil
}

// use takes hold of the next hops of instances.
func (p *provisioner) use(now cats.Instant, deliveries []cats.Delivery) error {
	for i, d := range deliveries {
		if _, err := p.routes.useHop(now, d.Locator.Address.Addr()); err != nil {
			p.drop(deliveries[:i])
			return fmt.Errorf("instance %s: %w", d.CSCIID, err)
		}
	}
	return nil
}

func (p *provisioner) drop(deliveries []cats.Delivery) {
	for _, d := range deliveries {
		p.routes.dropHop(d.Locator.Address.Addr())
	}
}

// set writes one provision, whose next hops are held, over whatever is there.
func (p *provisioner) set(to *cats.Provision) error {
	deliveries := make([]datapath.Delivery, len(to.Deliveries))
	for i, d := range to.Deliveries {
		deliveries[i] = datapath.Delivery{SID: d.SID, Locator: d.Locator, NextHop: p.routes.hops[d.Locator.Address.Addr()].id}
	}
	if err := p.plane.SetDeliveries(deliveries); err != nil {
		return err
	}
	return p.setServices(to.Services)
}

func (p *provisioner) setServices(services []cats.ServiceRule) error {
	if len(p.clients) == 0 {
		services = nil
	}
	if err := p.plane.SetServices(services); err != nil {
		return err
	}
	var prefixes []netip.Prefix
	seen := make(map[netip.Prefix]bool)
	for _, s := range services {
		if !seen[s.Prefix] {
			seen[s.Prefix] = true
			prefixes = append(prefixes, s.Prefix)
		}
	}
	return p.proxy.SetServiceAddresses(p.clients, prefixes)
}

// setClients changes the interfaces that clients attach to.
func (p *provisioner) setClients(clients []string) error {
	before := p.clients
	p.clients = clients
	if err := p.setServices(p.inForce.Services); err != nil {
		p.clients = before
		return errors.Join(err, p.setServices(p.inForce.Services))
	}
	return nil
}

// inPlace gives the contact instances that packets can be delivered to now: by a rule, and a next hop.
func (p *provisioner) inPlace() []cats.CSCIID {
	in := []cats.CSCIID{}
	for _, d := range p.inForce.Deliveries {
		if p.routes.isUp(d.Locator.Address.Addr()) {
			in = append(in, d.CSCIID)
		}
	}
	return in
}

// result applies next and gives what the core is told of it.
func (p *provisioner) result(now cats.Instant, next *cats.Provision) *core.ProvisionResult {
	r := &core.ProvisionResult{Generation: next.Generation}
	if err := p.apply(now, next); err != nil {
		r.Reason, r.Detail = cmp.Or(cats.ReasonOf(err), cats.ReasonCommitFailed), err.Error()
		return r
	}
	r.Deliveries = p.inPlace()
	return r
}
