package lab

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
)

// labName has no dot: the BPF file system refuses names with one, and a lab's name is part of those of its pins.
var labName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)

// checkLabName gives what is wrong with the name of a lab.
func checkLabName(name string) error {
	if !labName.MatchString(name) {
		return fmt.Errorf("lab name %q: need 1 to 32 letters, digits, underscores or dashes, a letter or digit first", name)
	}
	return nil
}

// managementInterface is what every node calls its interface in the management network.
const managementInterface = "mgmt0"

// maxInterfaceName is the longest interface name that the kernel takes, octets.
const maxInterfaceName = 15

// Validate finds what one key alone cannot say; it is called by the loader.
func (t *Topology) Validate() []config.Problem {
	v := validation{t: t, addresses: map[netip.Addr]string{}, interfaces: map[string]string{}}
	v.general()
	for i := range t.Nodes {
		v.node(fmt.Sprintf("nodes[%d]", i), i)
	}
	for i := range t.Links {
		v.link(fmt.Sprintf("links[%d]", i), &t.Links[i])
	}
	for i := range t.Nodes {
		v.attachments(fmt.Sprintf("nodes[%d].attachments", i), &t.Nodes[i])
	}
	v.services()
	v.deployments()
	if len(v.problems) == 0 { // what follows from a fault above would only hide it
		v.problems = append(v.problems, v.attached()...)
		v.problems = append(v.problems, t.checkReach()...)
	}
	return v.problems
}

type validation struct {
	t          *Topology
	addresses  map[netip.Addr]string // by what each is taken
	interfaces map[string]string     // "node interface" to the place of its link
	problems   []config.Problem
}

func (v *validation) problem(path, format string, args ...any) {
	v.problems = append(v.problems, config.At(path, format, args...))
}

// take notes that an address is used, and complains if it is already.
func (v *validation) take(path string, a netip.Addr, by string) {
	if other, taken := v.addresses[a]; taken {
		v.problem(path, "address %s is already that of %s", a, other)
		return
	}
	v.addresses[a] = by
}

func (v *validation) general() {
	t := v.t
	if err := checkLabName(string(t.Name)); err != nil {
		v.problem("name", "%v", err)
	}
	if _, err := trust.NewIdentity(t.Domain, trust.Operator, "any"); err != nil {
		v.problem("domain", "%v", err)
	}
	if !t.Management.Addr().Is4() || t.Management != t.Management.Masked() {
		v.problem("management", "need an IPv4 prefix without host bits, such as 10.255.0.0/24")
	}
	if t.MTU.Access < 1280 || t.MTU.Access > 9000 {
		v.problem("mtu.access", "need 1280 to 9000 octets, have %d", t.MTU.Access)
	}
	if t.MTU.Core < t.MTU.Access+48 || t.MTU.Core > 9216 {
		v.problem("mtu.core", "need %d (access and the smallest encapsulation) to 9216 octets, have %d", t.MTU.Access+48, t.MTU.Core)
	}
	for _, r := range []Role{CPS, CNMA, Management} {
		if n := len(t.role(r)); n != 1 {
			v.problem("nodes", "need one node with role %s, have %d", r, n)
		}
	}
}

func (v *validation) node(at string, i int) {
	n := &v.t.Nodes[i]
	for j := range v.t.Nodes[:i] {
		if v.t.Nodes[j].Name == n.Name {
			v.problem(at+".name", "node %s is already nodes[%d]", n.Name, j)
			return
		}
	}
	if n.Name == middleNode {
		v.problem(at+".name", "node name %q is the lab's own", n.Name)
	}
	v.applicability(at, n)
	if n.Role == Forwarder && strings.Contains(string(n.Name), ".") {
		v.problem(at+".name", "name %q of a forwarder: need one without a dot, which the BPF file system of its pins refuses", n.Name)
	}
	if n.Management.IsValid() {
		if !v.t.Management.Contains(n.Management) || n.Management == v.t.Management.Addr() {
			v.problem(at+".management", "address %s is not a host of the management network %s", n.Management, v.t.Management)
		}
		v.take(at+".management", n.Management, "node "+string(n.Name)+" (management)")
	}
	if n.Role.core() {
		v.locator(at, i)
	}
}

