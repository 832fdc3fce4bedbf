package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/lab/impair"
	"github.com/margay-net/margay/internal/lab/namespace"
)

// middleNode is the namespace where the links that can be impaired have their middles. No node of a topology has its name.
const middleNode config.Name = "impair"

// ImpairRole is the role of the processes that impair links, one for each link that is impaired.
const ImpairRole = "impair"

// impairTime bounds one change, if the caller's context does not.
const impairTime = 30 * time.Second

// impairable lists the links that have a middle.
func (t *Topology) impairable() (all []int) {
	for i := range t.Links {
		if t.Links[i].Impairable {
			all = append(all, i)
		}
	}
	return all
}

// middleInterfaces names the two interfaces in the middle of a link, on the side of either end.
func middleInterfaces(link int) (a, b string) {
	return "l" + strconv.Itoa(link) + "a", "l" + strconv.Itoa(link) + "b"
}

// buildMiddle makes the namespace of the middles, if there are any. Nothing there speaks by itself.
func (l *Lab) buildMiddle() error {
	if len(l.topology.impairable()) == 0 {
		return nil
	}
	ns, err := namespace.New(l.layout.namespace(middleNode))
	if err != nil {
		return err
	}
	l.nodes[middleNode] = &Node{lab: l, Name: string(middleNode), namespace: ns}
	if err := ns.Do(func() error {
		return errors.Join(writeSysctl("ipv6/conf/default/disable_ipv6", "1"), writeSysctl("ipv6/conf/all/disable_ipv6", "1"))
	}); err != nil {
		return fmt.Errorf("node %s: %w", middleNode, err)
	}
	return nil
}

// makeMiddle makes the two veth pairs of a link with a middle.
func (l *Lab) makeMiddle(link int, a, b *Node, mtu int) error {
	spec, middle := &l.topology.Links[link], l.nodes[middleNode]
	inA, inB := middleInterfaces(link)
	return errors.Join(
		l.makePair(a, spec.A.Interface, middle, inA, mtu),
		l.makePair(middle, inB, b, spec.B.Interface, mtu),
	)
}

// joinMiddle joins the two pairs. The ends must be up: a veth whose peer has a program lets nobody change its offloads.
func (l *Lab) joinMiddle(link int) error {
	a, b := middleInterfaces(link)
	return l.nodes[middleNode].Do(func() error {
		for _, name := range []string{a, b} {
			if err := bringUp(name, nil, true); err != nil {
				return err
			}
		}
		return impair.Join(a, b)
	})
}

// makePair makes a veth pair.
func (l *Lab) makePair(a *Node, aName string, b *Node, bName string, mtu int) error {
	return a.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = aName, mtu
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: bName, PeerNamespace: netlink.NsFd(b.namespace.Fd()), PeerMTU: uint32(mtu),
		})
	})
}

// Way is which of the directions of a link, as seen from one of its ends.
type Way string

// The ways.
const (
	BothWays Way = "both"
	Out      Way = "out"
	In       Way = "in"
)

// ParseWay reads one of the ways.
func ParseWay(s string) (Way, error) {
	if w := Way(s); w == BothWays || w == Out || w == In {
		return w, nil
	}
	return "", fmt.Errorf("direction %q: need %s, %s or %s", s, BothWays, Out, In)
}

// directions translates a way that is seen from the end from which d leads away.
func (w Way) directions(d impair.Direction) []impair.Direction {
	switch w {
	case Out:
		return []impair.Direction{d}
	case In:
		return []impair.Direction{d.Reverse()}
	}
	return impair.Directions
}

// Impair makes an impairment hold from now on in one or both directions of the link that has an end at "NODE:INTERFACE",
// in place of what held there before.
func (l *Lab) Impair(ctx context.Context, at string, way Way, i impair.Impairment) error {
	if err := i.Check(); err != nil {
		return err
	}
	link, from, err := l.impairableLink(at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, impairTime, fmt.Errorf("waited %s", impairTime))
	defer cancel()
	unlock, err := l.lockSoon(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	d, err := l.startImpairer(ctx, link)
	if err != nil {
		return err
	}
	_, err = impair.Apply(ctx, l.layout.socket(d.Name), impair.Change{Directions: way.directions(from), To: &i})
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", l.describe(link), err), l.endIfClear(ctx, d, link))
	}
	return nil
}

