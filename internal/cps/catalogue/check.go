package catalogue

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-net/margay/cats"
)

// Problem is one contradiction: where in the records ("deployments[2].egress[0]"), and what.
type Problem struct {
	Path string
	Text string
}

// Error is every contradiction in a set of records.
type Error struct{ Problems []Problem }

// Error gives one problem a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Path + ": " + p.Text
	}
	return strings.Join(lines, "\n")
}

// check gives the warnings about records, and an *Error where they contradict one another.
func check(r *Records) ([]string, error) {
	c := &checker{services: make(map[cats.CSID]*ServiceRecord, len(r.Services))}
	c.checkServices(r.Services)
	c.checkDeployments(r.Deployments)
	c.checkAttachments(r.Attachments)
	if len(c.problems) > 0 {
		return nil, &Error{c.problems}
	}
	return c.warnings, nil
}

type checker struct {
	services map[cats.CSID]*ServiceRecord
	warnings []string
	problems []Problem
	at       string // what is being checked
}

func (c *checker) refuse(format string, arguments ...any) { c.refuseAt("", format, arguments...) }

// refuseAt refuses a part of what is being checked.
func (c *checker) refuseAt(part, format string, arguments ...any) {
	c.problems = append(c.problems, Problem{c.at + part, fmt.Errorf(format, arguments...).Error()})
}

func (c *checker) checkServices(services []ServiceRecord) {
	numbers := make(map[uint32]cats.CSID)
	owners := make(map[Address]cats.CSID)
	for i := range services {
		s := &services[i]
		c.at = fmt.Sprintf("services[%d]", i)
		if _, err := cats.ParseCSID(string(s.CSID)); err != nil {
			c.refuseAt(".cs_id", "%w", err)
			continue
		}
		if c.services[s.CSID] != nil {
			c.refuse("service %s: given twice; a CS-ID names one service", s.CSID)
			continue
		}
		c.services[s.CSID] = s
		if s.Number == 0 {
			c.refuseAt(".number", "service %s: number must be above 0", s.CSID)
		} else if other, taken := numbers[s.Number]; taken {
			c.refuseAt(".number", "service %s: number %d already belongs to %s; a number is never reused", s.CSID, s.Number, other)
		} else {
			numbers[s.Number] = s.CSID
		}
		c.checkServiceFields(s)
		c.checkAddresses(s, owners)
	}
}

func (c *checker) checkServiceFields(s *ServiceRecord) {
	if s.GASMode == Remaining {
		c.refuseAt(".gas_mode", "service %s: gas_mode remaining is not supported yet; report GAS as a ceiling and use gas_mode ceiling", s.CSID)
	}
	if s.BandPercent > 100 {
		c.refuseAt(".band_percent", "service %s: band_percent %d is above 100", s.CSID, s.BandPercent)
	}
	if s.Version == "" {
		c.refuseAt(".version", "service %s: version is missing; deployments are matched by it", s.CSID)
	}
	if s.Idle <= 0 {
		c.refuseAt(".idle", "service %s: idle must be above 0", s.CSID)
	}
	if s.Hard < 0 {
		c.refuseAt(".hard", "service %s: hard must not be negative", s.CSID)
	}
	for _, t := range s.Tenants {
		if _, err := cats.ParseName("tenant", t); err != nil {
			c.refuseAt(".tenants", "service %s: %w", s.CSID, err)
		}
	}
	if len(s.Tenants) == 0 {
		c.warnings = append(c.warnings, fmt.Sprintf("service %s: no tenants, so nobody may use it", s.CSID))
	}
}

func (c *checker) checkAddresses(s *ServiceRecord, owners map[Address]cats.CSID) {
	for i, a := range s.Addresses {
		part := fmt.Sprintf(".addresses[%d]", i)
		switch {
		case !a.Prefix.IsValid():
			c.refuseAt(part, "service %s: address without a valid prefix", s.CSID)
			continue
		case a.Prefix != a.Prefix.Masked():
			c.refuseAt(part, "service %s: address %s has bits set behind its prefix length; write %s", s.CSID, a, a.Prefix.Masked())
			continue
		case a.Prefix.Addr().Is4In6():
			c.refuseAt(part, "service %s: address %s: write an IPv4 prefix in IPv4 form", s.CSID, a)
		case a.Protocol != cats.TCP && a.Protocol != cats.UDP:
			c.refuseAt(part, "service %s: address %s: protocol must be tcp or udp", s.CSID, a)
		case a.Port == 0:
			c.refuseAt(part, "service %s: address %s: port must be 1 to 65535", s.CSID, a)
		}
		if other, taken := owners[a]; taken {
			c.refuseAt(part, "service %s: address %s already belongs to service %s; equal addresses would be ambiguous", s.CSID, a, other)
			continue
		}
		owners[a] = s.CSID
	}
}

// attachment is an instance at an egress forwarder; it and its SID name each other.
type attachment struct {
	forwarder string
	csciID    cats.CSCIID
}

type rules struct {
	bySID        map[netip.Addr]attachment
	byAttachment map[attachment]netip.Addr
}

func newRules() *rules {
	return &rules{bySID: make(map[netip.Addr]attachment), byAttachment: make(map[attachment]netip.Addr)}
}

