package lab

import (
	"path/filepath"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// Where labs leave things on the machine.
const (
	root      = "/run/margay/lab"
	pinRoot   = "/sys/fs/bpf/margay"
	stateName = "lab.json"
)

// layout names everything that a lab leaves on the machine.
type layout struct{ lab string }

func (l layout) dir() string           { return filepath.Join(root, l.lab) }
func (l layout) stateFile() string     { return filepath.Join(l.dir(), stateName) }
func (l layout) topology() string      { return filepath.Join(l.dir(), "topology.yaml") }
func (l layout) pki() string           { return filepath.Join(l.dir(), "pki") }
func (l layout) operator() string      { return l.config("operator") }
func (l layout) catalogue() string     { return l.config("catalogue") }
func (l layout) measured() string      { return l.config("topology") }
func (l layout) data(n string) string  { return filepath.Join(l.dir(), "state", n) }
func (l layout) log(n string) string   { return filepath.Join(l.dir(), "log", n+".log") }
func (l layout) audit(n string) string { return filepath.Join(l.dir(), "log", n+".audit") }

// config is the configuration file of a daemon, or of a client's `margay`.
func (l layout) config(n string) string { return filepath.Join(l.dir(), "etc", n+".yaml") }

// socket is where a daemon listens for `margay` and clients, besides its address in the management network.
func (l layout) socket(n string) endpoint.Address {
	return endpoint.Address("unix:" + filepath.Join(l.dir(), "run", n+".sock"))
}

func (l layout) observe(n string) endpoint.Address {
	return endpoint.Address("unix:" + filepath.Join(l.dir(), "run", n+".observe"))
}

// prefix is how the names of the lab's namespaces begin; those of another lab may begin so, too.
func (l layout) prefix() string { return "mgy-" + l.lab + "-" }

func (l layout) namespace(node config.Name) string { return l.prefix() + string(node) }

// pins is the directory of a forwarder's pinned programs and maps.
func (l layout) pins(node config.Name) string { return filepath.Join(pinRoot, l.lab+"-"+string(node)) }
