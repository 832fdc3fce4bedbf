package forwarder

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/datapath"
)

const good = `
name: IF-1
tls: {certificate: f.crt, key: f.key, authority: ca.crt, domain: example.margay}
observe: {listen: "127.0.0.1:0"}
audit: {file: audit}
cps: {address: "10.255.0.10:7443", name: cps-1}
listen: ["unix:/run/margay/IF-1.sock"]
state: state
pins: /sys/fs/bpf/margay/IF-1
source: "2001:db8:0:1::1"
return_sid: "2001:db8:0:1::100"
attachments:
  - {name: client-1, interface: client0, tenant: default, prefixes: [192.0.2.0/24, "2001:db8:c::/64"]}
instances: [svc0]
core: [core1, client0]
`

func parse(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forwarder.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load[Config](path)
}

func TestConfig(t *testing.T) {
	c, err := parse(t, good)
	if err != nil {
		t.Fatal(err)
	}
	if c.Bindings != 65536 || c.block() != netip.MustParsePrefix("2001:db8:0:1::/64") {
		t.Fatalf("bindings %d, block %s", c.Bindings, c.block())
	}
	want := map[string]datapath.Role{
		"r0": datapath.RoleRelease, "client0": datapath.RoleClient | datapath.RoleCore, "core1": datapath.RoleCore, "svc0": datapath.RoleInstance,
	}
	ports := c.ports("r0")
	for _, p := range ports {
		if want[p.Name] != p.Role {
			t.Errorf("port %s has roles %b, want %b", p.Name, p.Role, want[p.Name])
		}
	}
	if len(ports) != len(want) {
		t.Errorf("ports %+v", ports)
	}
}

func TestConfigFaults(t *testing.T) {
	for _, c := range []struct{ name, replace, by, says string }{
		{"unknown key", "core:", "kore:", "kore"},
		{"IPv4 source", `source: "2001:db8:0:1::1"`, "source: 192.0.2.1", "IPv6 unicast"},
		{"no return_sid", `return_sid: "2001:db8:0:1::100"`, "", "return_sid"},
		{"prefix with host bits", "192.0.2.0/24", "192.0.2.1/24", "192.0.2.0/24"},
		{"no core", "core: [core1, client0]", "core: []", "toward the network"},
		{"long interface", "svc0", "a-name-of-sixteen", "1 to 15"},
		{"too many bindings", "core:", "bindings: 99999999\ncore:", "bindings"},
		{"block of IPv4", "core:", "block: 192.0.2.0/24\ncore:", "IPv6 prefix"},
		{"bad tenant", "tenant: default", "tenant: a b", "tenant"},
		{"prefix twice", `"2001:db8:c::/64"`, "192.0.2.0/24", "already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(good, c.replace, c.by, 1)
			_, err := parse(t, text)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "forwarder.yaml:") {
				t.Fatalf("error %v", err)
			}
		})
	}
}

func TestIDs(t *testing.T) {
	i := newIDs(5)
	i.claim(2)
	var got []uint32
	for range 3 {
		id, ok := i.get()
		if !ok {
			t.Fatal("none left too early")
		}
		got = append(got, id)
	}
	if got[0] != 1 || got[1] != 3 || got[2] != 4 {
		t.Fatalf("got %v", got)
	}
	if id, ok := i.get(); ok {
		t.Fatalf("got %d, which is taken", id)
	}
	i.put(3)
	i.put(2)
	i.put(1)
	for _, want := range []uint32{3, 2, 1} {
		if id, _ := i.get(); id != want {
			t.Fatalf("got %d, want %d: the one that came back first", id, want)
		}
	}
}
