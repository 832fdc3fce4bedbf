package csma

import (
	"fmt"
	"time"

	"github.com/margay-net/margay/cats"
)

// Grant is one line of the hard-state table: the agent that holds a certificate of that name may report on one contact
// instance, and on these services of it (C-SMA section 12).
type Grant struct {
	Agent    string
	CSCIID   cats.CSCIID
	Services []cats.CSID
}

// Thresholds are the changes against the value last told to a C-PS above which a row is worth a routine update (C-SMA
// section 7.3).
type Thresholds struct {
	GASPercent  uint64 // of the value last told
	GASAbsolute uint64 // slots
	TimePercent uint64 // of the computing time last told
}

// Config is what a Core works by. DefaultConfig gives the settled values of everything but Name, Site, Grants and CPS.
type Config struct {
	Name        string  // of this C-SMA; equals its certificate's
	Site        string  // whose metrics it is authoritative for
	Grants      []Grant // every CSCI-ID once
	CPS         []string
	Interval    time.Duration // expected between full reports; ttl classes are multiples of it
	Heartbeat   time.Duration // between FULL updates
	MinInterval time.Duration // between routine updates
	Coalesce    time.Duration // that a FULL after discovery or withdrawal waits for more of them
	TTL         time.Duration // that a C-PS may rely on a row without hearing of it
	Thresholds  Thresholds
	MaxRows     int // rows of the cache, 1..16,384, as one FULL carries them all; the least recently updated one makes room
}

// DefaultConfig are the values of docs/by-reference.md sections 6 and 7.
var DefaultConfig = Config{
	Interval:    5 * time.Second,
	Heartbeat:   60 * time.Second,
	MinInterval: 5 * time.Second,
	Coalesce:    100 * time.Millisecond,
	TTL:         150 * time.Second,
	Thresholds:  Thresholds{GASPercent: 10, GASAbsolute: 50, TimePercent: 20},
	MaxRows:     mostRows,
}

// The ttl classes as multiples of the reporting interval (docs/by-reference.md section 6).
const (
	dynamicTTL     = 2  // slots, computing time, health: the row becomes STALE
	graceTTL       = 1  // after that: FAILED
	quasiStaticTTL = 10 // price, reputation, security level, extensions: the value becomes absent
)

// mostRows is what one update carries.
const mostRows = 16384

// maxAhead is how far an SCI's epoch, which is a time in ms, may lie ahead of the C-SMA's clock.
const maxAhead = 30 * time.Second

// Check gives the first fault of c; nil where a Core can run on it.
func (c *Config) Check() error {
	if _, err := cats.ParseName("name", c.Name); err != nil {
		return err
	}
	if _, err := cats.ParseName("site", c.Site); err != nil {
		return err
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"interval", c.Interval}, {"heartbeat", c.Heartbeat}, {"minimum interval", c.MinInterval}, {"coalescing time", c.Coalesce}, {"ttl", c.TTL},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s %v: need more than 0: %w", d.name, d.value, cats.ReasonRange)
		}
	}
	if c.Heartbeat >= c.TTL {
		return fmt.Errorf("heartbeat %v: need less than the ttl %v, or every row expires between two: %w", c.Heartbeat, c.TTL, cats.ReasonRange)
	}
	if c.MaxRows < 1 || c.MaxRows > mostRows {
		return fmt.Errorf("%d rows: need 1 to %d: %w", c.MaxRows, mostRows, cats.ReasonRange)
	}
	if len(c.CPS) == 0 {
		return fmt.Errorf("no C-PS to advertise to: %w", cats.ReasonMalformed)
	}
	return c.checkGrants()
}

func (c *Config) checkGrants() error {
	owner := make(map[cats.CSCIID]string, len(c.Grants))
	for _, g := range c.Grants {
		if _, err := cats.ParseName("agent", g.Agent); err != nil {
			return err
		}
		if _, err := cats.ParseCSCIID(string(g.CSCIID)); err != nil {
			return fmt.Errorf("agent %q: %w", g.Agent, err)
		}
		if other, ok := owner[g.CSCIID]; ok {
			return fmt.Errorf("instance %q is granted to agent %q and to agent %q: %w", g.CSCIID, other, g.Agent, cats.ReasonDuplicate)
		}
		owner[g.CSCIID] = g.Agent
		if len(g.Services) == 0 {
			return fmt.Errorf("agent %q, instance %q: no service is granted: %w", g.Agent, g.CSCIID, cats.ReasonMalformed)
		}
		for _, id := range g.Services {
			if _, err := cats.ParseCSID(string(id)); err != nil {
				return fmt.Errorf("agent %q, instance %q: %w", g.Agent, g.CSCIID, err)
			}
		}
	}
	return nil
}
