package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/lab/namespace"
)

// Extent is how much of a lab Up starts.
type Extent uint8

// Everything is the whole domain. Services alone is the network with the services at the instances and no Margay.
// Network alone starts no process.
const (
	Everything Extent = iota
	ServicesAlone
	NetworkAlone
)

// Options tell Up what to bring up.
type Options struct {
	Topology *Topology
	Name     string        // of the lab; empty: the topology's
	Extent   Extent        //
	Programs string        // directory of margay and its daemons; empty: where this program is
	Wait     time.Duration // for everything to be ready; zero: one minute
	Progress io.Writer     // one line for each step; nil: none
}

// Lab is a lab that is up. Its methods may be used from several goroutines, except that starting, stopping and taking
// down are for one at a time.
type Lab struct {
	layout   layout
	topology *Topology
	programs string
	state    *state
	nodes    map[config.Name]*Node

	mutex    sync.Mutex
	children map[int]*exec.Cmd // guarded by mutex: processes that this program started and has to collect
}

// Node is a node of a lab that is up: a network namespace.
type Node struct {
	lab       *Lab
	Name      string
	Role      Role
	namespace *namespace.Namespace
}

// Do runs f on a thread inside the node's network namespace and waits for it; see namespace.Namespace.Do.
func (n *Node) Do(f func() error) error { return n.namespace.Do(f) }

// Namespace is the node's network namespace, valid until the lab is closed or down.
func (n *Node) Namespace() *namespace.Namespace { return n.namespace }

// Up brings a lab up, all of it or nothing: on an error everything that was made is removed again. It returns when every
// process is ready and, with Everything, the domain serves. Close or Down the lab; it outlives this program otherwise.
func Up(ctx context.Context, o Options) (*Lab, error) {
	if o.Topology == nil {
		return nil, errors.New("lab: no topology given")
	}
	name := o.Name
	if name == "" {
		name = string(o.Topology.Name)
	}
	if err := checkLabName(name); err != nil {
		return nil, err
	}
	programs, err := programsDir(o)
	if err != nil {
		return nil, err
	}
	l := newLab(layout{name}, o.Topology)
	l.programs = programs
	l.state = &state{
		Name: name, Topology: string(o.Topology.Name), Created: time.Now(), Claims: l.layout.claim(o.Topology),
		Impairable: o.Topology.impairable(),
	}
	unlock, err := lock(l.layout)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := os.Mkdir(l.layout.dir(), 0o700); errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("lab %s is up already; take it down with `margay lab down %s`, or give this one another name", name, name)
	} else if err != nil {
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	if err := l.state.Claims.free(); err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", name, err), os.Remove(l.layout.dir()))
	}
	if err := l.up(ctx, o); err != nil {
		// The context may have ended already; what was begun is removed all the same.
		return nil, Interrupted(ctx, fmt.Errorf("lab %s: %w", name, err), l.down(nil))
	}
	return l, nil
}

// ErrInterrupted is the error of what somebody ended early, and that left nothing.
var ErrInterrupted = errors.New("interrupted; everything was removed")

// Interrupted gives the error of what failed, and then was removed with or without an error itself: ErrInterrupted where
// it failed because ctx was cancelled, else both.
func Interrupted(ctx context.Context, failed, removing error) error {
	if failed != nil && removing == nil && errors.Is(ctx.Err(), context.Canceled) {
		return ErrInterrupted
	}
	return errors.Join(failed, removing)
}

func newLab(at layout, t *Topology) *Lab {
	return &Lab{layout: at, topology: t, nodes: map[config.Name]*Node{}, children: map[int]*exec.Cmd{}}
}

// programsDir finds the daemons and makes sure that they are there, before anything is built.
func programsDir(o Options) (string, error) {
	if o.Extent == NetworkAlone {
		return "", nil
	}
	dir := o.Programs
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("lab: where this program is: %w", err)
		}
		dir = filepath.Dir(self)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("lab: %w", err)
	}
	needed := []string{"margay"}
	if o.Extent == Everything {
		needed = append(needed, "margay-sci", "margay-csma", "margay-cnma", "margay-cps", "margay-forwarder")
	}
	for _, p := range needed {
		if _, err := exec.LookPath(filepath.Join(dir, p)); err != nil {
			return "", fmt.Errorf("lab: the program %s is not in %s; run `make build`", p, dir)
		}
	}
	return dir, nil
}

