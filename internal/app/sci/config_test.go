package sci

import (
	"strings"
	"testing"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/sci"
)

const good = `name: sci-a
tls: {certificate: a.crt, key: a.key, authority: ca.crt, domain: example.margay}
observe: {listen: "127.0.0.1:0"}
audit: {file: audit}
csma: {address: "10.255.0.21:7444", name: csma-1}
site: edge-1
csci_id: "198.51.100.11:443"
state: state
services:
  - {cs_id: S1, version: "1", computing_time_ms: 5, max_slots: 100, price: 0, resources: [{name: concurrency, capacity: 200, reserve: 0.1, need: 1}], check: {tcp: "198.51.100.11:443", interval: 1s}}
`

func TestConfig(t *testing.T) {
	c, err := config.Parse[Config]("sci.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	core := c.core()
	if core.Interval != sci.DefaultInterval || core.Degraded != sci.DefaultDegraded || core.Rules != sci.DefaultRules || core.CSCIID != "198.51.100.11:443" || core.Site != "edge-1" {
		t.Errorf("core %+v", core)
	}
	s := core.Services[0]
	if s.MaxSlots != 100 || s.Price != cats.Some[uint32](0) || s.Reputation.Present || s.CheckInterval != sci.DefaultCheckInterval || s.Resources[0].Capacity != 200 {
		t.Errorf("service %+v", s)
	}
	c, err = config.Parse[Config]("sci.yaml", []byte(strings.Replace(good, "max_slots: 100, ", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Services[0].core().MaxSlots; n != sci.NoLimit {
		t.Errorf("without max_slots the limit is %d", n)
	}
	for name, test := range map[string]struct{ old, new, want string }{
		"unknown key":                {"site: edge-1", "sight: edge-1", `sci.yaml:6:1: unknown key "sight"`},
		"no service":                 {"services:\n  -", "services: []\n#", "no service to report on"},
		"a service twice":            {"services:\n", "services:\n  - {cs_id: S1, version: \"1\", computing_time_ms: 5, max_slots: 1, check: {tcp: \"127.0.0.1:1\"}}\n", "services[1].cs_id: service \"S1\" is there twice"},
		"two checks":                 {"check: {", "check: {http: \"http://x/\", ", "sci.yaml:10:"},
		"no check":                   {"tcp: \"198.51.100.11:443\", ", "", "need exactly one of tcp and http"},
		"a URL of another scheme":    {"tcp: \"198.51.100.11:443\"", "http: \"ftp://x/\"", "need http://"},
		"a port that is none":        {"11:443\", interval", "11:443x\", interval", "port \"443x\""},
		"a negative capacity":        {"capacity: 200", "capacity: -200", "capacity -200 is outside"},
		"a reserve of everything":    {"reserve: 0.1", "reserve: 1.5", "reserve 1.5 is outside"},
		"slots without bound":        {"max_slots: 100, price: 0, resources: [{name: concurrency, capacity: 200, reserve: 0.1, need: 1}]", "price: 0", "neither max_slots nor a needed resource"},
		"a computing time of a day":  {"computing_time_ms: 5", "computing_time_ms: 86400000", "computing_time_ms 86400000 above 3600000"},
		"a reputation of eleven":     {"price: 0", "reputation: 11", "reputation 11 above 10"},
		"a degraded share above one": {"site: edge-1", "site: edge-1\ndegraded_share: 1.5", "degraded weight 1.5"},
		"no time between checks":     {"interval: 1s", "interval: 0s", "check interval 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, test.old, test.new, 1)
			if bad == good {
				t.Fatalf("%q is not in the file", test.old)
			}
			if _, err := config.Parse[Config]("sci.yaml", []byte(bad)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v\nwant  %s", err, test.want)
			}
		})
	}
}