// applicability checks which keys a role needs and which have no meaning for it.
func (v *validation) applicability(at string, n *NodeSpec) {
	for _, k := range []struct {
		key           string
		present       bool
		needs, allows []Role
	}{
		{"management", n.Management.IsValid(), []Role{Forwarder, Instance, CPS, CSMA, CNMA}, nil},
		{"site", n.Site != "", []Role{Instance, CSMA}, nil},
		{"prefix", n.Prefix.IsValid(), []Role{Forwarder, Router}, nil},
		{"source", n.Source.IsValid(), []Role{Forwarder}, nil},
		{"sid", n.SID.IsValid(), []Role{Router}, nil},
		{"return_sid", n.ReturnSID.IsValid(), nil, []Role{Forwarder}},
		{"attachments", len(n.Attachments) > 0, nil, []Role{Forwarder}},
	} {
		switch {
		case !k.present && slices.Contains(k.needs, n.Role):
			v.problem(at, "%s %s: key %q is missing", n.Role, n.Name, k.key)
		case k.present && !slices.Contains(k.needs, n.Role) && !slices.Contains(k.allows, n.Role):
			v.problem(at+"."+k.key, "a %s has none", n.Role)
		}
	}
	if n.Role == Forwarder && n.ReturnSID.IsValid() != (len(n.Attachments) > 0) {
		v.problem(at, "forwarder %s: return_sid and attachments belong together: return paths end where clients attach", n.Name)
	}
}

// locator checks the SRv6 prefix of a core node and what it takes from it.
func (v *validation) locator(at string, i int) {
	n := &v.t.Nodes[i]
	if !n.Prefix.IsValid() {
		return
	}
	if !n.Prefix.Addr().Is6() || n.Prefix != n.Prefix.Masked() {
		v.problem(at+".prefix", "need an IPv6 prefix without host bits")
		return
	}
	for j := range v.t.Nodes[:i] {
		if o := v.t.Nodes[j]; o.Prefix.IsValid() && o.Prefix.Overlaps(n.Prefix) {
			v.problem(at+".prefix", "prefix %s overlaps %s of node %s", n.Prefix, o.Prefix, o.Name)
		}
	}
	for _, a := range []struct {
		key  string
		addr netip.Addr
	}{{"source", n.Source}, {"sid", n.SID}, {"return_sid", n.ReturnSID}} {
		if !a.addr.IsValid() {
			continue
		}
		if !n.Prefix.Contains(a.addr) {
			v.problem(at+"."+a.key, "%s is not in the node's prefix %s, so that nothing is routed to it", a.addr, n.Prefix)
		}
		v.take(at+"."+a.key, a.addr, "node "+string(n.Name)+" ("+a.key+")")
	}
}

func (v *validation) link(at string, l *Link) {
	a, okA := v.end(at+".a", &l.A)
	b, okB := v.end(at+".b", &l.B)
	if !okA || !okB {
		return
	}
	if a == b {
		v.problem(at, "both ends are at node %s", a.Name)
		return
	}
	core := a.Role.core() && b.Role.core()
	access := a.Role == Forwarder && (b.Role == Client || b.Role == Instance) || b.Role == Forwarder && (a.Role == Client || a.Role == Instance)
	switch {
	case !core && !access:
		v.problem(at, "a link joins forwarders and routers, or a forwarder and a client or instance; not %s %s and %s %s", a.Role, a.Name, b.Role, b.Name)
	case core && l.DelayUS == 0:
		v.problem(at, "key %q is missing: a link of the core needs its delay", "delay_us")
	case access && (l.DelayUS != 0 || l.BackDelayUS != 0 || l.OneWay || l.JitterUS != 0 || l.LossPPM != 0 || l.BandwidthKbps != 0 || l.TEMetric != 0):
		v.problem(at, "only links of the core are measured; remove delay and the like here")
	}
	v.subnets(at, l, core)
}

