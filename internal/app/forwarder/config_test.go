package forwarder

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/trust"
)

const good = `
name: IF-1
tls: {certificate: f.crt, key: f.key, authority: ca.crt, domain: example.margay}
observe: {listen: "127.0.0.1:0"}
audit: {file: audit}
cps: {address: "10.255.0.10:7443", name: cps-1}
listen: ["unix:/run/margay/IF-1.sock"]
operators: [admin]
clients: [{name: phone, prefixes: [192.0.2.10/32, "2001:db8:c::10/128"]}]
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
		{"domain of IPv4", "core:", `sr_domain: ["2001:db8:0:1::/64", 192.0.2.0/24]` + "\ncore:", "sr_domain[1]: need an IPv6 prefix"},
		{"domain of everything", "core:", `sr_domain: ["::/0"]` + "\ncore:", "sr_domain[0]: need an IPv6 prefix"},
		{"domain without itself", "core:", `sr_domain: ["2001:db8:0:2::/64", "2001:db8:0:1::/80"]` + "\ncore:", "sr_domain: need one that holds 2001:db8:0:1::/64"},
		{"bad tenant", "tenant: default", "tenant: a b", "tenant"},
		{"prefix twice", `"2001:db8:c::/64"`, "192.0.2.0/24", "already"},
		{"operator twice", "operators: [admin]", "operators: [admin, admin]", `operators[1]: "admin" is there twice`},
		{"client twice", "clients: [", "clients: [{name: phone, prefixes: [192.0.2.11/32]}, ", `clients[1].name: client "phone" is there twice`},
		{"client without prefix", `[192.0.2.10/32, "2001:db8:c::10/128"]`, "[]", "clients[0].prefixes: need at least one"},
		{"client's prefix with host bits", "192.0.2.10/32", "192.0.2.10/24", "clients[0].prefixes[0]: prefix 192.0.2.10/24 has bits set beyond its length"},
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

func TestLimitsHaveRanges(t *testing.T) {
	for key, values := range map[string][]string{
		"pending_deadline": {"-1s", "1ms", "2m"}, "hold_down": {"-1ns", "1h"}, "announce_life": {"-10s", "1ms", "2h"}, "draining": {"-5s", "48h"},
		"tcp_half_open": {"-30s", "1us"}, "tcp_closing": {"-1h", "61m"}, "udp_unanswered": {"-1ms", "720h"},
		"packets_per_flow": {"-1", "1025"}, "octets_per_flow": {"-16384", "1", "2047", "1048577"},
		"pending": {"-1", "1048577"}, "pending_per_tenant": {"-2", "2000000000"}, "pending_per_client": {"-100", "1048577"},
	} {
		for _, value := range values {
			_, err := parse(t, good+"limits: {"+key+": "+value+"}\n")
			if err == nil || !strings.Contains(err.Error(), "limits."+key+": ") || !strings.Contains(err.Error(), ": need ") {
				t.Errorf("%s: %s: error %v", key, value, err)
			}
		}
	}
	c, err := parse(t, good+"limits: {pending_deadline: 0s, hold_down: 10ms, octets_per_flow: 2048, pending: 1, announce_life: 1h}\n")
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Limits.core(); l.PendingDeadline != 2*time.Second || l.HoldDown != 10*time.Millisecond || l.OctetsPerFlow != 2048 || l.Pending != 1 || l.AnnounceLife != time.Hour {
		t.Errorf("limits %+v", l)
	}
}

func TestMayAnnounce(t *testing.T) {
	c, err := parse(t, good)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		role    trust.Role
		name    string
		source  string
		allowed bool
	}{
		{trust.Client, "phone", "192.0.2.10", true},
		{trust.Client, "phone", "2001:db8:c::10", true},
		{trust.Client, "phone", "192.0.2.11", false},
		{trust.Client, "phone", "::ffff:192.0.2.10", false},
		{trust.Client, "tablet", "192.0.2.10", false}, // a reload took it out while its call was on the way
		{trust.Client, "admin", "192.0.2.10", false},
		{trust.Operator, "admin", "203.0.113.1", true},
	} {
		err := c.mayAnnounce(trust.Identity{Domain: "example.margay", Role: v.role, Name: v.name}, netip.MustParseAddr(v.source))
		if (err == nil) != v.allowed || err != nil && !errors.Is(err, cats.ReasonUnauthorized) {
			t.Errorf("%s %s for %s: %v", v.role, v.name, v.source, err)
		}
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