// ClearImpairment makes one or both directions of the link that has an end at "NODE:INTERFACE" as they were built; with an
// empty place both directions of all links. It is no error if nothing is impaired. It also mends links whose process
// was killed.
func (l *Lab) ClearImpairment(ctx context.Context, at string, way Way) error {
	links := l.state.Impairable
	from := impair.AToB
	if at != "" {
		link, direction, err := l.impairableLink(at)
		if err != nil {
			return err
		}
		links, from = []int{link}, direction
	} else {
		way = BothWays
	}
	ctx, cancel := context.WithTimeoutCause(ctx, impairTime, fmt.Errorf("waited %s", impairTime))
	defer cancel()
	unlock, err := l.lockSoon(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.adopt(); err != nil {
		return err
	}
	for _, link := range links {
		d := l.impairer(link)
		if d == nil {
			continue
		}
		if d.running() {
			_, err := impair.Apply(ctx, l.layout.socket(d.Name), impair.Change{Directions: way.directions(from)})
			if err != nil {
				return fmt.Errorf("%s: %w", l.describe(link), err)
			}
		}
		if err := l.endIfClear(ctx, d, link); err != nil {
			return err
		}
	}
	return nil
}

// Impaired is one direction of a link that is impaired.
type Impaired struct {
	From, To string // NODE:INTERFACE
	Set      impair.Impairment
	Counts   impair.Counts
}

// Impairments gives what is impaired. The error also tells of links whose process has ended; they carry nothing until
// they are cleared.
func (l *Lab) Impairments(ctx context.Context) (all []Impaired, err error) {
	if err := l.adopt(); err != nil {
		return nil, err
	}
	for _, link := range l.state.Impairable {
		d := l.impairer(link)
		if d == nil {
			continue
		}
		s, asked := impair.Ask(ctx, l.layout.socket(d.Name))
		if asked != nil {
			err = errors.Join(err, fmt.Errorf("%s: its process does not answer, and where it is impaired it carries nothing; clear it: %w", l.describe(link), asked))
			continue
		}
		spec := &l.topology.Links[link]
		for _, way := range impair.Directions {
			if s.Impairments[way] == nil {
				continue
			}
			from, to := spec.A.place(), spec.B.place()
			if way == impair.BToA {
				from, to = to, from
			}
			all = append(all, Impaired{From: from, To: to, Set: *s.Impairments[way], Counts: s.Counts[way]})
		}
	}
	return all, err
}

// place is how commands name an end.
func (e *End) place() string { return string(e.Node) + ":" + e.Interface }

func (l *Lab) describe(link int) string {
	spec := &l.topology.Links[link]
	return fmt.Sprintf("link %s to %s", spec.A.place(), spec.B.place())
}

// impairableLink finds the link that has an end at "NODE:INTERFACE", and the direction that leads away from there.
func (l *Lab) impairableLink(at string) (link int, from impair.Direction, err error) {
	for i := range l.topology.Links {
		spec := &l.topology.Links[i]
		switch at {
		case spec.A.place():
			link, from = i, impair.AToB
		case spec.B.place():
			link, from = i, impair.BToA
		default:
			continue
		}
		if !slices.Contains(l.state.Impairable, i) {
			return 0, 0, fmt.Errorf("%s was not built to be impaired; write `impairable: true` at it in the topology, or bring the lab up with --impairable", l.describe(i))
		}
		return link, from, nil
	}
	name, _, _ := strings.Cut(at, ":")
	if _, err := l.Node(name); err != nil {
		return 0, 0, err
	}
	var known []string
	for _, e := range l.topology.ends(config.Name(name)) {
		known = append(known, e.here.place())
	}
	return 0, 0, fmt.Errorf("%q is no end of a link; node %s has %v", at, name, known)
}

// lockSoon waits for another command that changes the lab.
func (l *Lab) lockSoon(ctx context.Context) (unlock func(), err error) {
	for {
		if unlock, err = lock(l.layout); !errors.Is(err, errBusy) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pollEvery):
		}
	}
}

