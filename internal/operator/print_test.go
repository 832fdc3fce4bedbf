package operator

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/margay-net/margay/api/margayv1alpha1"
)

var update = flag.Bool("update", false, "write the expected texts anew")

// golden compares a text with testdata/NAME.txt.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got; go test -update writes it anew):\n%s", path, diff)
	}
}

// told is everything that a command said: its output, its error, its exit code.
func (d *fakeDomain) told(arguments ...string) string {
	out, code, err := d.run(arguments...)
	text := "$ margay " + strings.Join(arguments, " ") + "\n" + out
	if err != nil {
		text += "margay: " + err.Error() + "\n"
	}
	return strings.ReplaceAll(text+fmt.Sprintf("exit code %d\n", code), d.dir, "DIR")
}

func TestPrinted(t *testing.T) {
	d := newDomain(t)
	d.cps.bindings = []*api.BindingRow{flow(1), flow(2)}
	for name, arguments := range map[string][]string{
		"services":          {"get", "services"},
		"services-wide":     {"get", "services", "-o", "wide"},
		"services-of-one":   {"get", "service", "--service", "S1"},
		"instances":         {"get", "instances"},
		"instances-wide":    {"get", "instance", "-o", "wide"},
		"instances-json":    {"get", "instances", "--service", "S1", "-o", "json"},
		"paths":             {"get", "paths"},
		"paths-wide":        {"get", "path", "-o", "wide"},
		"forwarders":        {"get", "forwarders"},
		"forwarders-wide":   {"get", "forwarder", "-o", "wide"},
		"forwarders-json":   {"get", "forwarders", "-o", "json"},
		"bindings":          {"get", "bindings"},
		"bindings-wide":     {"get", "binding", "-o", "wide"},
		"bindings-yaml":     {"get", "bindings", "-o", "yaml", "--limit", "1"},
		"counters":          {"get", "counters"},
		"counters-wide":     {"get", "counter", "--forwarder", "IF-1", "-o", "wide"},
		"counters-json":     {"get", "counters", "-o", "json"},
		"counters-yaml":     {"get", "counters", "--forwarder", "EF-2", "-o", "yaml"},
		"counters-unknown":  {"get", "counters", "--forwarder", "EF-9"},
		"help-get":          {"get", "--help"},
		"unknown-service":   {"get", "services", "--service", "S9"},
		"unknown-instances": {"get", "instances", "--service", "S9"},
		"unknown-bindings":  {"get", "bindings", "--service", "S9"},
		"none-of-a-service": {"get", "bindings", "--service", "U6"},
		"bad-format":        {"get", "services", "-o", "xml"},
	} {
		t.Run(name, func(t *testing.T) {
			text := d.told(arguments...)
			if name == "help-get" {
				text = regexp.MustCompile(`(?m)^.*--config string .*\n`).ReplaceAllString(text, "") // has the default of this environment
			}
			golden(t, name, text)
		})
	}
}

