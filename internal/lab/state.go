package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// state is what lab.json holds: enough to take the lab down again, whatever happened since.
type state struct {
	Name     string    `json:"name"`
	Topology string    `json:"topology"` // name in the topology file
	Created  time.Time `json:"created"`
	Claims   claims    `json:"claims"`
	Daemons  []*Daemon `json:"daemons"`
	// Impairable are the links of the topology, by their place there, that have a middle.
	Impairable []int `json:"impairable,omitempty"`
}

// claims are the things outside its directory that a lab alone may make and remove.
type claims struct {
	Namespaces []string `json:"namespaces"`
	Pins       []string `json:"pins"`
}

// claim lists what a topology needs.
func (l layout) claim(t *Topology) claims {
	var c claims
	for i := range t.Nodes {
		n := &t.Nodes[i]
		c.Namespaces = append(c.Namespaces, l.namespace(n.Name))
		if n.Role == Forwarder {
			c.Pins = append(c.Pins, l.pins(n.Name))
		}
	}
	if len(t.impairable()) > 0 {
		c.Namespaces = append(c.Namespaces, l.namespace(middleNode))
	}
	return c
}

// free gives an error if anything of it exists already: another lab's, or left over.
func (c claims) free() error {
	for _, name := range c.Namespaces {
		if _, err := os.Lstat(filepath.Join(namespace.Dir, name)); err == nil {
			return fmt.Errorf("network namespace %s exists already: another lab has it, or one was not taken down; choose another name, or see `margay lab list` and `ip netns delete %s`", name, name)
		}
	}
	for _, dir := range c.Pins {
		if _, err := os.Lstat(dir); err == nil {
			return fmt.Errorf("%s exists already: another lab has it, or a data plane was not unloaded; choose another name, or remove it", dir)
		}
	}
	return nil
}

// present gives what of it there is, by path.
func (c claims) present() (all paths) {
	for _, name := range c.Namespaces {
		all = append(all, filepath.Join(namespace.Dir, name))
	}
	all = append(all, c.Pins...)
	return slices.DeleteFunc(all, func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, os.ErrNotExist)
	})
}

// paths are places in the file system.
type paths []string

// missingOf gives those of before that are not in p.
func (p paths) missingOf(before paths) paths {
	return slices.DeleteFunc(before, func(path string) bool { return slices.Contains(p, path) })
}

// remove removes it, whatever of it there is.
func (c claims) remove() error {
	var failed []error
	for _, name := range c.Namespaces {
		failed = append(failed, namespace.Remove(name))
	}
	for _, dir := range c.Pins {
		failed = append(failed, os.RemoveAll(dir)) // taking the pins of links and maps away detaches and frees them
	}
	return errors.Join(failed...)
}

// unclaimed lists what has a name of the lab and is in no lab's state file: what is left of a lab that lost its own.
func (l layout) unclaimed() (claims, error) {
	spaces, err := namespace.List(l.prefix())
	if err != nil {
		return claims{}, err
	}
	pins, err := filepath.Glob(filepath.Join(pinRoot, l.lab+"-*"))
	if err != nil {
		return claims{}, err
	}
	left := claims{spaces, pins}
	states, err := filepath.Glob(filepath.Join(root, "*", stateName))
	if err != nil {
		return claims{}, err
	}
	for _, path := range states {
		other, err := loadState(layout{filepath.Base(filepath.Dir(path))})
		if err != nil {
			return claims{}, err
		}
		left.Namespaces = slices.DeleteFunc(left.Namespaces, func(n string) bool { return slices.Contains(other.Claims.Namespaces, n) })
		left.Pins = slices.DeleteFunc(left.Pins, func(p string) bool { return slices.Contains(other.Claims.Pins, p) })
	}
	return left, nil
}

// Daemon is a process of a lab: a Margay role, or the service at an instance. The zero PID: not started.
type Daemon struct {
	Name    string           `json:"name"` // unique in the lab; equals the certificate's name
	Role    string           `json:"role"` // sci, csma, cnma, cps, forwarder or service
	Node    string           `json:"node"`
	Command []string         `json:"command"` // program and arguments
	Config  string           `json:"config,omitempty"`
	Log     string           `json:"log"`
	Observe endpoint.Address `json:"observe"`
	PID     int              `json:"pid,omitempty"`
	Started uint64           `json:"started,omitempty"` // of the process, in clock ticks since boot, so that a recycled PID is noticed
}

// save replaces lab.json at once, so that it is never half written.
func (s *state) save(l layout) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("lab %s: %w", l.lab, err)
	}
	next := l.stateFile() + ".new"
	if err := os.WriteFile(next, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("lab %s: %w", l.lab, err)
	}
	if err := os.Rename(next, l.stateFile()); err != nil {
		return fmt.Errorf("lab %s: %w", l.lab, err)
	}
	return nil
}

// saveIfThere saves unless the lab's directory is gone already.
func (s *state) saveIfThere(l layout) error {
	if _, err := os.Stat(l.dir()); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return s.save(l)
}

func loadState(l layout) (*state, error) {
	data, err := os.ReadFile(l.stateFile())
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("lab %s: %s: %w", l.lab, l.stateFile(), err)
	}
	return &s, nil
}

var errBusy = errors.New("another command is bringing it up or down, or impairing it, just now")

// lock keeps two commands from building or removing one lab at the same time. Call the function that it gives.
func lock(l layout) (unlock func(), err error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("lab %s: %w", l.lab, err)
	}
	path := filepath.Join(root, "."+l.lab+".lock")
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lab %s: %w", l.lab, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("lab %s: %w; wait for it", l.lab, errBusy)
			}
			return nil, fmt.Errorf("lab %s: lock: %w", l.lab, err)
		}
		// The one before removes the file when it unlocks, so that no litter stays: ours may be the removed one.
		if held, err := f.Stat(); err == nil {
			if named, err := os.Stat(path); err == nil && os.SameFile(held, named) {
				return func() { os.Remove(path); f.Close() }, nil
			}
		}
		f.Close()
	}
}
