package lab

import (
	"net/netip"
	"path/filepath"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
)

// ServiceRole is the role of the programs that stand for the services at the instances.
const ServiceRole = "service"

// plan lists the processes of the lab, in the order in which they are started: who is dialled before who dials.
func (l *Lab) plan() []*Daemon {
	t := l.topology
	var all []*Daemon
	for _, n := range t.role(Instance) {
		if listen := t.listens(n.Name); len(listen) > 0 {
			all = append(all, l.service(n.Name, listen))
		}
	}
	for _, r := range []Role{CPS, CSMA, CNMA, Forwarder} {
		for _, n := range t.role(r) {
			all = append(all, l.daemon(string(n.Name), string(r), n.Name))
		}
	}
	for _, a := range t.agents() {
		all = append(all, l.daemon(string(a.Agent), string(trust.SCI), a.Instance))
	}
	return all
}

func (l *Lab) daemon(name, role string, node config.Name) *Daemon {
	return &Daemon{
		Name: name, Role: role, Node: string(node), Config: l.layout.config(name), Log: l.layout.log(name), Observe: l.layout.observe(name),
		Command: []string{filepath.Join(l.programs, "margay-"+role), "--config", l.layout.config(name)},
	}
}

func serviceName(instance config.Name) string { return "service-" + string(instance) }

func (l *Lab) service(node config.Name, listen []string) *Daemon {
	d := l.daemon(serviceName(node), ServiceRole, node)
	d.Config = ""
	d.Command = []string{filepath.Join(l.programs, "margay"), "lab", "service", "--name", string(node), "--observe", string(d.Observe)}
	for _, a := range listen {
		d.Command = append(d.Command, "--listen", a)
	}
	return d
}

// listens gives where the service at an instance listens, as `margay lab service --listen` takes it.
func (t *Topology) listens(instance config.Name) []string {
	var all []string
	seen := map[Locator]bool{}
	for _, d := range t.Deployments {
		if d.Instance == instance && !seen[d.Locator] {
			seen[d.Locator] = true
			all = append(all, d.Locator.Protocol.String()+":"+d.Locator.addrPort().String())
		}
	}
	return all
}

func (l Locator) addrPort() netip.AddrPort { return netip.AddrPortFrom(l.Address, l.Port) }

// agents gives one deployment for each SCI agent.
func (t *Topology) agents() []*Deployment {
	var all []*Deployment
	seen := map[config.Name]bool{}
	for i := range t.Deployments {
		if d := &t.Deployments[i]; !seen[d.Agent] {
			seen[d.Agent] = true
			all = append(all, d)
		}
	}
	return all
}

// site is the site of a deployment's node.
func (t *Topology) site(d *Deployment) config.Name { return t.node(d.Instance).Site }

// csma is the C-SMA of a site, which validation made sure of where a deployment is.
func (t *Topology) csma(site config.Name) *NodeSpec {
	for _, c := range t.role(CSMA) {
		if c.Site == site {
			return c
		}
	}
	return nil
}