// The answers of the C-PS to `margay explain`.
func TestExplanations(t *testing.T) {
	d := newDomain(t)
	real := func(us uint64) *uint64 { return &us }
	path := func(reachable bool, us uint32) *api.PathRow {
		return &api.PathRow{Reachable: reachable, Metrics: &api.PathMetrics{DelayUs: us}, AgeMs: 1300, Validity: api.Validity_VALIDITY_VALID}
	}
	candidate := func(id string, rank uint32, equal bool, health api.Health) *api.Candidate {
		return &api.Candidate{
			CsciId: id, Egress: "EF-2", Rank: rank, EqualToBest: equal, RealDelayUs: real(10_000), EffectiveSlots: 99,
			Report: report(health, api.Validity_VALIDITY_VALID), Path: path(true, 5000),
		}
	}
	resolved := func(candidates ...*api.Candidate) *api.ExplainResponse {
		return &api.ExplainResponse{
			Resolution: &api.Resolution{CsId: "S1", By: "explicit", Tenant: "default"}, Policy: api.SelectionPolicy_SELECTION_POLICY_LATENCY,
			PolicyVersion: "latency/5%/spread@1", Band: 1000, CatalogueGeneration: 3, CstGeneration: 6, NstGeneration: 2, TedbGeneration: 1, Candidates: candidates,
		}
	}
	tuple := &api.Tuple{Protocol: 6, Source: &api.Endpoint{Address: octets("192.0.2.10"), Port: 50_000}, Target: &api.Endpoint{Address: octets("192.0.2.100"), Port: 443}}
	chosen := func(e *api.ExplainResponse) *api.ExplainResponse {
		e.Chosen = &api.Chosen{
			CsciId: "B", Locator: &api.Locator{Protocol: 6, Address: octets("198.51.100.21"), Port: 443}, Egress: "EF-2", Slots: 1,
			Forward:        &api.Path{Kind: api.PathKind_PATH_KIND_SRV6, Nodes: []string{"IF-1", "R1", "EF-2"}, Segments: [][]byte{octets("2001:db8:0:f1::1")}},
			ForwardMetrics: &api.PathMetrics{DelayUs: 5000, Hops: 2},
			Before:         &api.PacketView{Tuple: tuple, Encapsulation: api.Encapsulation_ENCAPSULATION_NONE},
			After: &api.PacketView{
				Tuple: tuple, Encapsulation: api.Encapsulation_ENCAPSULATION_SRV6, OuterDestination: octets("2001:db8:0:f1::1"),
				Segments: [][]byte{octets("2001:db8:0:f1::1"), octets("2001:db8:0:e2::11")},
			},
		}
		return e
	}
	healthy, degraded := api.Health_HEALTH_HEALTHY, api.Health_HEALTH_DEGRADED
	removed := candidate("far", 0, false, healthy)
	removed.Stage, removed.Detail, removed.Path = "network", "EF-2 cannot be reached", path(false, 0)
	expired := candidate("old", 0, false, healthy)
	expired.Stage, expired.Detail, expired.Report = "freshness", "the report is EXPIRED", report(healthy, api.Validity_VALIDITY_EXPIRED)
	noCandidate := resolved(removed, expired)
	noCandidate.Band, noCandidate.TedbGeneration = 0, 0
	noCandidate.Refusal = &api.Refusal{Reason: api.Reason_REASON_NO_CANDIDATE, Stage: "network", Detail: "none of 2 is left"}

	for name, answer := range map[string]*api.ExplainResponse{
		"explain-best":        chosen(resolved(candidate("B", 1, true, healthy), candidate("A", 2, false, healthy))),
		"explain-equals":      chosen(resolved(candidate("B", 1, true, healthy), candidate("A", 2, true, healthy), candidate("C", 3, true, degraded))),
		"explain-one-healthy": chosen(resolved(candidate("B", 1, true, healthy), candidate("C", 2, true, degraded))),
		"explain-none-healthy": chosen(resolved(candidate("B", 1, true, degraded), candidate("C", 2, true, degraded),
			candidate("D", 3, false, degraded))),
		"explain-refused": noCandidate,
		"explain-unknown": {CatalogueGeneration: 3, CstGeneration: 6, NstGeneration: 2, Refusal: &api.Refusal{Reason: api.Reason_REASON_UNKNOWN_SERVICE, Detail: `no published service is called "S9"`}},
	} {
		t.Run(name, func(t *testing.T) {
			d.cps.explain = func(*api.ExplainRequest) (*api.ExplainResponse, error) { return answer, nil }
			golden(t, name, d.told("explain", "S1", "--ingress", "IF-1"))
		})
	}
	t.Run("a document of a refusal has the exit code of a refusal", func(t *testing.T) {
		d.cps.explain = func(*api.ExplainRequest) (*api.ExplainResponse, error) { return noCandidate, nil }
		golden(t, "explain-refused-json", d.told("explain", "S1", "--ingress", "IF-1", "-o", "json"))
	})
	t.Run("what is asked", func(t *testing.T) {
		var asked *api.ExplainRequest
		d.cps.explain = func(q *api.ExplainRequest) (*api.ExplainResponse, error) {
			asked = q
			return nil, status.Error(codes.InvalidArgument, `no client attaches at "IF-1"`)
		}
		text := d.told("explain", "--ingress", "IF-1", "--target", "[2001:db8::1]:443", "--protocol", "udp", "--max-delay", "20ms", "--max-computing-time", "7ms", "--min-slots", "0")
		hard := asked.GetConstraints().GetHard()
		if asked.GetCsId() != "" || asked.GetProtocol() != 17 || asked.GetTarget().GetPort() != 443 || hard.GetMaxDelayUs() != 20_000 ||
			hard.GetMaxComputingTimeMs() != 7 || hard.MinSlots == nil || hard.MaxRealDelayUs != nil {
			t.Errorf("%v", asked)
		}
		golden(t, "explain-impossible", text)
	})
}