func (v *validation) end(at string, e *End) (*NodeSpec, bool) {
	n := v.t.node(e.Node)
	if n == nil {
		v.problem(at+".node", "node %s is not one of nodes", e.Node)
		return nil, false
	}
	name := e.Interface
	if name == "" || len(name) > maxInterfaceName || !regexp.MustCompile(`^[A-Za-z0-9._-]+$`).MatchString(name) || name == "." || name == ".." {
		v.problem(at+".interface", "interface name %q: need 1 to %d letters, digits, dots, underscores or dashes", name, maxInterfaceName)
	} else if name == "lo" || name == managementInterface {
		v.problem(at+".interface", "interface name %q is the lab's own", name)
	} else if other, taken := v.interfaces[string(e.Node)+" "+name]; taken {
		v.problem(at+".interface", "node %s already has an interface %s, at %s", e.Node, name, other)
	} else {
		v.interfaces[string(e.Node)+" "+name] = at
	}
	for i, p := range e.Addresses {
		v.take(fmt.Sprintf("%s.addresses[%d]", at, i), p.Addr(), fmt.Sprintf("node %s (%s)", e.Node, name))
	}
	return n, true
}

// subnets checks that every address has a partner on the other end, without which the link would be dead or one-way.
func (v *validation) subnets(at string, l *Link, core bool) {
	for _, s := range []struct {
		key   string
		e, to *End
	}{{".a", &l.A, &l.B}, {".b", &l.B, &l.A}} {
		for i, p := range s.e.Addresses {
			if !slices.ContainsFunc(s.to.Addresses, func(q InterfaceAddress) bool { return p.Masked() == q.Masked() }) {
				v.problem(fmt.Sprintf("%s%s.addresses[%d]", at, s.key, i), "node %s has no address in %s on this link, so that it could not answer", s.to.Node, p.Masked())
			}
		}
		if _, ok := s.e.gateway(true); core && !ok {
			v.problem(at+s.key+".addresses", "a link of the core needs an IPv6 address")
		}
	}
}

func (v *validation) attachments(at string, n *NodeSpec) {
	for i, a := range n.Attachments {
		here := fmt.Sprintf("%s[%d]", at, i)
		for j := range n.Attachments[:i] {
			if n.Attachments[j].Name == a.Name {
				v.problem(here+".name", "attachment %s is already %s[%d]", a.Name, at, j)
			}
		}
		faces := Role("")
		for _, e := range v.t.ends(n.Name) {
			if e.here.Interface == a.Interface {
				if far := v.t.node(e.there.Node); far != nil {
					faces = far.Role
				}
			}
		}
		if faces != Client {
			v.problem(here+".interface", "no link joins interface %s of %s to a client", a.Interface, n.Name)
		}
		if len(a.Prefixes) == 0 {
			v.problem(here+".prefixes", "need the prefixes of the clients' addresses")
		}
	}
}

func (v *validation) services() {
	for i := range v.t.Services {
		s := &v.t.Services[i]
		at := fmt.Sprintf("services[%d]", i)
		for j := range v.t.Services[:i] {
			o := &v.t.Services[j]
			if o.CSID == s.CSID {
				v.problem(at+".cs_id", "service %s is already services[%d]", s.CSID, j)
			}
			if o.Number == s.Number {
				v.problem(at+".number", "number %d is already that of service %s", s.Number, o.CSID)
			}
		}
		if s.Number == 0 {
			v.problem(at+".number", "need a number above 0")
		}
		if len(s.Addresses) == 0 {
			v.problem(at+".addresses", "need at least one")
		}
		for j, a := range s.Addresses {
			if a.Prefix.IsSingleIP() {
				if owner, taken := v.addresses[a.Prefix.Addr()]; taken {
					v.problem(fmt.Sprintf("%s.addresses[%d].prefix", at, j), "address %s is that of %s; nobody owns a service address", a.Prefix.Addr(), owner)
				}
			}
		}
	}
}