func (l *Lab) up(ctx context.Context, o Options) error {
	progress := func(format string, args ...any) {
		if o.Progress != nil {
			fmt.Fprintf(o.Progress, format+"\n", args...)
		}
	}
	if err := os.WriteFile(l.layout.topology(), o.Topology.source, 0o600); err != nil {
		return err
	}
	if err := l.state.save(l.layout); err != nil {
		return err
	}
	progress("network: %d nodes, %d links", len(o.Topology.Nodes), len(o.Topology.Links))
	if err := l.buildNetwork(); err != nil {
		return err
	}
	if err := l.writeConfigs(); err != nil {
		return err
	}
	for _, d := range l.plan() {
		if o.Extent == Everything || o.Extent == ServicesAlone && d.Role == ServiceRole {
			l.state.Daemons = append(l.state.Daemons, d)
		}
	}
	wait := o.Wait
	if wait == 0 {
		wait = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("waited %s", wait))
	defer cancel()
	if err := l.startAll(ctx); err != nil {
		return err
	}
	if err := l.awaitReady(ctx, l.state.Daemons, func(d *Daemon) {
		progress("%-9s %-12s ready, pid %d", d.Role, d.Name, d.PID)
	}); err != nil {
		return err
	}
	if o.Extent == Everything {
		if err := l.awaitServing(ctx); err != nil {
			return err
		}
	}
	return l.awaitReady(ctx, l.state.Daemons, nil) // one may have ended while the others were waited for
}

func (l *Lab) startAll(ctx context.Context) error {
	for _, d := range l.state.Daemons {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := errors.Join(l.spawn(d), l.state.save(l.layout)); err != nil {
			return err
		}
	}
	return nil
}

// Open gives the lab of that name, which is up, to a program that did not bring it up.
func Open(name string) (*Lab, error) {
	at := layout{name}
	s, err := stateOf(name)
	if err != nil {
		return nil, err
	}
	t, err := LoadTopology(at.topology())
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	l := newLab(at, t)
	l.state = s
	nodes := t.Nodes
	if len(s.Impairable) > 0 {
		nodes = append(slices.Clone(nodes), NodeSpec{Name: middleNode})
	}
	for i := range nodes {
		n := &nodes[i]
		ns, err := namespace.Open(at.namespace(n.Name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lab %s is damaged; take it down with `margay lab down %s`: %w", name, name, err), l.Close())
		}
		l.nodes[n.Name] = &Node{lab: l, Name: string(n.Name), Role: n.Role, namespace: ns}
	}
	return l, nil
}

// Close lets go of the lab, which stays up.
func (l *Lab) Close() error {
	var failed []error
	for _, n := range l.nodes {
		failed = append(failed, n.namespace.Close())
	}
	clear(l.nodes)
	return errors.Join(failed...)
}

// Down takes the lab of that name down: it stops the processes and whatever else runs in the namespaces, unloads the data
// planes and removes namespaces and files, also of a lab that came up only half or was damaged. It says what it stopped
// and removed; tell may be nil. A lab that does not exist is an error.
func Down(name string, tell io.Writer) error {
	if err := checkLabName(name); err != nil {
		return err
	}
	l := newLab(layout{name}, nil)
	unlock, err := lock(l.layout)
	if err != nil {
		return err
	}
	defer unlock()
	l.state, err = loadState(l.layout)
	if errors.Is(err, os.ErrNotExist) {
		l.state, err = l.layout.remains()
	}
	if err != nil {
		return err
	}
	return l.down(tell)
}

// remains makes a state of what a lab without state file has left; an error if that is nothing.
func (l layout) remains() (*state, error) {
	left, err := l.unclaimed()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(l.dir()); err != nil && len(left.Namespaces) == 0 && len(left.Pins) == 0 {
		return nil, notUp(l.lab)
	}
	return &state{Name: l.lab, Claims: left}, nil
}

// Down takes this lab down; see the function Down.
func (l *Lab) Down() error {
	unlock, err := lock(l.layout)
	if err != nil {
		return err
	}
	defer unlock()
	if s, err := loadState(l.layout); err == nil {
		l.state = s // another program may have restarted something
	}
	return l.down(nil)
}

// down removes everything, whatever state it is in, and goes on after errors. Files are kept where a process could not
// be stopped, as they alone tell of it.
func (l *Lab) down(tell io.Writer) error {
	if tell == nil {
		tell = io.Discard
	}
	failed := l.stopAll(tell)
	stopped := errors.Join(failed...)
	if err := l.state.saveIfThere(l.layout); err != nil {
		failed = append(failed, err)
	}
	ended, err := endStrays(l.state.Claims.Namespaces)
	for _, s := range ended {
		fmt.Fprintf(tell, "ended %s\n", s)
	}
	there := l.state.Claims.present()
	failed = append(failed, err, l.Close(), l.state.Claims.remove())
	gone := l.state.Claims.present().missingOf(there)
	if stopped == nil {
		failed = append(failed, os.RemoveAll(l.layout.dir()))
		gone = append(gone, l.layout.dir())
	}
	for _, what := range gone {
		fmt.Fprintf(tell, "removed %s\n", what)
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("lab %s is not wholly down: %w", l.layout.lab, err)
	}
	return nil
}

// stopAll stops the processes of the lab, all at the same time.
func (l *Lab) stopAll(tell io.Writer) []error {
	var stopping sync.WaitGroup
	failed := make([]error, len(l.state.Daemons))
	ran := make([]int, len(l.state.Daemons))
	for i, d := range l.state.Daemons {
		if d.running() {
			ran[i] = d.PID
		}
		stopping.Go(func() { failed[i] = l.stop(d) })
	}
	stopping.Wait()
	for i, d := range l.state.Daemons {
		if ran[i] > 0 && failed[i] == nil {
			fmt.Fprintf(tell, "stopped %s (pid %d)\n", d.Name, ran[i])
		}
	}
	return failed
}

// Summary is one line of List.
type Summary struct {
	Name     string
	Topology string
	Created  time.Time
	Running  int // processes
	Daemons  int // processes that there should be
}

// List gives the labs that are up or were left half up, by name.
func List() ([]Summary, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("labs: %w", err)
	}
	var all []Summary
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		s, err := loadState(layout{e.Name()})
		if errors.Is(err, os.ErrNotExist) {
			all = append(all, Summary{Name: e.Name()})
			continue
		}
		if err != nil {
			return nil, err
		}
		sum := Summary{Name: s.Name, Topology: s.Topology, Created: s.Created, Daemons: len(s.Daemons)}
		for _, d := range s.Daemons {
			if d.running() {
				sum.Running++
			}
		}
		all = append(all, sum)
	}
	return all, nil
}

