package cps

import (
	"errors"
	"fmt"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	core "github.com/margay-net/margay/internal/cps"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// Config is the file of margay-cps, with the catalogue that it names.
type Config struct {
	config.Common `yaml:",inline"`
	Listen        []endpoint.Address `yaml:"listen"`    // for forwarders, C-SMAs, C-NMAs and operators
	State         config.Path        `yaml:"state"`     // directory of the epoch
	Catalogue     config.Path        `yaml:"catalogue"` // file
	Forwarders    []config.Name      `yaml:"forwarders"`
	CSMAs         []CSMA             `yaml:"csmas,omitempty"`
	CNMAs         []config.Name      `yaml:"cnmas,omitempty"`
	Operators     []config.Name      `yaml:"operators,omitempty"`
	ReplayWindow  time.Duration      `yaml:"replay_window,omitempty"` // how far the timestamp of an update may be off, either way
	Limits        Limits             `yaml:"limits,omitempty"`

	domain *core.Domain // set by Load
}

// CSMA is a C-SMA, and what it may report on.
type CSMA struct {
	Name     config.Name `yaml:"name"`
	Site     config.Name `yaml:"site"`
	Services []cats.CSID `yaml:"services"`
}

// Limits are the most transactions under way at once; see admission.Limits.
type Limits struct {
	Pending   int `yaml:"pending,omitempty"`
	PerTenant int `yaml:"per_tenant,omitempty"`
	PerClient int `yaml:"per_client,omitempty"`
}

// Shared gives what every daemon's configuration has.
func (c Config) Shared() config.Common { return c.Common }

// Defaults sets what holds where the file is silent.
func (l *Limits) Defaults() {
	d := core.DefaultLimits().Pending
	*l = Limits{Pending: d.Total, PerTenant: d.PerTenant, PerClient: d.PerClient}
}

// Defaults sets what holds where the file is silent.
func (c *Config) Defaults() {
	c.ReplayWindow = defaultReplayWindow
	c.Limits.Defaults()
}

// The window of C-SMA section 8.3. More than an hour protects from nothing.
const (
	defaultReplayWindow = 30 * time.Second
	mostReplayWindow    = time.Hour
)

// Validate finds limits that admit nothing.
func (l *Limits) Validate() []config.Problem {
	var problems []config.Problem
	for _, v := range []struct {
		key   string
		value int
	}{{"pending", l.Pending}, {"per_tenant", l.PerTenant}, {"per_client", l.PerClient}} {
		if v.value < 1 {
			problems = append(problems, config.At(v.key, "%d: need at least 1, or no flow is ever admitted", v.value))
		}
	}
	return problems
}

// Validate finds what the types cannot say.
func (c *Config) Validate() []config.Problem {
	var problems []config.Problem
	add := func(path, format string, args ...any) { problems = append(problems, config.At(path, format, args...)) }
	if len(c.Listen) == 0 {
		add("listen", "need an address at which forwarders and sources find this C-PS")
	}
	if len(c.Forwarders) == 0 {
		add("forwarders", "need the name of a forwarder: without one nothing can be steered")
	}
	if c.ReplayWindow < time.Second || c.ReplayWindow > mostReplayWindow {
		add("replay_window", "%s: need 1s to %s", c.ReplayWindow, mostReplayWindow)
	}
	twice := func(key string, names []config.Name) {
		seen := make(map[config.Name]bool)
		for i, name := range names {
			if seen[name] {
				add(fmt.Sprintf("%s[%d]", key, i), "%q is there twice", name)
			}
			seen[name] = true
		}
	}
	twice("forwarders", c.Forwarders)
	twice("cnmas", c.CNMAs)
	twice("operators", c.Operators)
	csmas := make(map[config.Name]bool)
	for i, s := range c.CSMAs {
		if csmas[s.Name] {
			add(fmt.Sprintf("csmas[%d].name", i), "C-SMA %q is there twice", s.Name)
		}
		csmas[s.Name] = true
	}
	return problems
}

// Load reads the configuration and the catalogue that it names, and checks that they fit together.
func Load(path string) (Config, error) {
	c, err := config.Load[Config](path)
	if err != nil {
		return Config{}, err
	}
	file, err := config.Load[catalogueFile](string(c.Catalogue))
	if err != nil {
		return Config{}, err
	}
	if err := c.fits(path, &file); err != nil {
		return Config{}, err
	}
	c.domain = &core.Domain{Catalogue: file.catalogue, Forwarders: names(c.Forwarders)}
	for _, s := range c.CSMAs {
		c.domain.Sources = append(c.domain.Sources, core.Source{Name: string(s.Name), Site: string(s.Site), Services: s.Services})
	}
	return c, nil
}

// fits finds what one of the two files says of something that the other does not have.
func (c *Config) fits(path string, file *catalogueFile) error {
	var problems []error
	forwarders := make(map[config.Name]bool)
	for _, name := range c.Forwarders {
		forwarders[name] = true
	}
	for i, s := range c.CSMAs {
		for j, id := range s.Services {
			if file.catalogue.Service(id) == nil {
				problems = append(problems, fmt.Errorf("%s: csmas[%d].services[%d]: %s has no service %q", path, i, j, c.Catalogue, id))
			}
		}
	}
	for i, d := range file.Deployments {
		for j, e := range d.Egress {
			if !forwarders[e.Forwarder] {
				problems = append(problems, fmt.Errorf("%s: deployments[%d].egress[%d].forwarder: %q is not among the forwarders of %s", c.Catalogue, i, j, e.Forwarder, path))
			}
		}
	}
	for i, a := range file.Attachments {
		if !forwarders[a.Ingress] {
			problems = append(problems, fmt.Errorf("%s: attachments[%d].ingress: %q is not among the forwarders of %s", c.Catalogue, i, a.Ingress, path))
		}
	}
	return errors.Join(problems...)
}

// roster is who may open a channel.
func (c *Config) roster() trust.Roster {
	csmas := make([]string, len(c.CSMAs))
	for i, s := range c.CSMAs {
		csmas[i] = string(s.Name)
	}
	return trust.Roster{
		trust.Forwarder: names(c.Forwarders), trust.CSMA: csmas, trust.CNMA: names(c.CNMAs), trust.Operator: names(c.Operators),
	}
}

func names(list []config.Name) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = string(n)
	}
	return out
}