func (v *validation) deployments() {
	agents := map[config.Name]*Deployment{}
	for i := range v.t.Deployments {
		d := &v.t.Deployments[i]
		at := fmt.Sprintf("deployments[%d]", i)
		if !slices.ContainsFunc(v.t.Services, func(s ServiceSpec) bool { return s.CSID == d.CSID }) {
			v.problem(at+".cs_id", "service %s is not one of services", d.CSID)
		}
		for j := range v.t.Deployments[:i] {
			if o := &v.t.Deployments[j]; o.CSID == d.CSID && o.CSCIID == d.CSCIID {
				v.problem(at, "%s at %s is already deployments[%d]", d.CSID, d.CSCIID, j)
			}
		}
		if o := agents[d.Agent]; o != nil && (o.CSCIID != d.CSCIID || o.Instance != d.Instance) {
			v.problem(at+".agent", "agent %s already serves %s at node %s; an agent has one CSCI-ID", d.Agent, o.CSCIID, o.Instance)
		}
		agents[d.Agent] = d
		v.placement(at, d)
	}
}

// placement checks what a deployment says about nodes.
func (v *validation) placement(at string, d *Deployment) {
	n := v.t.node(d.Instance)
	switch {
	case n == nil || n.Role != Instance:
		v.problem(at+".instance", "%s is not a node with role instance", d.Instance)
	case !slices.ContainsFunc(v.t.role(CSMA), func(c *NodeSpec) bool { return c.Site == n.Site }):
		v.problem(at+".instance", "site %s of node %s has no C-SMA; add a node with role csma and that site", n.Site, n.Name)
	case !slices.ContainsFunc(v.t.ends(n.Name), func(e struct{ here, there End }) bool {
		return e.there.Node == d.Egress && e.here.has(d.Locator.Address)
	}):
		v.problem(at+".locator.address", "%s is not an address of node %s on a link to forwarder %s", d.Locator.Address, n.Name, d.Egress)
	}
	f := v.t.node(d.Egress)
	if f == nil || f.Role != Forwarder {
		v.problem(at+".egress", "%s is not a node with role forwarder", d.Egress)
		return
	}
	if !f.Prefix.Contains(d.SID) {
		v.problem(at+".sid", "SID %s is not in the prefix %s of forwarder %s, so that nothing is routed to it", d.SID, f.Prefix, f.Name)
	}
	by := fmt.Sprintf("the attachment of %s", d.CSCIID)
	if other, taken := v.addresses[d.SID]; taken && other != by {
		v.problem(at+".sid", "address %s is already that of %s", d.SID, other)
	}
	v.addresses[d.SID] = by
	if d.Locator.Protocol != cats.TCP && d.Locator.Protocol != cats.UDP || d.Locator.Port == 0 {
		v.problem(at+".locator", "need protocol tcp or udp, and a port")
	}
}

func (e *End) has(a netip.Addr) bool {
	return slices.ContainsFunc(e.Addresses, func(p InterfaceAddress) bool { return p.Addr() == a })
}

// attached finds nodes that no link reaches.
func (v *validation) attached() []config.Problem {
	var problems []config.Problem
	for i := range v.t.Nodes {
		n := &v.t.Nodes[i]
		onData := n.Role == Client || n.Role == Instance || n.Role.core()
		if onData && len(v.t.ends(n.Name)) == 0 {
			problems = append(problems, config.At(fmt.Sprintf("nodes[%d]", i), "%s %s cannot be reached: a link is missing", n.Role, n.Name))
		}
	}
	if len(v.t.role(Forwarder)) == 0 {
		problems = append(problems, config.At("nodes", "need at least one forwarder"))
	}
	return problems
}