// Name is the name of the lab.
func (l *Lab) Name() string { return l.layout.lab }

// Topology is what the lab was built from.
func (l *Lab) Topology() *Topology { return l.topology }

// Node gives the node of that name.
func (l *Lab) Node(name string) (*Node, error) {
	n := l.nodes[config.Name(name)]
	if n == nil {
		var known []string
		for name := range l.nodes {
			known = append(known, string(name))
		}
		slices.Sort(known)
		return nil, fmt.Errorf("lab %s has no node %q; it has %v", l.layout.lab, name, known)
	}
	return n, nil
}

// OperatorConfig is the configuration of `margay` for the first operator of the topology.
func (l *Lab) OperatorConfig() string { return l.layout.operator() }

// ClientConfig is the configuration of `margay` for a client node.
func (l *Lab) ClientConfig(node string) string { return l.layout.config(node) }

// CatalogueFile is the catalogue that the C-PS reads.
func (l *Lab) CatalogueFile() string { return l.layout.catalogue() }

// MeasuredFile is the topology that the C-NMA reads.
func (l *Lab) MeasuredFile() string { return l.layout.measured() }

// Pins is the directory of a forwarder's pinned programs and maps.
func (l *Lab) Pins(node string) string { return l.layout.pins(config.Name(node)) }

// Daemons gives a copy of every process of the lab, in the order in which they were first started.
func (l *Lab) Daemons() []Daemon {
	var all []Daemon
	for _, d := range l.state.Daemons {
		all = append(all, *d)
	}
	return all
}

// Daemon gives a copy of one.
func (l *Lab) Daemon(name string) (Daemon, error) {
	d, err := l.find(name)
	if err != nil {
		return Daemon{}, err
	}
	return *d, nil
}

func (l *Lab) find(name string) (*Daemon, error) {
	for _, d := range l.state.Daemons {
		if d.Name == name {
			return d, nil
		}
	}
	var known []string
	for _, d := range l.state.Daemons {
		known = append(known, d.Name)
	}
	return nil, fmt.Errorf("lab %s has no daemon %q; it has %v", l.layout.lab, name, known)
}

// Start starts a daemon that does not run, and waits until it is ready or ctx ends.
func (l *Lab) Start(ctx context.Context, name string) error {
	d, err := l.current(name)
	if err != nil {
		return err
	}
	if d.running() {
		return fmt.Errorf("%s runs already, pid %d", name, d.PID)
	}
	l.reap(d)
	if err := errors.Join(l.spawn(d), l.state.save(l.layout)); err != nil {
		return err
	}
	return l.awaitReady(ctx, []*Daemon{d}, nil)
}

// Stop ends a daemon, by SIGTERM and, if need be, SIGKILL, and waits until it has ended. One that does not run is no
// error.
func (l *Lab) Stop(name string) error {
	d, err := l.current(name)
	if err != nil {
		return err
	}
	return errors.Join(l.stop(d), l.state.save(l.layout))
}

// Restart is Stop and Start.
func (l *Lab) Restart(ctx context.Context, name string) error {
	if err := l.Stop(name); err != nil {
		return err
	}
	return l.Start(ctx, name)
}

// Kill sends a daemon a signal. After SIGKILL it waits until the process has ended; it does not wait after any other.
func (l *Lab) Kill(name string, signal syscall.Signal) error {
	d, err := l.current(name)
	if err != nil {
		return err
	}
	if err := d.signal(signal); err != nil {
		return fmt.Errorf("%s (pid %d): %w", name, d.PID, err)
	}
	if signal != syscall.SIGKILL {
		return nil
	}
	if !l.ended(d, killGrace) {
		return fmt.Errorf("%s (pid %d) does not end, not even by SIGKILL", name, d.PID)
	}
	return l.state.save(l.layout)
}

// Ready waits until a daemon's /readyz answers 200, or ctx ends.
func (l *Lab) Ready(ctx context.Context, name string) error {
	d, err := l.find(name)
	if err != nil {
		return err
	}
	return l.awaitReady(ctx, []*Daemon{d}, nil)
}
