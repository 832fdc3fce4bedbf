package sci

import (
	"fmt"
	"net/url"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust/endpoint"
	"github.com/margay-net/margay/sci"
)

// Config is the file of margay-sci.
type Config struct {
	config.Common `yaml:",inline"`
	CSMA          config.Peer   `yaml:"csma"`
	Site          config.Name   `yaml:"site"`
	CSCIID        cats.CSCIID   `yaml:"csci_id"`
	State         config.Path   `yaml:"state"`                    // directory of the epoch
	Interval      time.Duration `yaml:"interval,omitempty"`       // between full reports
	DegradedShare float64       `yaml:"degraded_share,omitempty"` // of the slots, that a DEGRADED instance reports
	Services      []Service     `yaml:"services"`
}

// Service is one service behind the contact instance.
type Service struct {
	CSID            cats.CSID  `yaml:"cs_id"`
	Version         string     `yaml:"version"`
	ComputingTimeMS uint32     `yaml:"computing_time_ms"`
	MaxSlots        *uint32    `yaml:"max_slots,omitempty"` // absent: the resources alone bound the slots
	Resources       []Resource `yaml:"resources,omitempty"`
	Price           *uint32    `yaml:"price,omitempty"`          // milli-units of currency per request
	Reputation      *uint8     `yaml:"reputation,omitempty"`     // 0..10
	SecurityLevel   *uint8     `yaml:"security_level,omitempty"` // 0..10
	Check           Check      `yaml:"check"`
}

// Resource is what bounds the slots of a service; see sci.Resource.
type Resource struct {
	Name     config.Name `yaml:"name"`
	Capacity float64     `yaml:"capacity"`
	Reserve  float64     `yaml:"reserve,omitempty"`
	Use      float64     `yaml:"use,omitempty"`
	Need     float64     `yaml:"need"`
}

// Check is how the health of a service is observed: exactly one of TCP and HTTP is set.
type Check struct {
	TCP      endpoint.Address `yaml:"tcp,omitempty"`  // good if it can be connected to
	HTTP     string           `yaml:"http,omitempty"` // URL; good if GET answers 2xx
	Interval time.Duration    `yaml:"interval,omitempty"`
}

// Shared gives what every daemon's configuration has.
func (c Config) Shared() config.Common { return c.Common }

// Defaults sets what holds where the file is silent.
func (c *Config) Defaults() { c.Interval, c.DegradedShare = sci.DefaultInterval, sci.DefaultDegraded }

// Defaults sets what holds where the file is silent.
func (c *Check) Defaults() { c.Interval = sci.DefaultCheckInterval }

// Validate finds a resource that cannot be.
func (r *Resource) Validate() []config.Problem {
	if err := r.core().Check(); err != nil {
		return []config.Problem{config.At("", "%v", err)}
	}
	return nil
}

// Validate finds a check that cannot be carried out.
func (c *Check) Validate() []config.Problem {
	if (c.TCP == "") == (c.HTTP == "") {
		return []config.Problem{config.At("", "need exactly one of tcp and http")}
	}
	if c.HTTP == "" {
		return nil
	}
	u, err := url.Parse(c.HTTP)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return []config.Problem{config.At("http", "URL %q: need http://host[:port]/path or https://…", c.HTTP)}
	}
	return nil
}

// Validate finds a service that cannot be reported on.
func (s *Service) Validate() []config.Problem {
	core := s.core()
	if err := core.Check(); err != nil {
		return []config.Problem{config.At("", "%v", err)}
	}
	return nil
}

// Validate finds what concerns several services, or none of them.
func (c *Config) Validate() []config.Problem {
	var problems []config.Problem
	first := map[cats.CSID]int{}
	for i, s := range c.Services {
		if j, ok := first[s.CSID]; ok {
			problems = append(problems, config.At(fmt.Sprintf("services[%d].cs_id", i), "service %q is there twice, first as services[%d]", s.CSID, j))
			continue
		}
		first[s.CSID] = i
	}
	if core := c.core(); len(problems) == 0 {
		if err := core.Check(); err != nil {
			problems = append(problems, config.At("", "%v", err))
		}
	}
	return problems
}

// core gives what the Reporter works by.
func (c *Config) core() sci.Config {
	out := sci.Config{CSCIID: c.CSCIID, Site: string(c.Site), Interval: c.Interval, Degraded: c.DegradedShare, Rules: sci.DefaultRules}
	for i := range c.Services {
		out.Services = append(out.Services, c.Services[i].core())
	}
	return out
}

func (s *Service) core() sci.Service {
	out := sci.Service{
		CSID: s.CSID, Version: s.Version, ComputingTimeMS: s.ComputingTimeMS, MaxSlots: sci.NoLimit, CheckInterval: s.Check.Interval,
		Price: optional(s.Price), Reputation: optional(s.Reputation), SecurityLevel: optional(s.SecurityLevel),
	}
	if s.MaxSlots != nil {
		out.MaxSlots = *s.MaxSlots
	}
	for i := range s.Resources {
		out.Resources = append(out.Resources, s.Resources[i].core())
	}
	return out
}

func (r *Resource) core() sci.Resource {
	return sci.Resource{Name: string(r.Name), Capacity: r.Capacity, Reserve: r.Reserve, Use: r.Use, Need: r.Need}
}

func optional[T any](p *T) cats.Optional[T] {
	if p == nil {
		return cats.Optional[T]{}
	}
	return cats.Some(*p)
}
