package operator

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	api "github.com/margay-net/margay/api/margayv1alpha1"
)

// TestDocumentsAreRead reads every document back, as JSON and as YAML, and finds the same in both.
func TestDocumentsAreRead(t *testing.T) {
	d := newDomain(t)
	d.cps.bindings = []*api.BindingRow{flow(1), flow(2)}
	for _, what := range []string{"services", "instances", "paths", "forwarders", "bindings", "counters"} {
		var fromJSON, fromYAML any
		out, _, _ := d.run("get", what, "-o", "json")
		decoder := json.NewDecoder(strings.NewReader(out))
		if err := decoder.Decode(&fromJSON); err != nil || decoder.More() {
			t.Errorf("%s: not one JSON document: %v\n%s", what, err, out)
		}
		out, _, _ = d.run("get", what, "-o", "yaml")
		if err := yaml.Unmarshal([]byte(out), &fromYAML); err != nil {
			t.Errorf("%s: not one YAML document: %v\n%s", what, err, out)
		}
		a, err := json.Marshal(fromJSON)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(fromYAML)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s: JSON and YAML differ:\n%s\n%s", what, a, b)
		}
	}
}

func TestDocument(t *testing.T) {
	value := math.Inf(1)
	for name, c := range map[string]struct {
		document object
		want     string
	}{
		"an address of IPv4": {document(&api.Endpoint{Address: octets("192.0.2.1"), Port: 9}), `{"address":"192.0.2.1","port":9}`},
		"no address":         {document(&api.Endpoint{}), `{"address":"","port":0}`},
		"octets of no address": {document(&api.Endpoint{Address: []byte{1, 2, 0xff}}),
			`{"address":"0102ff","port":0}`},
		"a transaction": {document(&api.Drain{Transaction: octets("2001:db8::1"), Half: api.Half_HALF_EGRESS, Reason: api.Reason_REASON_STALE_EPOCH}),
			`{"transaction":"20010db8000000000000000000000001","shard":0,"half":"EGRESS","reason":"stale-epoch"}`},
		"another protocol":   {document(&api.Locator{Protocol: 132}), `{"protocol":"132","address":"","port":0}`},
		"no protocol":        {document(&api.Locator{Protocol: 300}), `{"protocol":"300","address":"","port":0}`},
		"lists of segments":  {document(&api.Path{Kind: api.PathKind_PATH_KIND_SR_MPLS, Segments: [][]byte{octets("::1")}}), `{"kind":"sr-mpls","segments":["::1"],"labels":[],"handle":"","nodes":[],"generation":0,"delay_us":0}`},
		"an unknown value":   {document(&api.DropCounter{Reason: 999, Packets: math.MaxUint64}), `{"reason":"999","packets":18446744073709551615}`},
		"absent and present": {document(&api.Bounds{MaxDelayUs: new(uint32)}), `{"max_delay_us":0}`},
		"not a number":       {document(&api.Candidate{Value: &value}), `{"csci_id":"","site":"","egress":"","color":0,"stage":"","detail":"","rank":0,"equal_to_best":false,"value":"+Inf","effective_slots":0}`},
		"a map in order":     {document(&api.Metrics{Extensions: map[string]float64{"b": 1, "a": 2}}), `{"gas":0,"in_flight":0,"computing_time_ms":0,"extensions":{"a":2,"b":1}}`},
	} {
		var pretty, got bytes.Buffer
		if err := encode(&pretty, formatJSON, c.document); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := json.Compact(&got, pretty.Bytes()); err != nil || strings.TrimSpace(got.String()) != c.want {
			t.Errorf("%s: %s, %v\nwant %s", name, got.String(), err, c.want)
		}
	}
}
