package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-net/margay/internal/lab"
)

func exampleText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("topologies/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func load(t *testing.T, text string) (*lab.Topology, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return lab.LoadTopology(path)
}

func TestExampleIsThatOfSection14(t *testing.T) {
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(topology.Nodes, topology.Links, topology.Services, topology.Deployments)
	for _, want := range []string{"192.0.2.10/24", "{192.0.2.100/32 tcp 443}", "198.51.100.11 tcp 443", "198.51.100.21 tcp 443", "IF-1", "EF-1", "EF-2", "S1"} {
		if !strings.Contains(text, want) {
			t.Errorf("the example lacks %s", want)
		}
	}
}

func TestTopologyErrorsNameThePlace(t *testing.T) {
	good := exampleText(t)
	for _, c := range []struct {
		name     string
		old, new string // what is changed in the example
		line     string // a piece of the line that the error must point to; empty: the whole file
		want     string
	}{
		{"unknown key", "{name: client, role: client}", "{name: client, role: client, colour: red}", "colour: red", `unknown key "colour"`},
		{"missing key", "domain: example.margay\n", "", "", `key "domain" is missing`},
		{"unknown role", "{name: client, role: client}", "{name: client, role: customer}", "customer", "need one of"},
		{"node twice", "{name: mgmt, role: management}", "{name: A, role: management}", "name: A, role: instance", "node A is already nodes[0]"},
		{"node without a link", "{name: mgmt, role: management}", "{name: mgmt, role: management}\n  - {name: lonely, role: client}", "lonely", "a link is missing"},
		{"unknown node in a link", "a: {node: client,", "a: {node: clint,", "clint", "node clint is not one of nodes"},
		{"duplicate address", "[198.51.100.21/28", "[198.51.100.11/28", "node: B", "address 198.51.100.11 is already that of node A"},
		{"duplicate SID", `sid: "2001:db8:0:e1::12", computing_time_ms: 12, slots: 100`, `sid: "2001:db8:0:e1::11", computing_time_ms: 12, slots: 101`, "slots: 101", "is already that of the attachment of 198.51.100.11:443"},
		{"SID of another forwarder", `sid: "2001:db8:0:e2::11"`, `sid: "2001:db8:0:e1::19"`, "e1::19", "not in the prefix"},
		{"interface twice", "interface: core2, addresses: [\"2001:db8:2:1::1/64\"]", "interface: core1, addresses: [\"2001:db8:2:1::1/64\"]", "2001:db8:2:1::1/64", "already has an interface core1"},
		{"interface name too long", "interface: client0, addresses", "interface: sixteen-octets-x, addresses", "sixteen", "1 to 15"},
		{"other subnet", `b: {node: R1, interface: if1, addresses: ["2001:db8:1:1::2/64"]}`, `b: {node: R1, interface: if1, addresses: ["2001:db8:1:9::2/64"]}`, "node: IF-1, interface: core1", "has no address in"},
		{"core link without delay", "    delay_us: 4000\n", "", "node: R1, interface: ef2", `key "delay_us" is missing`},
		{"delay at a client", `b: {node: IF-1, interface: client0, addresses: [192.0.2.1/24, "2001:db8:c::1/64"]}`, `b: {node: IF-1, interface: client0, addresses: [192.0.2.1/24, "2001:db8:c::1/64"]}` + "\n    delay_us: 5", "node: client, interface", "only links of the core"},
		{"client to router", "b: {node: IF-1, interface: client0, addresses: [192.0.2.1/24", "b: {node: R1, interface: client0, addresses: [192.0.2.1/24", "a: {node: client", "a link joins"},
		{"service address owned", "{prefix: 192.0.2.100/32, protocol: tcp", "{prefix: 192.0.2.10/32, protocol: tcp", "192.0.2.10/32", "nobody owns a service address"},
		{"unknown service", "{cs_id: S1, instance: A", "{cs_id: S9, instance: A", "S9", "not one of services"},
		{"locator elsewhere", "locator: {address: 198.51.100.11, protocol: tcp", "locator: {address: 198.51.100.12, protocol: tcp", "198.51.100.12", "not an address of node A"},
		{"site without C-SMA", "{name: csma-2, role: csma, site: edge-2", "{name: csma-2, role: csma, site: edge-3", "instance: B", "has no C-SMA"},
		{"two agents", "agent: sci-b-s1", "agent: sci-a-s1", "198.51.100.21:443", "an agent has one CSCI-ID"},
		{"management outside", "management: 10.255.0.42", "management: 10.254.0.42", "10.254.0.42", "not a host of the management network"},
		{"no C-PS", "  - {name: cps-1, role: cps, management: 10.255.0.10}\n", "", "nodes:", "need one node with role cps, have 0"},
		{"attachment nowhere", "interface: client0, tenant", "interface: client7, tenant", "client7", "no link joins interface client7"},
		{"small core MTU", "mtu: {core: 3000", "mtu: {core: 1500", "core: 1500", "need 1548"},
		{"bad lab name", "name: example\n", "name: my.example\n", "name: my.example", "need 1 to 32 letters, digits, underscores or dashes"},
		{"dot in a forwarder's name", "- {name: EF-1, role", "- {name: EF.1, role", "name: EF.1", "refuses"},
		{"prefixes overlap", `prefix: "2001:db8:0:e2::/64"`, `prefix: "2001:db8:0:e0::/60"`, "e0::/60", "overlaps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(good, c.old, c.new, 1)
			if text == good {
				t.Fatal("the case changes nothing: the example has changed")
			}
			topology, err := load(t, text)
			if err == nil {
				t.Fatalf("accepted: %+v", topology)
			}
			at := 1
			for i, line := range strings.Split(text, "\n") {
				if c.line != "" && strings.Contains(line, c.line) {
					at = i + 1
					break
				}
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("lab.yaml:%d:", at)) && c.line != "" {
				t.Errorf("the error does not point to line %d", at)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error does not say %q", c.want)
			}
			if t.Failed() {
				t.Log(err)
			}
		})
	}
}

// Without R2's link to EF-2 everything hangs on R1's.
func TestTopologyWithoutAPathIsRefused(t *testing.T) {
	good := exampleText(t)
	const second = "  - a: {node: R2, interface: ef2, addresses: [\"2001:db8:2:3::1/64\"]}\n    b: {node: EF-2, interface: core2, addresses: [\"2001:db8:2:3::2/64\"]}\n    delay_us: 8000\n"
	const first = "  - a: {node: R1, interface: ef2, addresses: [\"2001:db8:1:3::1/64\"]}\n    b: {node: EF-2, interface: core1, addresses: [\"2001:db8:1:3::2/64\"]}\n    delay_us: 4000\n"
	alone := strings.Replace(good, second, "", 1)
	for _, c := range []struct{ name, text, want string }{
		{"one-way", strings.Replace(alone, "delay_us: 4000", "delay_us: 4000\n    one_way: true", 1), "the path is one-way: forwarder IF-1 reaches EF-2, but not EF-2 it"},
		{"missing", strings.Replace(alone, first, "", 1), "forwarder IF-1 and forwarder EF-2 cannot reach each other: a link is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := load(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := load(t, alone); err != nil {
		t.Errorf("with one link left both ways: %v", err)
	}
}

func TestLoadTopologyOfNothing(t *testing.T) {
	for _, path := range []string{"nosuch", "./nosuch.yaml"} {
		if _, err := lab.LoadTopology(path); err == nil || !strings.Contains(err.Error(), "nosuch") {
			t.Errorf("LoadTopology(%q): %v", path, err)
		}
	}
}
