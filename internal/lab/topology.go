package lab

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
)

// Role is what a node of a topology is.
type Role string

// The roles. A management node is the switch of the management network; there is one.
const (
	Client     Role = "client"
	Forwarder  Role = "forwarder"
	Router     Role = "router"
	Instance   Role = "instance"
	CPS        Role = "cps"
	CSMA       Role = "csma"
	CNMA       Role = "cnma"
	Management Role = "management"
)

var roles = []Role{Client, Forwarder, Router, Instance, CPS, CSMA, CNMA, Management}

// UnmarshalText checks that the role is one of those above.
func (r *Role) UnmarshalText(text []byte) error {
	if !slices.Contains(roles, Role(text)) {
		return fmt.Errorf("role %q: need one of %v", text, roles)
	}
	*r = Role(text)
	return nil
}

// core tells whether nodes of the role carry traffic between others.
func (r Role) core() bool { return r == Forwarder || r == Router }

// Topology is a whole domain, as a file describes it.
type Topology struct {
	Name        config.Name   `yaml:"name"`                // default name of the lab
	Domain      string        `yaml:"domain"`              // SPIFFE trust domain of its certificates
	MTU         MTU           `yaml:"mtu,omitempty"`       // of the data network
	Management  netip.Prefix  `yaml:"management"`          // the management network
	Operators   []config.Name `yaml:"operators,omitempty"` // who may use `margay`; default admin
	Nodes       []NodeSpec    `yaml:"nodes"`
	Links       []Link        `yaml:"links"`
	Services    []ServiceSpec `yaml:"services,omitempty"`
	Deployments []Deployment  `yaml:"deployments,omitempty"`

	file   string // for messages
	source []byte // as read, kept with the lab
}

// MTU holds the MTUs of data links, in octets of IP.
type MTU struct {
	Core   int `yaml:"core,omitempty"`   // between forwarders and routers; needs room for the encapsulation
	Access int `yaml:"access,omitempty"` // of clients and instances
}

// Defaults gives the core twice the access MTU: room for any encapsulation, and less than the 3,506 octets beyond which
// veth takes no native XDP program without multi-buffer support.
func (m *MTU) Defaults() { *m = MTU{Core: 3000, Access: 1500} }

// NodeSpec is one node: a network namespace.
type NodeSpec struct {
	Name        config.Name  `yaml:"name"`                  // in namespaces, certificates and reports
	Role        Role         `yaml:"role"`                  //
	Management  netip.Addr   `yaml:"management,omitempty"`  // address in the management network
	Site        config.Name  `yaml:"site,omitempty"`        // of an instance or a C-SMA
	Prefix      netip.Prefix `yaml:"prefix,omitempty"`      // SRv6 locator of a forwarder or router: routed to it by all others
	Source      netip.Addr   `yaml:"source,omitempty"`      // outer source address of a forwarder
	SID         netip.Addr   `yaml:"sid,omitempty"`         // End SID of a router
	ReturnSID   netip.Addr   `yaml:"return_sid,omitempty"`  // where return paths end at a forwarder with clients
	Attachments []Attachment `yaml:"attachments,omitempty"` // of clients, at a forwarder
	Bindings    uint32       `yaml:"bindings,omitempty"`    // table capacity of a forwarder; default 65,536
}

// Defaults is called by the loader.
func (n *NodeSpec) Defaults() { n.Bindings = 65536 }

// Attachment is a place where clients come in (CP section 1.2).
type Attachment struct {
	Name      config.Name    `yaml:"name"`
	Interface string         `yaml:"interface"`
	Tenant    config.Name    `yaml:"tenant"`
	Prefixes  []netip.Prefix `yaml:"prefixes"` // sources that belong to it
}

// Link is a wire between two nodes. Between forwarders and routers it has the measurements that the C-NMA reports.
type Link struct {
	A             End    `yaml:"a"`
	B             End    `yaml:"b"`
	DelayUS       uint32 `yaml:"delay_us,omitempty"`      // one-way, from a to b, µs; needed in the core
	BackDelayUS   uint32 `yaml:"back_delay_us,omitempty"` // from b to a, µs; default delay_us
	OneWay        bool   `yaml:"one_way,omitempty"`       // only from a to b; packets the other way are not routed over it
	JitterUS      uint32 `yaml:"jitter_us,omitempty"`     // µs, both ways
	LossPPM       uint32 `yaml:"loss_ppm,omitempty"`      // parts per million, both ways
	BandwidthKbps uint32 `yaml:"bandwidth_kbps,omitempty"`
	TEMetric      uint32 `yaml:"te_metric,omitempty"`
	Impairable    bool   `yaml:"impairable,omitempty"` // whether Impair works on it; it then has a middle (see package impair)
}