func (c *checker) checkDeployments(deployments []Deployment) {
	seen := make(map[Instance]bool)
	rules := newRules()
	instances := make(map[cats.CSCIID]cats.Locator)
	locators := make(map[cats.Locator]*Deployment)
	for i := range deployments {
		d := &deployments[i]
		c.at = fmt.Sprintf("deployments[%d]", i)
		where := fmt.Sprintf("deployment %s of %s", d.CSCIID, d.CSID)
		if _, err := cats.ParseCSCIID(string(d.CSCIID)); err != nil {
			c.refuseAt(".csci_id", "%w", err)
			continue
		}
		if seen[Instance{d.CSID, d.CSCIID}] {
			c.refuse("%s: given twice", where)
			continue
		}
		seen[Instance{d.CSID, d.CSCIID}] = true
		if _, err := cats.ParseName("site", d.Site); err != nil {
			c.refuseAt(".site", "%s: %w", where, err)
		}
		s := c.services[d.CSID]
		if s == nil {
			c.refuseAt(".cs_id", "%s: the catalogue has no service %s", where, d.CSID)
			continue
		}
		if !d.Locator.Address.Addr().IsValid() || d.Locator.Address.Port() == 0 {
			c.refuseAt(".locator", "%s: locator needs an address and a port", where)
			continue
		}
		if known, ok := instances[d.CSCIID]; ok && known != d.Locator {
			c.refuseAt(".locator", "%s: locator %s, but another service has the same instance at %s", where, d.Locator, known)
		}
		instances[d.CSCIID] = d.Locator
		c.checkFamily(where, s, d.Locator)
		if other := locators[d.Locator]; other != nil && other.CSID != d.CSID {
			c.warnings = append(c.warnings, fmt.Sprintf("%s: locator %s also serves %s; a client that uses both with one source port has its second flow refused (tuple-in-use)", where, d.Locator, other.CSID))
		} else if other != nil {
			c.refuseAt(".locator", "%s: locator %s already belongs to %s of the same service", where, d.Locator, other.CSCIID)
		} else {
			locators[d.Locator] = d
		}
		c.checkEgress(where, d, rules)
	}
}

// checkFamily refuses a locator that no address of the service can be translated to: a forwarder rewrites the
// destination and never translates between IPv4 and IPv6 or between protocols.
func (c *checker) checkFamily(where string, s *ServiceRecord, l cats.Locator) {
	for _, a := range s.Addresses {
		if a.Prefix.IsValid() && a.Prefix.Addr().Is4() != l.Address.Addr().Is4() {
			c.refuseAt(".locator", "%s: locator %s and service address %s are of different address families", where, l, a)
		}
		if a.Protocol != l.Protocol {
			c.refuseAt(".locator", "%s: locator %s and service address %s have different protocols", where, l, a)
		}
	}
}

func (c *checker) checkEgress(where string, d *Deployment, known *rules) {
	if len(d.Egress) == 0 && d.State == Validated {
		c.refuse("%s: VALIDATED without an egress attachment; traffic could not be delivered", where)
	}
	var forwarders []string
	for i, e := range d.Egress {
		part := fmt.Sprintf(".egress[%d]", i)
		if _, err := cats.ParseName("forwarder", e.Forwarder); err != nil {
			c.refuseAt(part, "%s: egress: %w", where, err)
		}
		if slices.Contains(forwarders, e.Forwarder) {
			c.refuseAt(part, "%s: egress %s given twice", where, e.Forwarder)
		}
		forwarders = append(forwarders, e.Forwarder)
		if !e.SID.Is6() || e.SID.Is4In6() || e.SID.IsUnspecified() {
			c.refuseAt(part, "%s: egress %s: SID %s is not an IPv6 address", where, e.Forwarder, e.SID)
			continue
		}
		this := attachment{e.Forwarder, d.CSCIID}
		if other, taken := known.bySID[e.SID]; taken && other != this {
			c.refuseAt(part, "%s: SID %s is already the attachment of %s at %s; a SID names one attachment", where, e.SID, other.csciID, other.forwarder)
		}
		if other, has := known.byAttachment[this]; has && other != e.SID {
			c.refuseAt(part, "%s: egress %s: SID %s, but another service gives this attachment %s", where, e.Forwarder, e.SID, other)
		}
		known.bySID[e.SID], known.byAttachment[this] = this, e.SID
	}
}

func (c *checker) checkAttachments(attachments []Attachment) {
	seen := make(map[attachmentKey]bool)
	for i, a := range attachments {
		c.at = fmt.Sprintf("attachments[%d]", i)
		where := fmt.Sprintf("attachment %s at %s", a.Name, a.Ingress)
		for _, field := range [...][2]string{{"ingress", a.Ingress}, {"attachment", a.Name}, {"tenant", a.Tenant}} {
			if _, err := cats.ParseName(field[0], field[1]); err != nil {
				c.refuse("%s: %w", where, err)
			}
		}
		k := attachmentKey{a.Ingress, a.Name}
		if seen[k] {
			c.refuse("%s: given twice; an attachment has one tenant", where)
		}
		seen[k] = true
	}
}

// CheckSuccession refuses a catalogue that gives a number of the previous one to another service (by number, packets in
// flight and metrics would mean the wrong one). The previous catalogue may be nil.
func (c *Catalogue) CheckSuccession(previous *Catalogue) error {
	if previous == nil {
		return nil
	}
	owners := make(map[uint32]cats.CSID)
	for _, s := range previous.records.Services {
		owners[s.Number] = s.CSID
	}
	var problems []error
	for _, s := range c.records.Services {
		if old, taken := owners[s.Number]; taken && old != s.CSID {
			problems = append(problems, fmt.Errorf("service %s: number %d belonged to %s; a number is never reused", s.CSID, s.Number, old))
		}
	}
	return errors.Join(problems...)
}
