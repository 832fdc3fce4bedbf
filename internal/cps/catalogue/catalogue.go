package catalogue

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/margay-net/margay/cats"
)

// Catalogue answers look-ups over one consistent set of records. It never changes.
type Catalogue struct {
	records     Records
	services    map[cats.CSID]*ServiceRecord
	deployments map[cats.CSID][]*Deployment
	instances   map[Instance]*Deployment
	attachments map[attachmentKey]*Attachment
	addresses   map[portKey][]route // longest prefix first
	warnings    []string
}

type attachmentKey struct{ ingress, name string }

type portKey struct {
	protocol cats.Protocol
	port     uint16
}

type route struct {
	prefix  netip.Prefix
	service *ServiceRecord
}

// New builds a catalogue. Records that contradict one another are refused with an error that names every
// contradiction; what is legal but dangerous is told by Warnings.
func New(r Records) (*Catalogue, error) {
	c := &Catalogue{
		records:     r,
		services:    make(map[cats.CSID]*ServiceRecord, len(r.Services)),
		deployments: make(map[cats.CSID][]*Deployment, len(r.Services)),
		instances:   make(map[Instance]*Deployment, len(r.Deployments)),
		attachments: make(map[attachmentKey]*Attachment, len(r.Attachments)),
		addresses:   make(map[portKey][]route),
	}
	warnings, err := check(&r)
	if err != nil {
		return nil, err
	}
	c.warnings = warnings
	for i := range r.Services {
		s := &r.Services[i]
		c.services[s.CSID] = s
		if s.State != Published && s.State != Deprecated {
			continue
		}
		for _, a := range s.Addresses {
			k := portKey{a.Protocol, a.Port}
			c.addresses[k] = append(c.addresses[k], route{a.Prefix, s})
		}
	}
	for _, routes := range c.addresses {
		slices.SortFunc(routes, func(a, b route) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
	}
	for i := range r.Deployments {
		d := &r.Deployments[i]
		c.deployments[d.CSID] = append(c.deployments[d.CSID], d)
		c.instances[Instance{d.CSID, d.CSCIID}] = d
	}
	for i := range r.Attachments {
		a := &r.Attachments[i]
		c.attachments[attachmentKey{a.Ingress, a.Name}] = a
	}
	return c, nil
}

// Records gives what the catalogue was built from; not to be changed.
func (c *Catalogue) Records() Records { return c.records }

// Warnings names what is legal but dangerous, such as two services on one locator and port.
func (c *Catalogue) Warnings() []string { return c.warnings }

// Service gives the service of a CS-ID, or nil.
func (c *Catalogue) Service(id cats.CSID) *ServiceRecord { return c.services[id] }

// Resolve gives the published or deprecated service that owns a client-side target: longest prefix, exact protocol,
// exact port; nil where there is none (CP sections 6 and 8.2).
func (c *Catalogue) Resolve(protocol cats.Protocol, target netip.AddrPort) *ServiceRecord {
	if r := c.route(protocol, target); r != nil {
		return r.service
	}
	return nil
}

// Address gives the address by which Resolve finds a target, or nil.
func (c *Catalogue) Address(protocol cats.Protocol, target netip.AddrPort) *Address {
	if r := c.route(protocol, target); r != nil {
		return &Address{Prefix: r.prefix, Protocol: protocol, Port: target.Port()}
	}
	return nil
}

func (c *Catalogue) route(protocol cats.Protocol, target netip.AddrPort) *route {
	routes := c.addresses[portKey{protocol, target.Port()}]
	for i := range routes {
		if routes[i].prefix.Contains(target.Addr()) {
			return &routes[i]
		}
	}
	return nil
}

// Deployments gives the deployments of a service in the order of the records.
func (c *Catalogue) Deployments(id cats.CSID) []*Deployment { return c.deployments[id] }

// Deployment gives one service at one instance, or nil.
func (c *Catalogue) Deployment(i Instance) *Deployment { return c.instances[i] }

// Attachment gives the client attachment of that name at an ingress, or nil.
func (c *Catalogue) Attachment(ingress, name string) *Attachment {
	return c.attachments[attachmentKey{ingress, name}]
}

// IsIngress tells whether clients attach at the forwarder.
func (c *Catalogue) IsIngress(forwarder string) bool {
	return slices.ContainsFunc(c.records.Attachments, func(a Attachment) bool { return a.Ingress == forwarder })
}

// IsEgress tells whether instances are attached to the forwarder.
func (c *Catalogue) IsEgress(forwarder string) bool {
	return slices.ContainsFunc(c.records.Deployments, func(d Deployment) bool {
		return slices.ContainsFunc(d.Egress, func(e EgressAttachment) bool { return e.Forwarder == forwarder })
	})
}

// Rules gives the addresses that every ingress intercepts. Those of a DEPRECATED service stay, so that its new flows
// are refused rather than forwarded unsteered.
func (c *Catalogue) Rules() []cats.ServiceRule {
	var rules []cats.ServiceRule
	for i := range c.records.Services {
		s := &c.records.Services[i]
		if s.State != Published && s.State != Deprecated {
			continue
		}
		for _, a := range s.Addresses {
			rules = append(rules, cats.ServiceRule{Number: s.Number, CSID: s.CSID, Prefix: a.Prefix, Protocol: a.Protocol, Port: a.Port})
		}
	}
	return rules
}

// Deliveries gives the service-side delivery rules of an egress: one for each deployment attached to it that is not
// REVOKED, since the flows of one that is no longer VALIDATED go on. Services that share an instance, its locator and its
// SID share the rule.
func (c *Catalogue) Deliveries(forwarder string) []cats.Delivery {
	var rules []cats.Delivery
	for i := range c.records.Deployments {
		d := &c.records.Deployments[i]
		if d.State == Revoked {
			continue
		}
		for _, e := range d.Egress {
			rule := cats.Delivery{CSCIID: d.CSCIID, Locator: d.Locator, SID: e.SID}
			if e.Forwarder == forwarder && !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}
