// Package static is the topology source that an operator writes by hand: a YAML file of nodes and links with their
// measurements.
package static

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
)

// MaxRows is how many nodes, and how many links in one direction, a file can have: what one update carries.
const MaxRows = 16_384

// defaultTEMetric lets a path of least TE metric be one of fewest links where the file gives no metric.
const defaultTEMetric = 1

// Topology is what a file says, with each link in one direction.
type Topology struct {
	Nodes []cats.Node
	Links []cats.Link
}

// Load reads a topology file. The error lists everything that is wrong with it, each with its line.
func Load(path string) (Topology, error) {
	f, err := config.Load[file](path)
	if err != nil {
		return Topology{}, err
	}
	return f.topology(), nil
}

type file struct {
	Nodes []node `yaml:"nodes"`
	Links []link `yaml:"links,omitempty"`
}

type node struct {
	Name config.Name `yaml:"name"`
	SID  netip.Addr  `yaml:"sid,omitempty"` // SRv6 End SID; only a node with one can be passed on the way to another
}

// link is one direction of a link, or both. What the file does not say of jitter and loss is none, and of bandwidth
// none available, so that a bound on it fails.
type link struct {
	From          config.Name `yaml:"from"`
	To            config.Name `yaml:"to"`
	Both          bool        `yaml:"both,omitempty"`      // the way back has the same values
	DelayUS       uint32      `yaml:"delay_us"`            // one-way, 1 to 16,777,215 µs
	JitterUS      uint32      `yaml:"jitter_us,omitempty"` // 0 to 16,777,215 µs
	LossPPM       uint32      `yaml:"loss_ppm,omitempty"`  // 0 to 1,000,000 ppm
	BandwidthKbps uint32      `yaml:"bandwidth_kbps,omitempty"`
	TEMetric      uint32      `yaml:"te_metric,omitempty"` // 0 to 16,777,215; default 1
}

// Defaults is called by the loader.
func (l *link) Defaults() { l.TEMetric = defaultTEMetric }

func (l *link) directions() []cats.Link {
	there := cats.Link{
		From: string(l.From), To: string(l.To), DelayUS: l.DelayUS, JitterUS: l.JitterUS, LossPPM: l.LossPPM,
		BandwidthKbps: l.BandwidthKbps, TEMetric: l.TEMetric,
	}
	if !l.Both {
		return []cats.Link{there}
	}
	back := there
	back.From, back.To = there.To, there.From
	return []cats.Link{there, back}
}

func (f *file) topology() Topology {
	var t Topology
	for _, n := range f.Nodes {
		t.Nodes = append(t.Nodes, cats.Node{Name: string(n.Name), SID: n.SID})
	}
	for _, l := range f.Links {
		t.Links = append(t.Links, l.directions()...)
	}
	return t
}

// Validate finds what one key alone cannot say; it is called by the loader.
func (f *file) Validate() []config.Problem {
	v := validation{nodes: map[config.Name]int{}, sids: map[netip.Addr]config.Name{}, links: map[[2]string]int{}}
	for i := range f.Nodes {
		v.node(i, &f.Nodes[i])
	}
	for i := range f.Links {
		v.link(i, &f.Links[i])
	}
	if n := len(f.Nodes); n == 0 || n > MaxRows {
		v.problem("nodes", "need 1 to %d, have %d", MaxRows, n)
	}
	if n := len(v.links); n > MaxRows {
		v.problem("links", "need at most %d directions, have %d", MaxRows, n)
	}
	return v.problems
}

type validation struct {
	nodes    map[config.Name]int
	sids     map[netip.Addr]config.Name
	links    map[[2]string]int
	problems []config.Problem
}

func (v *validation) problem(path, format string, args ...any) {
	v.problems = append(v.problems, config.At(path, format, args...))
}

func (v *validation) node(i int, n *node) {
	at := fmt.Sprintf("nodes[%d]", i)
	if first, twice := v.nodes[n.Name]; twice {
		v.problem(at+".name", "node %s is already nodes[%d]", n.Name, first)
		return
	}
	v.nodes[n.Name] = i
	if err := (cats.Node{Name: string(n.Name), SID: n.SID}).Check(); err != nil {
		v.problem(at+".sid", "%s", text(err))
	}
	if owner, taken := v.sids[n.SID]; taken && n.SID.IsValid() {
		v.problem(at+".sid", "SID %s is already that of node %s", n.SID, owner)
	}
	v.sids[n.SID] = n.Name
}

func (v *validation) link(i int, l *link) {
	at := fmt.Sprintf("links[%d]", i)
	v.end(at+".from", l.From)
	v.end(at+".to", l.To)
	for _, d := range l.directions() {
		if err := d.Check(); err != nil {
			v.problem(at, "%s", text(err))
			return // the way back has the same values
		}
		ends := [2]string{d.From, d.To}
		if first, twice := v.links[ends]; twice {
			v.problem(at, "link %s is already in links[%d]", d, first)
			return
		}
		v.links[ends] = i
	}
}

func (v *validation) end(at string, name config.Name) {
	if _, known := v.nodes[name]; !known {
		v.problem(at, "node %s is not one of nodes", name)
	}
}

// text is an error's text without the reason that it wraps.
func text(err error) string {
	return strings.TrimSuffix(err.Error(), ": "+cats.ReasonOf(err).String())
}