// adopt takes over what other programs have changed in the lab since this one has read of it.
func (l *Lab) adopt() error {
	s, err := loadState(l.layout)
	if err != nil {
		return fmt.Errorf("lab %s is not up: %w", l.layout.lab, err)
	}
	for i, d := range s.Daemons {
		if known := l.daemonNamed(d.Name); known != nil {
			*known = *d
			s.Daemons[i] = known
		}
	}
	l.state.Daemons = s.Daemons
	return nil
}

func (l *Lab) daemonNamed(name string) *Daemon {
	for _, d := range l.state.Daemons {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// current is find after adopt.
func (l *Lab) current(name string) (*Daemon, error) {
	if err := l.adopt(); err != nil {
		return nil, err
	}
	return l.find(name)
}

// impairerName is a name that no configured daemon can have.
func impairerName(link int) string { return "impair:" + strconv.Itoa(link) }

// impairer is the process of a link, or nil.
func (l *Lab) impairer(link int) *Daemon { return l.daemonNamed(impairerName(link)) }

// startImpairer makes sure that the process of a link runs.
func (l *Lab) startImpairer(ctx context.Context, link int) (*Daemon, error) {
	if err := l.adopt(); err != nil {
		return nil, err
	}
	d := l.impairer(link)
	if d == nil {
		program, err := l.program()
		if err != nil {
			return nil, err
		}
		a, b := middleInterfaces(link)
		name := impairerName(link)
		d = &Daemon{Name: name, Role: ImpairRole, Node: string(middleNode), Log: l.layout.log(name), Observe: l.layout.observe(name)}
		d.Command = []string{program, "lab", "impair-process", "--a", a, "--b", b,
			"--control", string(l.layout.socket(name)), "--observe", string(d.Observe)}
		l.state.Daemons = append(l.state.Daemons, d)
	}
	if d.running() {
		return d, nil
	}
	l.reap(d)
	err := errors.Join(l.spawn(d), l.state.save(l.layout))
	if err == nil {
		err = l.awaitReady(ctx, []*Daemon{d}, nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", l.describe(link), err), l.endImpairer(d, link))
	}
	return d, nil
}

// program is the `margay` that the lab was made with.
func (l *Lab) program() (string, error) {
	dir := l.programs
	if dir == "" && len(l.state.Daemons) > 0 {
		dir = filepath.Dir(l.state.Daemons[0].Command[0])
	}
	if dir == "" {
		return "", errors.New("a lab without processes cannot be impaired")
	}
	return filepath.Join(dir, "margay"), nil
}

// endIfClear ends the process of a link that impairs nothing any more, or has ended by itself.
func (l *Lab) endIfClear(ctx context.Context, d *Daemon, link int) error {
	if d.running() {
		s, err := impair.Ask(ctx, l.layout.socket(d.Name))
		if err != nil {
			return fmt.Errorf("%s: %w", l.describe(link), err)
		}
		if !s.Clear() {
			return nil
		}
	}
	return l.endImpairer(d, link)
}

// endImpairer ends the process of a link and makes sure that the link is whole.
func (l *Lab) endImpairer(d *Daemon, link int) error {
	err := l.stop(d)
	if err == nil {
		a, b := middleInterfaces(link)
		err = l.nodes[middleNode].Do(func() error { return impair.Restore(a, b) })
		l.state.Daemons = slices.DeleteFunc(l.state.Daemons, func(other *Daemon) bool { return other == d })
	}
	if err := errors.Join(err, l.state.save(l.layout)); err != nil {
		return fmt.Errorf("%s: %w", l.describe(link), err)
	}
	return nil
}
