package sci

import (
	"fmt"
	"math"
	"time"

	"github.com/margay-net/margay/cats"
)

// NoLimit as Service.MaxSlots leaves the number of slots to the resources.
const NoLimit = math.MaxUint32

// Service is one service behind the contact instance.
type Service struct {
	CSID            cats.CSID
	Version         string // as the catalogue has it
	ComputingTimeMS uint32 // time of one request, ms, 0..3,600,000
	MaxSlots        uint32 // administrator's limit; 0 takes the instance out of new admissions; NoLimit: none
	Resources       []Resource
	CheckInterval   time.Duration // between health checks, > 0
	Price           cats.Optional[uint32]
	Reputation      cats.Optional[uint8]
	SecurityLevel   cats.Optional[uint8]
}

// Config is what a Reporter measures and how often it reports.
type Config struct {
	CSCIID   cats.CSCIID
	Site     string
	Interval time.Duration // between full reports, > 0; changes are reported at once beside them
	Degraded float64       // share of the slots that a DEGRADED instance reports, 0..1
	Rules    Rules
	Services []Service
}

// Check gives the first fault of c, naming the service; nil where a Reporter can run on it.
func (c *Config) Check() error {
	if _, err := cats.ParseCSCIID(string(c.CSCIID)); err != nil {
		return err
	}
	if _, err := cats.ParseName("site", c.Site); err != nil {
		return err
	}
	if c.Interval <= 0 {
		return fmt.Errorf("interval %v: need more than 0: %w", c.Interval, cats.ReasonRange)
	}
	if !(c.Degraded >= 0 && c.Degraded <= 1) {
		return fmt.Errorf("degraded weight %v is outside 0 to 1: %w", c.Degraded, cats.ReasonRange)
	}
	if len(c.Services) == 0 {
		return fmt.Errorf("no service to report on: %w", cats.ReasonMalformed)
	}
	seen := make(map[cats.CSID]bool, len(c.Services))
	for i := range c.Services {
		s := &c.Services[i]
		if err := s.Check(); err != nil {
			return fmt.Errorf("service %q: %w", s.CSID, err)
		}
		if seen[s.CSID] {
			return fmt.Errorf("service %q is there twice: %w", s.CSID, cats.ReasonDuplicate)
		}
		seen[s.CSID] = true
	}
	return nil
}

// Check gives the first fault of s.
func (s *Service) Check() error {
	if _, err := cats.ParseCSID(string(s.CSID)); err != nil {
		return err
	}
	if s.CheckInterval <= 0 {
		return fmt.Errorf("check interval %v: need more than 0: %w", s.CheckInterval, cats.ReasonRange)
	}
	bounded := s.MaxSlots != NoLimit
	for _, r := range s.Resources {
		if err := r.Check(); err != nil {
			return err
		}
		bounded = bounded || r.Need > 0
	}
	if !bounded {
		return fmt.Errorf("neither max_slots nor a needed resource bounds its slots: %w", cats.ReasonMalformed)
	}
	m := s.metrics()
	return m.CheckRange()
}

// metrics are the metrics of s that do not depend on its health.
func (s *Service) metrics() cats.Metrics {
	return cats.Metrics{
		ComputingTimeMS: s.ComputingTimeMS,
		Price:           s.Price, Reputation: s.Reputation, SecurityLevel: s.SecurityLevel,
	}
}
