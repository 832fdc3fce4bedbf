package static

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/pce/tedb"
)

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topology.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	got, err := Load(write(t, `
nodes:
  - {name: IF-1}
  - {name: R1, sid: "2001:db8:0:f1::1"}
  - name: EF-1
links:
  - {from: IF-1, to: R1, delay_us: 500, jitter_us: 20, loss_ppm: 3, bandwidth_kbps: 1000000, te_metric: 7, both: true}
  - from: R1
    to: EF-1
    delay_us: 700
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Topology{
		Nodes: []cats.Node{{Name: "IF-1"}, {Name: "R1", SID: netip.MustParseAddr("2001:db8:0:f1::1")}, {Name: "EF-1"}},
		Links: []cats.Link{
			{From: "IF-1", To: "R1", DelayUS: 500, JitterUS: 20, LossPPM: 3, BandwidthKbps: 1_000_000, TEMetric: 7},
			{From: "R1", To: "IF-1", DelayUS: 500, JitterUS: 20, LossPPM: 3, BandwidthKbps: 1_000_000, TEMetric: 7},
			{From: "R1", To: "EF-1", DelayUS: 700, TEMetric: 1},
		},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("topology (-want +got):\n%s", d)
	}
	if _, err := tedb.Build(1, tedb.Source{Name: "static", Nodes: got.Nodes, Links: got.Links}); err != nil {
		t.Errorf("what was loaded is no topology: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	nodes := "nodes:\n  - {name: IF-1}\n  - {name: R1}\n"
	links := nodes + "links:\n  - {from: IF-1, to: R1, delay_us: 5}\n"
	for _, c := range []struct {
		name, content, want string
		line                int
	}{
		{"unknown key", "nodes:\n  - {name: IF-1, sids: 4}\n", `unknown key "sids"`, 2},
		{"no nodes", "nodes: []\n", "nodes: need 1 to 16384, have 0", 1},
		{"name", "nodes:\n  - {name: IF 1}\n", `nodes[0].name: name "IF 1"`, 2},
		{"node twice", nodes + "  - {name: IF-1}\n", "nodes[2].name: node IF-1 is already nodes[0]", 4},
		{"SID", "nodes:\n  - name: R1\n    sid: 192.0.2.1\n", "nodes[0].sid: node R1: SID 192.0.2.1 is not an IPv6 unicast address", 3},
		{"SID twice", "nodes:\n  - {name: R1, sid: \"2001:db8::1\"}\n  - {name: R2, sid: \"2001:db8::1\"}\n", "nodes[1].sid: SID 2001:db8::1 is already that of node R1", 3},
		{"unknown node", links + "  - from: R1\n    to: R9\n    delay_us: 5\n", "links[1].to: node R9 is not one of nodes", 7},
		{"missing delay", links + "  - {from: R1, to: IF-1}\n", `links[1]: key "delay_us" is missing`, 6},
		{"delay of 0", links + "  - {from: R1, to: IF-1, delay_us: 0}\n", "links[1]: link R1 -> IF-1: has no delay: need 1 to 16777215 µs", 6},
		{"negative delay", links + "  - {from: R1, to: IF-1, delay_us: -1}\n", "links[1].delay_us: need a whole number from 0", 6},
		{"loss", links + "  - {from: R1, to: IF-1, delay_us: 1, loss_ppm: 1000001}\n", "links[1]: link R1 -> IF-1: loss 1000001 ppm is above 1000000", 6},
		{"loop", links + "  - {from: R1, to: R1, delay_us: 1}\n", "links[1]: link R1 -> R1: leads to itself", 6},
		{"link twice", links + "  - {from: IF-1, to: R1, delay_us: 6}\n", "links[1]: link IF-1 -> R1 is already in links[0]", 6},
		{"way back twice", links + "  - {from: R1, to: IF-1, delay_us: 6, both: true}\n", "links[1]: link IF-1 -> R1 is already in links[0]", 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.content)
			got, err := Load(path)
			var refusal *config.Error
			if !errors.As(err, &refusal) || got.Nodes != nil {
				t.Fatalf("topology %+v, error %v", got, err)
			}
			if f := refusal.Faults[0]; len(refusal.Faults) != 1 || f.Line != c.line || !strings.Contains(f.Text, c.want) {
				t.Errorf("want one fault, %q on line %d, have:\n%v", c.want, c.line, err)
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("%s:%d:", path, c.line)) {
				t.Errorf("the error does not name the file and line: %v", err)
			}
		})
	}
}

func TestLoadListsEveryFault(t *testing.T) {
	_, err := Load(write(t, "nodes:\n  - {name: IF-1}\nlinks:\n  - {from: IF-1, to: R8, delay_us: 5}\n  - {from: R9, to: IF-1, delay_us: 5}\n"))
	var refusal *config.Error
	if !errors.As(err, &refusal) || len(refusal.Faults) != 2 {
		t.Errorf("want two faults, have %v", err)
	}
}
