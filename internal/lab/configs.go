package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/pki"
)

// Ports of the control plane in the management network.
const (
	cpsPort  = 7443
	csmaPort = 7444
)

// mapping is a YAML mapping whose keys keep their order: mapping("key", value, "key", value …).
func mapping(pairs ...any) yaml.MapSlice {
	m := make(yaml.MapSlice, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		m = append(m, yaml.MapItem{Key: pairs[i], Value: pairs[i+1]})
	}
	return m
}

// writeConfigs makes certificates and configuration files for everything in the lab.
func (l *Lab) writeConfigs() error {
	for _, d := range []string{"etc", "log", "run", "state"} {
		if err := os.MkdirAll(filepath.Join(l.layout.dir(), d), 0o700); err != nil {
			return err
		}
	}
	if _, err := pki.Init(l.layout.pki(), l.topology.Domain); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	files := map[string]yaml.MapSlice{l.layout.catalogue(): l.topology.catalogue(), l.layout.measured(): l.topology.measured()}
	for _, d := range l.plan() {
		if d.Role == ServiceRole {
			continue
		}
		c, err := l.daemonConfig(d)
		if err != nil {
			return err
		}
		files[d.Config] = c
	}
	if err := l.commandConfigs(files); err != nil {
		return err
	}
	for path, content := range files {
		data, err := yaml.Marshal(content)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// commandConfigs adds what `margay` needs to speak for each operator and each client.
func (l *Lab) commandConfigs(files map[string]yaml.MapSlice) error {
	for i, name := range l.topology.Operators {
		c, err := l.commandConfig(trust.Operator, name)
		if err != nil {
			return err
		}
		if i == 0 {
			files[l.layout.operator()] = c
		}
		files[l.layout.config("operator-"+string(name))] = c
	}
	for _, n := range l.topology.role(Client) {
		c, err := l.commandConfig(trust.Client, n.Name)
		if err != nil {
			return err
		}
		files[l.layout.config(string(n.Name))] = c
	}
	return nil
}

func (l *Lab) commandConfig(role trust.Role, name config.Name) (yaml.MapSlice, error) {
	tls, err := l.identity(role, string(name))
	if err != nil {
		return nil, err
	}
	cps := l.topology.role(CPS)[0]
	var forwarders []yaml.MapSlice
	for _, f := range l.topology.role(Forwarder) {
		forwarders = append(forwarders, mapping("address", string(l.layout.socket(string(f.Name))), "name", string(f.Name)))
	}
	return mapping(
		"tls", tls,
		"cps", mapping("address", string(l.layout.socket(string(cps.Name))), "name", string(cps.Name)),
		"forwarders", forwarders,
	), nil
}

// identity issues a certificate and gives the tls section that names it.
func (l *Lab) identity(role trust.Role, name string) (yaml.MapSlice, error) {
	f, err := pki.Issue(l.layout.pki(), role, name, pki.Options{})
	if err != nil {
		return nil, fmt.Errorf("certificate of %s %s: %w", role, name, err)
	}
	return mapping("certificate", f.Certificate, "key", f.Key, "authority", f.Authority, "domain", l.topology.Domain), nil
}

func (l *Lab) daemonConfig(d *Daemon) (yaml.MapSlice, error) {
	tls, err := l.identity(trust.Role(d.Role), d.Name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(l.layout.data(d.Name), 0o700); err != nil {
		return nil, err
	}
	common := mapping(
		"name", d.Name,
		"tls", tls,
		"observe", mapping("listen", string(d.Observe)),
		"audit", mapping("file", l.layout.audit(d.Name)),
		"state", l.layout.data(d.Name),
	)
	node := l.topology.node(config.Name(d.Node))
	switch d.Role {
	case string(CPS):
		return append(common, l.cps(node)...), nil
	case string(CSMA):
		return append(common, l.csma(node)...), nil
	case string(CNMA):
		return append(common, mapping("cps", []yaml.MapSlice{l.cpsPeer()}, "topology", l.layout.measured())...), nil
	case string(Forwarder):
		return append(common, l.forwarder(node)...), nil
	}
	return append(common, l.sci(config.Name(d.Name))...), nil
}

func (l *Lab) cpsPeer() yaml.MapSlice {
	n := l.topology.role(CPS)[0]
	return mapping("address", netip.AddrPortFrom(n.Management, cpsPort).String(), "name", string(n.Name))
}

func (l *Lab) cps(n *NodeSpec) yaml.MapSlice {
	t := l.topology
	csmas := []yaml.MapSlice{}
	for _, c := range t.role(CSMA) {
		csmas = append(csmas, mapping("name", string(c.Name), "site", string(c.Site), "services", t.servicesAt(c.Site)))
	}
	return mapping(
		"listen", []string{netip.AddrPortFrom(n.Management, cpsPort).String(), string(l.layout.socket(string(n.Name)))},
		"catalogue", l.layout.catalogue(),
		"forwarders", nodeNames(t.role(Forwarder)),
		"csmas", csmas,
		"cnmas", nodeNames(t.role(CNMA)),
		"operators", t.Operators,
	)
}

func nodeNames(nodes []*NodeSpec) []string {
	all := []string{}
	for _, n := range nodes {
		all = append(all, string(n.Name))
	}
	return all
}

func (t *Topology) servicesAt(site config.Name) []string {
	all := []string{}
	for _, s := range t.Services {
		for i := range t.Deployments {
			if d := &t.Deployments[i]; d.CSID == s.CSID && t.site(d) == site {
				all = append(all, string(s.CSID))
				break
			}
		}
	}
	return all
}

func (l *Lab) csma(n *NodeSpec) yaml.MapSlice {
	scis := []yaml.MapSlice{}
	for _, a := range l.topology.agents() {
		if l.topology.site(a) != n.Site {
			continue
		}
		var services []string
		for _, d := range l.topology.Deployments {
			if d.Agent == a.Agent {
				services = append(services, string(d.CSID))
			}
		}
		instance := mapping("csci_id", string(a.CSCIID), "services", services)
		scis = append(scis, mapping("agent", string(a.Agent), "instances", []yaml.MapSlice{instance}))
	}
	return mapping(
		"site", string(n.Site),
		"listen", []string{netip.AddrPortFrom(n.Management, csmaPort).String()},
		"cps", []yaml.MapSlice{l.cpsPeer()},
		"scis", scis,
	)
}

func (l *Lab) forwarder(n *NodeSpec) yaml.MapSlice {
	core, instances, attachments := []string{}, []string{}, []yaml.MapSlice{}
	for _, e := range l.topology.ends(n.Name) {
		switch l.topology.node(e.there.Node).Role {
		case Instance:
			instances = append(instances, e.here.Interface)
		case Forwarder, Router:
			core = append(core, e.here.Interface)
		}
	}
	for _, a := range n.Attachments {
		var prefixes []string
		for _, p := range a.Prefixes {
			prefixes = append(prefixes, p.String())
		}
		attachments = append(attachments, mapping("name", string(a.Name), "interface", a.Interface, "tenant", string(a.Tenant), "prefixes", prefixes))
	}
	m := mapping(
		"cps", l.cpsPeer(),
		"listen", []string{string(l.layout.socket(string(n.Name)))},
		"operators", l.topology.Operators,
		"clients", l.topology.clients(),
		"pins", l.layout.pins(n.Name),
		"source", n.Source.String(),
		"block", n.Prefix.String(),
		"sr_domain", l.topology.segmentSpace(),
		"core", core,
		"bindings", n.Bindings,
	)
	if len(instances) > 0 {
		m = append(m, mapping("instances", instances)...)
	}
	if n.ReturnSID.IsValid() {
		m = append(m, mapping("return_sid", n.ReturnSID.String(), "attachments", attachments)...)
	}
	return m
}

// segmentSpace gives the prefixes that the SIDs of all nodes are of.
func (t *Topology) segmentSpace() []string {
	all := []string{}
	for i := range t.Nodes {
		if p := t.Nodes[i].Prefix; p.IsValid() {
			all = append(all, p.String())
		}
	}
	return all
}

// clients gives who may announce requests, each for its own addresses.
func (t *Topology) clients() []yaml.MapSlice {
	all := []yaml.MapSlice{}
	for _, n := range t.role(Client) {
		prefixes := []string{}
		for _, e := range t.ends(n.Name) {
			for _, a := range e.here.Addresses {
				prefixes = append(prefixes, netip.PrefixFrom(a.Addr(), a.Addr().BitLen()).String())
			}
		}
		all = append(all, mapping("name", string(n.Name), "prefixes", prefixes))
	}
	return all
}

func (l *Lab) sci(agent config.Name) yaml.MapSlice {
	t := l.topology
	var first *Deployment
	services := []yaml.MapSlice{}
	for i := range t.Deployments {
		d := &t.Deployments[i]
		if d.Agent != agent {
			continue
		}
		if first == nil {
			first = d
		}
		services = append(services, mapping(
			"cs_id", string(d.CSID),
			"version", t.service(d.CSID).Version,
			"computing_time_ms", d.ComputingTimeMS,
			"max_slots", d.Slots,
			"check", mapping("tcp", l.probe(d), "interval", "1s"),
		))
	}
	c := t.csma(t.site(first))
	return mapping(
		"csma", mapping("address", netip.AddrPortFrom(c.Management, csmaPort).String(), "name", string(c.Name)),
		"site", string(c.Site),
		"csci_id", string(first.CSCIID),
		"services", services,
	)
}

// probe is where the SCI agent checks the health of a deployment: at its locator, or, for datagrams, which nothing
// acknowledges, at the socket where the same process tells of its health.
func (l *Lab) probe(d *Deployment) string {
	if d.Locator.Protocol == cats.TCP {
		return d.Locator.addrPort().String()
	}
	return string(l.layout.observe(serviceName(d.Instance)))
}

func (t *Topology) service(id cats.CSID) *ServiceSpec {
	for i := range t.Services {
		if t.Services[i].CSID == id {
			return &t.Services[i]
		}
	}
	return nil
}
