package cnma

import (
	"fmt"
	"time"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/topology/static"
)

// Config is the configuration file of margay-cnma.
type Config struct {
	config.Common `yaml:",inline"`
	CPS           []config.Peer `yaml:"cps"`      // each is told the whole topology
	State         config.Path   `yaml:"state"`    // directory, made if absent; what must survive a restart
	Topology      config.Path   `yaml:"topology"` // file of the static source
	Refresh       time.Duration `yaml:"refresh,omitempty"`

	static static.Topology // what the topology file says
}

// The default refresh, and its bounds.
const (
	defaultRefresh = 10 * time.Second
	leastRefresh   = time.Second
	mostRefresh    = time.Hour
)

// Load reads the configuration and the topology file that it names: a fault in either is a fault of both.
func Load(path string) (Config, error) {
	c, err := config.Load[Config](path)
	if err != nil {
		return Config{}, err
	}
	if c.static, err = static.Load(string(c.Topology)); err != nil {
		return Config{}, fmt.Errorf("topology: %w", err)
	}
	return c, nil
}

// Shared gives what every daemon has.
func (c Config) Shared() config.Common { return c.Common }

// Defaults is called by the loader.
func (c *Config) Defaults() { c.Refresh = defaultRefresh }

// Validate is called by the loader.
func (c *Config) Validate() []config.Problem {
	var problems []config.Problem
	if len(c.CPS) == 0 {
		problems = append(problems, config.At("cps", "need at least one C-PS"))
	}
	seen := map[config.Name]bool{}
	for i, p := range c.CPS {
		if seen[p.Name] {
			problems = append(problems, config.At(fmt.Sprintf("cps[%d].name", i), "C-PS %s is given twice", p.Name))
		}
		seen[p.Name] = true
	}
	if c.Refresh < leastRefresh || c.Refresh > mostRefresh {
		problems = append(problems, config.At("refresh", "need %s to %s, have %s", leastRefresh, mostRefresh, c.Refresh))
	}
	return problems
}
