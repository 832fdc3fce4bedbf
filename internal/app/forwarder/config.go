package forwarder

import (
	"fmt"
	"net/netip"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/datapath/kernel"
	core "github.com/margay-net/margay/internal/forwarder"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// Config is the configuration file of margay-forwarder.
type Config struct {
	config.Common `yaml:",inline"`
	CPS           config.Peer        `yaml:"cps"`
	Listen        []endpoint.Address `yaml:"listen"`               // announcements of clients, and what operators ask
	Operators     []config.Name      `yaml:"operators,omitempty"`  // who may ask, and announce for any client
	Clients       []Client           `yaml:"clients,omitempty"`    // who may announce, each for its own addresses
	State         config.Path        `yaml:"state"`                // directory, made if absent; what must survive a restart
	Pins          config.Path        `yaml:"pins"`                 // directory on a BPF file system, made if absent; this forwarder's own
	Source        netip.Addr         `yaml:"source"`               // outer IPv6 source of encapsulated packets
	ReturnSID     netip.Addr         `yaml:"return_sid,omitempty"` // where return paths end; only where clients attach
	Block         netip.Prefix       `yaml:"block,omitempty"`      // that this forwarder's SIDs are of; default: the /64 of source
	SRDomain      []netip.Prefix     `yaml:"sr_domain,omitempty"`  // that the SIDs of all nodes are of, this one's included
	Attachments   []Attachment       `yaml:"attachments,omitempty"`
	Instances     []string           `yaml:"instances,omitempty"` // interfaces toward service instances
	Core          []string           `yaml:"core"`                // interfaces toward the network
	Bindings      uint32             `yaml:"bindings,omitempty"`  // capacity of the binding table
	Limits        Limits             `yaml:"limits,omitempty"`
}

// Attachment is a place where clients come in (CP section 1.2).
type Attachment struct {
	Name      config.Name    `yaml:"name"`
	Interface string         `yaml:"interface"`
	Tenant    config.Name    `yaml:"tenant"`
	Prefixes  []netip.Prefix `yaml:"prefixes"` // source addresses of its clients
}

// Client is a host that may announce its requests (CP section 6, Mode B).
type Client struct {
	Name     config.Name    `yaml:"name"`     // in its certificate
	Prefixes []netip.Prefix `yaml:"prefixes"` // source addresses of the flows that it may announce
}

// The bounds of the binding table's capacity.
const (
	leastBindings   = 64
	mostBindings    = 4 << 20
	defaultBindings = 65536
)

// Shared gives what every daemon has.
func (c Config) Shared() config.Common { return c.Common }

// Defaults is called by the loader.
func (c *Config) Defaults() { c.Bindings = defaultBindings }

// Validate is called by the loader.
func (c *Config) Validate() []config.Problem {
	var problems []config.Problem
	problem := func(path, format string, arguments ...any) {
		problems = append(problems, config.At(path, format, arguments...))
	}
	if len(c.Listen) == 0 {
		problem("listen", "need at least one address")
	}
	if !unicast6(c.Source) {
		problem("source", "need an IPv6 unicast address, have %s", c.Source)
	}
	if c.ReturnSID.IsValid() && !unicast6(c.ReturnSID) {
		problem("return_sid", "need an IPv6 unicast address, have %s", c.ReturnSID)
	}
	if len(c.Attachments) > 0 && !c.ReturnSID.IsValid() {
		problem("attachments", "where clients attach, return_sid has to say where return paths end")
	}
	if c.Block.IsValid() && (!c.Block.Addr().Is6() || c.Block != c.Block.Masked()) {
		problem("block", "need an IPv6 prefix without bits beyond its length, have %s", c.Block)
	}
	c.validateDomain(problem)
	if len(c.Core) == 0 {
		problem("core", "need at least one interface toward the network")
	}
	if c.Bindings < leastBindings || c.Bindings > mostBindings {
		problem("bindings", "need %d to %d, have %d", leastBindings, mostBindings, c.Bindings)
	}
	for i, name := range c.Core {
		checkInterface(problem, fmt.Sprintf("core[%d]", i), name)
	}
	for i, name := range c.Instances {
		checkInterface(problem, fmt.Sprintf("instances[%d]", i), name)
	}
	c.validateAttachments(problem)
	c.validateRoster(problem)
	return problems
}

func (c *Config) validateDomain(problem func(path, format string, arguments ...any)) {
	holdsBlock := len(c.SRDomain) == 0
	for i, p := range c.SRDomain {
		if !unicast6(p.Addr()) || p != p.Masked() {
			problem(fmt.Sprintf("sr_domain[%d]", i), "need an IPv6 prefix without bits beyond its length, have %s", p)
		}
		holdsBlock = holdsBlock || p.Overlaps(c.block()) && p.Bits() <= c.block().Bits()
	}
	if !holdsBlock && unicast6(c.Source) {
		problem("sr_domain", "need one that holds %s, which this forwarder's own SIDs are of", c.block())
	}
}

func unicast6(a netip.Addr) bool {
	return a.Is6() && !a.Is4In6() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback()
}

func (c *Config) validateAttachments(problem func(path, format string, arguments ...any)) {
	names := map[config.Name]bool{}
	owner := map[string]config.Name{} // of interface and prefix
	for i, a := range c.Attachments {
		at := fmt.Sprintf("attachments[%d].", i)
		if names[a.Name] {
			problem(at+"name", "attachment %s is given twice", a.Name)
		}
		names[a.Name] = true
		checkInterface(problem, at+"interface", a.Interface)
		if len(a.Prefixes) == 0 {
			problem(at+"prefixes", "need at least one; 0.0.0.0/0 and ::/0 admit every source")
		}
		for j, p := range a.Prefixes {
			key := a.Interface + " " + p.String()
			switch other, taken := owner[key]; {
			case p != p.Masked():
				problem(fmt.Sprintf("%sprefixes[%d]", at, j), "%s has bits beyond its length; need %s", p, p.Masked())
			case taken:
				problem(fmt.Sprintf("%sprefixes[%d]", at, j), "%s of %s belongs to attachment %s already", p, a.Interface, other)
			default:
				owner[key] = a.Name
			}
		}
	}
}

func (c *Config) validateRoster(problem func(path, format string, arguments ...any)) {
	operators, clients := map[config.Name]bool{}, map[config.Name]bool{}
	for i, name := range c.Operators {
		if operators[name] {
			problem(fmt.Sprintf("operators[%d]", i), "%q is there twice", name)
		}
		operators[name] = true
	}
	for i, client := range c.Clients {
		if clients[client.Name] {
			problem(fmt.Sprintf("clients[%d].name", i), "client %q is there twice", client.Name)
		}
		clients[client.Name] = true
		if len(client.Prefixes) == 0 {
			problem(fmt.Sprintf("clients[%d].prefixes", i), "need at least one, or the client can announce nothing")
		}
	}
}

func checkInterface(problem func(path, format string, arguments ...any), path, name string) {
	if len(name) == 0 || len(name) > 15 {
		problem(path, "interface %q: need a name of 1 to 15 octets", name)
	}
}

// block gives the prefix that this forwarder's SIDs are of.
func (c *Config) block() netip.Prefix {
	if c.Block.IsValid() {
		return c.Block
	}
	return netip.PrefixFrom(c.Source, 64).Masked()
}

// interfaces names the interfaces by role for the checks of the system.
func (c *Config) interfaces() kernel.Interfaces {
	i := kernel.Interfaces{Instances: c.Instances, Core: c.Core}
	seen := map[string]bool{}
	for _, a := range c.Attachments {
		if !seen[a.Interface] {
			seen[a.Interface] = true
			i.Attachments = append(i.Attachments, a.Interface)
		}
	}
	return i
}

// ports gives the interfaces that the program runs on, with all roles of each; release is the private one.
func (c *Config) ports(release string) []datapath.Port {
	ports := []datapath.Port{{Name: release, Role: datapath.RoleRelease}}
	add := func(name string, role datapath.Role) {
		for i := range ports {
			if ports[i].Name == name {
				ports[i].Role |= role
				return
			}
		}
		ports = append(ports, datapath.Port{Name: name, Role: role})
	}
	for _, a := range c.Attachments {
		add(a.Interface, datapath.RoleClient)
	}
	for _, name := range c.Core {
		add(name, datapath.RoleCore)
	}
	for _, name := range c.Instances {
		add(name, datapath.RoleInstance)
	}
	return ports
}

// planeAttachments gives the attachments in the form of the data plane.
func (c *Config) planeAttachments() []datapath.Attachment {
	var all []datapath.Attachment
	for _, a := range c.Attachments {
		all = append(all, datapath.Attachment{Name: string(a.Name), Interface: a.Interface, Prefixes: a.Prefixes})
	}
	return all
}

// coreAttachments gives the attachments in the form of the core; never nil.
func (c *Config) coreAttachments() []core.Attachment {
	all := []core.Attachment{}
	for _, a := range c.Attachments {
		all = append(all, core.Attachment{Name: string(a.Name), Tenant: string(a.Tenant), Prefixes: a.Prefixes})
	}
	return all
}