func TestArguments(t *testing.T) {
	d := newDomain(t)
	for want, arguments := range map[string]string{
		`unknown command "nosuch" for "margay get"; it has bindings, counters, forwarders, instances, paths, services`: "get nosuch",
		`unknown command "servces" for "margay get"; did you mean services?`:                                           "get servces",
		`unknown command "nosuch" for "margay lab"; it has`:                                                            "lab nosuch",
		`unknown command "gte" for "margay"; did you mean get`:                                                         "gte",
		`unknown command "verfy" for "margay audit"; did you mean verify?`:                                             "audit verfy",
		"unknown flag: --service\nusage: margay get paths [flags]":                                                     "get paths --service S1",
		"unknown flag: --service\nusage: margay get counters":                                                          "get counters --service S1",
		`unknown command "S1" for "margay get services"` + "\nusage: margay get services [flags]":                      "get services S1",
		"required flag(s) \"ingress\" not set\nusage: margay explain [CS-ID] [flags]":                                  "explain S1",
		"name the service: its CS-ID, or --target":                                                                     "explain --ingress IF-1",
		"-o wide: need one of json|yaml":                                                                               "explain S1 --ingress IF-1 -o wide",
		"--max-delay 5ns: need a whole number of 1µs":                                                                  "explain S1 --ingress IF-1 --max-delay 5ns",
		"--source x: need address:port":                                                                                "explain S1 --ingress IF-1 --source x",
		"accepts 1 arg(s), received 0\nusage: margay lab up TOPOLOGY [flags]":                                          "lab up",
		"usage: margay lab exec LAB NODE COMMAND [ARGUMENT...] [flags]":                                                "lab exec example client",
		"forwarder EF-9 is not in":                                                                                     "request --ingress EF-9 --source 192.0.2.1:1 --target 192.0.2.2:2 --cs-id S1",
		`--protocol: `:                                                                                                 "request --ingress IF-1 --source 192.0.2.1:1 --target 192.0.2.2:2 --cs-id S1 --protocol icmp",
	} {
		if out, code, err := d.run(strings.Fields(arguments)...); err == nil || code != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("margay %s: %v, want %q; it printed %q", arguments, err, want, out)
		}
	}
	if err := rootOnly("margay lab up", 1000); err == nil || !strings.Contains(err.Error(), "margay lab up") || !strings.Contains(err.Error(), "run it as root") {
		t.Errorf("another user than root: %v", err)
	}
	if out, _, err := d.run("--version"); err != nil || !regexp.MustCompile(`^margay \S+.*, go1\.\S+ \S+/\S+\n$`).MatchString(out) {
		t.Errorf("--version: %q, %v", out, err)
	}
	for _, verb := range []string{"", "get", "lab", "pki", "audit"} {
		if out, _, err := d.run(strings.Fields(verb)...); err != nil || !strings.Contains(out, "Available Commands:") {
			t.Errorf("margay %s alone: %q, %v", verb, out, err)
		}
	}
}

