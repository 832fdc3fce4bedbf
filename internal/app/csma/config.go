package csma

import (
	"fmt"
	"time"

	"github.com/margay-net/margay/cats"
	collect "github.com/margay-net/margay/internal/collect/grpc"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/csma"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// Config is the file of margay-csma.
type Config struct {
	config.Common   `yaml:",inline"`
	Site            config.Name        `yaml:"site"`
	Listen          []endpoint.Address `yaml:"listen"` // for SCI agents
	CPS             []config.Peer      `yaml:"cps"`
	State           config.Path        `yaml:"state"` // directory of the epoch
	SCIs            []Agent            `yaml:"scis"`
	Interval        time.Duration      `yaml:"interval,omitempty"`         // expected between full reports of an SCI
	Heartbeat       time.Duration      `yaml:"heartbeat,omitempty"`        // between FULL updates
	MinimumInterval time.Duration      `yaml:"minimum_interval,omitempty"` // between routine updates
	TTL             time.Duration      `yaml:"ttl,omitempty"`              // of a row at the C-PS
	Rows            int                `yaml:"rows,omitempty"`             // most rows of the cache
	Thresholds      Thresholds         `yaml:"thresholds,omitempty"`
	ReportRate      float64            `yaml:"report_rate,omitempty"`  // reports a second that are taken of an SCI
	ReportBurst     int                `yaml:"report_burst,omitempty"` // reports of an SCI that are taken at once
}

// Agent is an SCI agent, by the name in its certificate, and what it may report on.
type Agent struct {
	Agent     config.Name `yaml:"agent"`
	Instances []Instance  `yaml:"instances"`
}

// Instance is a contact instance with the services that may be reported of it.
type Instance struct {
	CSCIID   cats.CSCIID `yaml:"csci_id"`
	Services []cats.CSID `yaml:"services"`
}

// Thresholds are the changes above which a row is worth a routine update; see csma.Thresholds.
type Thresholds struct {
	GASPercent           uint32 `yaml:"gas_percent,omitempty"`
	GASAbsolute          uint32 `yaml:"gas_absolute,omitempty"`
	ComputingTimePercent uint32 `yaml:"computing_time_percent,omitempty"`
}

// Shared gives what every daemon's configuration has.
func (c Config) Shared() config.Common { return c.Common }

// Defaults sets what holds where the file is silent.
func (c *Config) Defaults() {
	d := csma.DefaultConfig
	c.Interval, c.Heartbeat, c.MinimumInterval, c.TTL, c.Rows = d.Interval, d.Heartbeat, d.MinInterval, d.TTL, d.MaxRows
	c.Thresholds.Defaults()
	c.ReportRate, c.ReportBurst = 10, 20
}

// Defaults sets what holds where the file is silent.
func (t *Thresholds) Defaults() {
	d := csma.DefaultConfig.Thresholds
	*t = Thresholds{GASPercent: uint32(d.GASPercent), GASAbsolute: uint32(d.GASAbsolute), ComputingTimePercent: uint32(d.TimePercent)}
}

// Validate finds what the types cannot say.
func (c *Config) Validate() []config.Problem {
	var problems []config.Problem
	add := func(path, format string, args ...any) { problems = append(problems, config.At(path, format, args...)) }
	if len(c.Listen) == 0 {
		add("listen", "need an address at which SCI agents find this C-SMA")
	}
	peers := map[config.Name]bool{}
	for i, p := range c.CPS {
		if peers[p.Name] {
			add(fmt.Sprintf("cps[%d].name", i), "C-PS %q is there twice", p.Name)
		}
		peers[p.Name] = true
	}
	agents, owners := map[config.Name]bool{}, map[cats.CSCIID]config.Name{}
	for i, a := range c.SCIs {
		if agents[a.Agent] {
			add(fmt.Sprintf("scis[%d].agent", i), "agent %q is there twice", a.Agent)
		}
		agents[a.Agent] = true
		for j, instance := range a.Instances {
			if owner, ok := owners[instance.CSCIID]; ok {
				add(fmt.Sprintf("scis[%d].instances[%d].csci_id", i, j), "instance %q is granted to agent %q already", instance.CSCIID, owner)
			}
			owners[instance.CSCIID] = a.Agent
		}
	}
	if !(c.ReportRate >= 0.1 && c.ReportRate <= 10_000) {
		add("report_rate", "%g reports a second: need 0.1 to 10000", c.ReportRate)
	}
	if c.ReportBurst < 1 || c.ReportBurst > 10_000 {
		add("report_burst", "%d reports: need 1 to 10000", c.ReportBurst)
	}
	if core := c.core(); len(problems) == 0 {
		if err := core.Check(); err != nil {
			add("", "%v", err)
		}
	}
	return problems
}

// core gives what the Core works by.
func (c *Config) core() csma.Config {
	out := csma.DefaultConfig
	out.Name, out.Site = string(c.Name), string(c.Site)
	out.Interval, out.Heartbeat, out.MinInterval, out.TTL, out.MaxRows = c.Interval, c.Heartbeat, c.MinimumInterval, c.TTL, c.Rows
	out.Thresholds = csma.Thresholds{
		GASPercent: uint64(c.Thresholds.GASPercent), GASAbsolute: uint64(c.Thresholds.GASAbsolute), TimePercent: uint64(c.Thresholds.ComputingTimePercent),
	}
	for _, p := range c.CPS {
		out.CPS = append(out.CPS, string(p.Name))
	}
	for _, a := range c.SCIs {
		for _, instance := range a.Instances {
			out.Grants = append(out.Grants, csma.Grant{Agent: string(a.Agent), CSCIID: instance.CSCIID, Services: instance.Services})
		}
	}
	return out
}

// limits are the report rates of all agents; one that speaks for several SCIs may send as much as they could.
func (c *Config) limits() map[string]collect.Limit {
	all := make(map[string]collect.Limit, len(c.SCIs))
	for _, a := range c.SCIs {
		all[string(a.Agent)] = collect.Limit{Rate: c.ReportRate * float64(len(a.Instances)), Burst: c.ReportBurst * len(a.Instances)}
	}
	return all
}

// roster is who may open a channel.
func (c *Config) roster() trust.Roster {
	names := make([]string, len(c.SCIs))
	for i, a := range c.SCIs {
		names[i] = string(a.Agent)
	}
	return trust.Roster{trust.SCI: names}
}