// End is one end of a Link.
type End struct {
	Node      config.Name        `yaml:"node"`
	Interface string             `yaml:"interface"`
	Addresses []InterfaceAddress `yaml:"addresses"` // with the length of the subnet
}

// InterfaceAddress is an address of an interface and the length of its subnet, such as 192.0.2.10/24.
type InterfaceAddress struct{ netip.Prefix }

// ServiceSpec is an entry of the catalogue.
type ServiceSpec struct {
	CSID        cats.CSID     `yaml:"cs_id"`
	Number      uint32        `yaml:"number"` // stable, above 0
	Name        string        `yaml:"name"`
	Version     string        `yaml:"version,omitempty"`
	Addresses   []Address     `yaml:"addresses"`
	Policy      string        `yaml:"policy,omitempty"`
	BandPercent uint8         `yaml:"band_percent,omitempty"`
	Tenants     []config.Name `yaml:"tenants,omitempty"`
	Idle        time.Duration `yaml:"idle,omitempty"` // default: that of the protocol
}

// Defaults is called by the loader.
func (s *ServiceSpec) Defaults() {
	s.Version, s.Policy, s.BandPercent, s.Tenants = "1", "latency", 5, []config.Name{"default"}
}

// Address is where clients reach a service.
type Address struct {
	Prefix   netip.Prefix  `yaml:"prefix"`
	Protocol cats.Protocol `yaml:"protocol"`
	Port     uint16        `yaml:"port"`
}

// Deployment is a service at an instance node. The lab runs the service there, and one SCI agent.
type Deployment struct {
	CSID            cats.CSID   `yaml:"cs_id"`
	Instance        config.Name `yaml:"instance"` // node
	CSCIID          cats.CSCIID `yaml:"csci_id"`
	Agent           config.Name `yaml:"agent"` // name of the SCI agent, one for each CSCI-ID
	Locator         Locator     `yaml:"locator"`
	Egress          config.Name `yaml:"egress"` // forwarder
	SID             netip.Addr  `yaml:"sid"`    // of the egress attachment
	ComputingTimeMS uint32      `yaml:"computing_time_ms"`
	Slots           uint32      `yaml:"slots"` // concurrent requests
}

// Locator is where the service listens at the instance.
type Locator struct {
	Address  netip.Addr    `yaml:"address"`
	Protocol cats.Protocol `yaml:"protocol"`
	Port     uint16        `yaml:"port"`
}

// example is the topology of CP section 14.
//
//go:embed topologies/example.yaml
var example []byte

// ExampleName is the name of the topology that comes with the program.
const ExampleName = "example"

// LoadTopology reads and checks a topology file; the name "example" gives the one that comes with the program. The
// error lists everything that is wrong, each with its line.
func LoadTopology(path string) (*Topology, error) {
	if path == ExampleName {
		return parseTopology("example.yaml", example)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(path, "/.") {
		return nil, fmt.Errorf("topology %q: neither the built-in %q nor a file; give a file such as ./%s.yaml", path, ExampleName, path)
	}
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return parseTopology(path, data)
}

func parseTopology(file string, data []byte) (*Topology, error) {
	t, err := config.Parse[Topology](file, data)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	t.file, t.source = file, data
	if len(t.Operators) == 0 {
		t.Operators = []config.Name{"admin"}
	}
	return &t, nil
}

// node gives the node of that name, or nil.
func (t *Topology) node(name config.Name) *NodeSpec {
	for i := range t.Nodes {
		if t.Nodes[i].Name == name {
			return &t.Nodes[i]
		}
	}
	return nil
}

// role lists the nodes of a role in the order of the file.
func (t *Topology) role(r Role) []*NodeSpec {
	var all []*NodeSpec
	for i := range t.Nodes {
		if t.Nodes[i].Role == r {
			all = append(all, &t.Nodes[i])
		}
	}
	return all
}

// ends lists the ends of links at a node, each with the opposite end.
func (t *Topology) ends(name config.Name) (all []struct{ here, there End }) {
	for _, l := range t.Links {
		if l.A.Node == name {
			all = append(all, struct{ here, there End }{l.A, l.B})
		}
		if l.B.Node == name {
			all = append(all, struct{ here, there End }{l.B, l.A})
		}
	}
	return all
}