func TestFailures(t *testing.T) {
	d := newDomain(t)
	request := []string{"request", "--ingress", "IF-1", "--source", "192.0.2.10:51000", "--target", "192.0.2.100:443", "--cs-id", "S1"}
	fails := func(config, want string, arguments ...string) {
		t.Helper()
		out, code, err := d.runWith(t.Context(), config, arguments...)
		if err == nil || code != 1 || strings.ReplaceAll(err.Error(), d.dir, "DIR") != want {
			t.Errorf("%s: %v\nwant %s\nit printed %q", arguments, err, want, out)
		}
	}
	for status, want := range map[string]string{
		"identity-conflict: the request names S9":              "identity-conflict: the request names S9",
		"unauthorized: client c: not its source: unauthorized": "unauthorized: client c: not its source",
		"malformed: attachment \"a b\"\nmalformed":             "malformed: attachment \"a b\"",
		"overload: overload":                                   "overload",
		"counters: device gone":                                "counters: device gone",
	} {
		d.forwarder.refusal = status
		fails("operator", "forwarder IF-1 at unix:DIR/IF-1: "+want, request...)
	}
	d.configureAs("stranger", "stranger", "IF-1")
	fails("stranger", "C-PS cps-1 at unix:DIR/cps-1: spiffe://example.margay/cps/cps-1 refused our certificate, spiffe://example.margay/operator/stranger "+
		"(its audit log says why): unauthorized: remote error: tls: bad certificate", "get", "services")
	d.configure("alone")
	fails("alone", "DIR/alone.yaml lists no forwarders: add them under forwarders with their addresses", "get", "counters")
	d.cps.explain = func(*api.ExplainRequest) (*api.ExplainResponse, error) {
		<-t.Context().Done()
		return nil, t.Context().Err()
	}
	d.stopCPS()
	fails("operator", "C-PS cps-1 does not answer at unix:DIR/cps-1: is it running? (connect: no such file or directory)", "get", "bindings")
}

// TestNoAnswer asks a C-PS that takes the call and never answers.
func TestNoAnswer(t *testing.T) {
	d := newDomain(t)
	release := make(chan struct{})
	d.cps.explain = func(*api.ExplainRequest) (*api.ExplainResponse, error) {
		<-release
		return &api.ExplainResponse{}, nil
	}
	defer close(release)
	_, _, err := d.run("explain", "S1", "--ingress", "IF-1", "--timeout", "100ms")
	if err == nil || !strings.HasSuffix(err.Error(), "is it running? (no answer in time)") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, _, err = d.runWith(ctx, "operator", "explain", "S1", "--ingress", "IF-1")
	if err == nil || !strings.HasSuffix(err.Error(), ": interrupted") {
		t.Error(err)
	}
}

func TestAllBindings(t *testing.T) {
	d := newDomain(t)
	for n := range 2500 {
		d.cps.bindings = append(d.cps.bindings, flow(n))
	}
	for _, c := range []struct {
		arguments string
		rows      int
		limits    []uint32
	}{
		{"get bindings", 2500, []uint32{1024, 1024, 1024}},
		{"get bindings --service S1", 2500, []uint32{1024, 1024, 1024}},
		{"get bindings --limit 3", 3, []uint32{3}},
		{"get bindings --limit 1500", 1500, []uint32{1024, 476}},
		{"get bindings --limit 5000", 2500, []uint32{1024, 1024, 1024}},
	} {
		d.cps.asked = nil
		out, _, err := d.run(strings.Fields(c.arguments)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err != nil || len(lines) != c.rows+2 || lines[len(lines)-1] != "2500 in all" || !strings.HasPrefix(lines[0], "CS-ID") || strings.Count(out, "CS-ID") != 1 {
			t.Errorf("%s: %d lines, the last %q, %v", c.arguments, len(lines), lines[len(lines)-1], err)
		}
		var limits []uint32
		for _, q := range d.cps.asked {
			limits = append(limits, q.GetLimit())
		}
		if diff := cmp.Diff(c.limits, limits); diff != "" {
			t.Errorf("%s: pages %s", c.arguments, diff)
		}
		out, _, err = d.run(strings.Fields(c.arguments + " -o json")...)
		if err != nil || strings.Count(out, `"transaction"`) != c.rows || strings.Contains(out, `"more": true`) != (c.rows < 2500) {
			t.Errorf("%s -o json: %d rows, %v", c.arguments, strings.Count(out, `"transaction"`), err)
		}
	}
}
