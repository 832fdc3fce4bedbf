package config

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-net/margay/cats"
)

var update = flag.Bool("update", false, "write the expected errors anew")

// example has what the roles' configurations have.
type example struct {
	Common   `yaml:",inline"`
	CPS      Peer             `yaml:"cps"`
	Source   netip.Addr       `yaml:"source,omitempty"`
	Prefixes []netip.Prefix   `yaml:"prefixes,omitempty"`
	Services []service        `yaml:"services,omitempty"`
	Labels   map[string]uint8 `yaml:"labels,omitempty"`
	Bindings uint32           `yaml:"bindings,omitempty"`
	Offset   int8             `yaml:"offset,omitempty"`
	Reserve  float64          `yaml:"reserve,omitempty"`
	Both     bool             `yaml:"both,omitempty"`
	Interval time.Duration    `yaml:"interval,omitempty"`
	State    Path             `yaml:"state,omitempty"`
	VLAN     *uint16          `yaml:"vlan,omitempty"`
	Untagged int
}

type service struct {
	CSID     cats.CSID      `yaml:"cs_id"`
	CSCIID   cats.CSCIID    `yaml:"csci_id,omitempty"`
	Version  string         `yaml:"version"`
	Protocol cats.Protocol  `yaml:"protocol,omitempty"`
	Locator  netip.AddrPort `yaml:"locator,omitempty"`
	Idle     time.Duration  `yaml:"idle,omitempty"`
	Band     uint8          `yaml:"band_percent,omitempty"`
}

func (e *example) Defaults() { e.Bindings, e.Interval = 65536, 5*time.Second }

func (e *example) Validate() []Problem {
	var problems []Problem
	seen := map[cats.CSID]bool{}
	for i, s := range e.Services {
		if seen[s.CSID] {
			problems = append(problems, At("services["+string(rune('0'+i))+"].cs_id", "%q is there twice", s.CSID))
		}
		seen[s.CSID] = true
	}
	if e.Bindings > 1<<20 {
		problems = append(problems, At("bindings", "at most %d", 1<<20))
	}
	if e.Both && !e.Source.IsValid() {
		problems = append(problems, At("source", "needed where both is true"))
	}
	if e.Offset == -1 {
		problems = append(problems, At("", "-1 is out of luck"))
	}
	return problems
}

func (s *service) Defaults() { s.Idle, s.Protocol = 2*time.Hour, cats.TCP }

func (s *service) Validate() []Problem {
	if s.Band > 100 {
		return []Problem{At("band_percent", "at most 100, have %d", s.Band)}
	}
	return nil
}

const start0 = `# A whole configuration.
name: IF-1
tls: {certificate: f.crt, key: "f.key", authority: /etc/ca.crt, domain: example.margay}
observe: {listen: "127.0.0.1:9101"}
audit: {file: ../log/IF-1.audit, max_size: 2GiB}
cps:
  address: unix:/run/margay/cps.sock
  name: cps-1
`

func TestParse(t *testing.T) {
	got, err := Parse[example]("/etc/margay/forwarder.yaml", []byte(start0+`source: "2001:db8:0:1::1"
prefixes: [192.0.2.0/24, "2001:db8:c::/64"]
services:
  - cs_id: S1
    version: "1"
    csci_id: "198.51.100.11:443"
    protocol: udp
    locator: 198.51.100.11:443
    idle: 2h4m
  - {cs_id: 7, version: 1.10}
labels: {gold: 1, silver: 0x2}
bindings: 1024
offset: -128
reserve: 0.1
both: true
state: sub/dir
vlan: 12
`))
	if err != nil {
		t.Fatal(err)
	}
	vlan := uint16(12)
	want := example{
		Common: Common{
			Name:    "IF-1",
			TLS:     TLS{Certificate: "/etc/margay/f.crt", Key: "/etc/margay/f.key", Authority: "/etc/ca.crt", Domain: "example.margay"},
			Observe: Observe{Listen: "127.0.0.1:9101"},
			Audit:   Audit{File: "/etc/log/IF-1.audit", MaxSize: 2 << 30, Keep: 8},
		},
		CPS:      Peer{Address: "unix:/run/margay/cps.sock", Name: "cps-1"},
		Source:   netip.MustParseAddr("2001:db8:0:1::1"),
		Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:c::/64")},
		Services: []service{
			{CSID: "S1", Version: "1", CSCIID: "198.51.100.11:443", Protocol: cats.UDP, Locator: netip.MustParseAddrPort("198.51.100.11:443"), Idle: 2*time.Hour + 4*time.Minute},
			{CSID: "7", Version: "1.10", Protocol: cats.TCP, Idle: 2 * time.Hour},
		},
		Labels:   map[string]uint8{"gold": 1, "silver": 2},
		Bindings: 1024, Offset: -128, Reserve: 0.1, Both: true, Interval: 5 * time.Second, State: "/etc/margay/sub/dir", VLAN: &vlan,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(example{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultsHoldWhereTheFileIsSilent(t *testing.T) {
	got, err := Parse[example]("x.yaml", []byte(start0))
	if err != nil {
		t.Fatal(err)
	}
	if got.Bindings != 65536 || got.Interval != 5*time.Second {
		t.Errorf("bindings %d, interval %v", got.Bindings, got.Interval)
	}
}

// Each testdata/*.yaml has beside it, in *.golden, the error that it gives. "go test -update" writes the latter anew.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got, err := Load[example](file)
			if err == nil {
				t.Fatalf("accepted: %+v", got)
			}
			if diff := cmp.Diff(example{}, got, cmpopts.IgnoreUnexported(example{}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("an error came with a value: %s", diff)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(golden)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if diff := cmp.Diff(string(want), err.Error()+"\n"); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadErrors(t *testing.T) {
	if _, err := Load[example]("/nowhere/x.yaml"); err == nil || err.Error() != "configuration: open /nowhere/x.yaml: no such file or directory" {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Load[example](t.TempDir()); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: %v", err)
	}
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, MaxSize+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load[example](large); err == nil || !strings.Contains(err.Error(), "larger than 16777216 octets") {
		t.Errorf("large file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(start0))
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := Parse[example]("x.yaml", data)
		if err != nil && err.Error() == "" {
			t.Error("an error without text")
		}
	})
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "65536": 65536, "64KiB": 64 << 10, "64MiB": 64 << 20, "3GiB": 3 << 30} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%s reads as %d, %v", text, s, err)
		}
		if again := s.String(); again != text && again != "64KiB" {
			t.Errorf("%s is written %s", text, again)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "64 MiB", "64MB", "9000000000GiB", "64mib"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q reads as %d", text, s)
		}
	}
	for text, want := range map[string]string{
		"max_size: 1MiB": "audit.max_size: 1MiB: need 4MiB to 1024GiB",
		"keep: 0":        "audit.keep: 0 files: need 1 to 10000",
		"keep: 100000":   "audit.keep: 100000 files: need 1 to 10000",
	} {
		content := strings.Replace(start0, "max_size: 2GiB", text, 1)
		if _, err := Parse[struct {
			Common `yaml:",inline"`
			CPS    Peer `yaml:"cps"`
		}]("x.yaml", []byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
