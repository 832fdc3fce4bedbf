package sealed

import (
	"bytes"
	"encoding/hex"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

var moment = time.UnixMilli(1_700_000_000_000).UTC()

func metricUpdate() *cats.MetricUpdate {
	return &cats.MetricUpdate{
		UpdateHeader: cats.UpdateHeader{
			Source: "csma-1", Site: "edge-1", Epoch: 3, Sequence: 9, Timestamp: moment, Kind: cats.UpdateDelta, Base: 8,
			TTL: 150 * time.Second,
		},
		Records: []cats.Record{{
			CSID: "S1", CSCIID: "198.51.100.11:443", Version: "1", Health: cats.Healthy, Reporting: cats.ReportingHealthy,
			Warned: true, ReportEpoch: 1, ReportSequence: 2, Age: 40 * time.Millisecond,
			Metrics: cats.Metrics{
				GAS: 10, InFlight: 2, ComputingTimeMS: 5, Price: cats.Some[uint32](1), Reputation: cats.Some[uint8](2),
				SecurityLevel: cats.Some[uint8](3), AcceptedTotal: cats.Some[uint64](4), FinishedTotal: cats.Some[uint64](5),
				Extensions: map[string]float64{"queue": 0.5, "watts": 12},
			},
		}},
	}
}

func networkUpdate() *cats.NetworkUpdate {
	return &cats.NetworkUpdate{
		UpdateHeader: cats.UpdateHeader{
			Source: "cnma-1", Site: "core", Epoch: 3, Sequence: 9, Timestamp: moment, Kind: cats.UpdateDelta, Base: 8, TTL: 30 * time.Second,
		},
		Nodes: []cats.Node{{Name: "R1", SID: netip.MustParseAddr("2001:db8:0:f1::1")}},
		Links: []cats.Link{{
			From: "IF-1", To: "R1", DelayUS: 1, JitterUS: 2, LossPPM: 3, BandwidthKbps: 4, TEMetric: 5, Age: time.Second,
		}},
		Paths: []cats.NetworkPath{{
			Headend: "IF-1", Egress: "EF-1", Color: 1, Reachable: true, Age: time.Second,
			Metrics: cats.PathMetrics{DelayUS: 1, JitterUS: 2, LossPPM: 3, BandwidthKbps: 4, TEMetric: 5, Hops: 6},
		}},
	}
}

// changeEach calls check once for every field below v, with that field changed, and puts it back.
func changeEach(t *testing.T, v reflect.Value, path string, check func(path string)) {
	t.Helper()
	switch v.Interface().(type) {
	case time.Time:
		restore(v, reflect.ValueOf(moment.Add(time.Millisecond)), path, check)
		return
	case time.Duration:
		restore(v, reflect.ValueOf(v.Interface().(time.Duration)+time.Millisecond), path, check)
		return
	case netip.Addr:
		restore(v, reflect.ValueOf(netip.MustParseAddr("2001:db8::ffff")), path, check)
		restore(v, reflect.ValueOf(netip.Addr{}), path, check)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			changeEach(t, v.Field(i), path+"."+v.Type().Field(i).Name, check)
		}
	case reflect.Slice:
		for i := range v.Len() {
			changeEach(t, v.Index(i), path, check)
		}
		restore(v, reflect.AppendSlice(reflect.Zero(v.Type()), reflect.AppendSlice(v.Slice3(0, v.Len(), v.Len()), v)), path, check)
		restore(v, reflect.Zero(v.Type()), path, check)
	case reflect.Map:
		m := v.Interface().(map[string]float64)
		for _, changed := range []map[string]float64{{}, {"queue": 0.5}, {"queue": 0.25, "watts": 12}, {"other": 0.5, "watts": 12}} {
			if !maps.Equal(m, changed) {
				restore(v, reflect.ValueOf(changed), path, check)
			}
		}
	case reflect.String:
		restore(v, reflect.ValueOf(v.String()+"x").Convert(v.Type()), path, check)
	case reflect.Bool:
		restore(v, reflect.ValueOf(!v.Bool()), path, check)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		restore(v, reflect.ValueOf(v.Uint()+1).Convert(v.Type()), path, check)
	default:
		t.Fatalf("%s: no change for %s", path, v.Type())
	}
}

func restore(v, changed reflect.Value, path string, check func(string)) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	v.Set(changed)
	check(path)
	v.Set(old)
}

// No field of an update can be changed, added or taken away without changing its canonical octets.
func TestCanonicalCoversEveryField(t *testing.T) {
	metric, network := metricUpdate(), networkUpdate()
	for _, test := range []struct {
		name   string
		update reflect.Value
		octets func() []byte
	}{
		{"MetricUpdate", reflect.ValueOf(metric).Elem(), func() []byte { return CanonicalMetricUpdate(metric) }},
		{"NetworkUpdate", reflect.ValueOf(network).Elem(), func() []byte { return CanonicalNetworkUpdate(network) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := test.octets()
			seen := map[string]string{string(before): "the unchanged update"}
			changeEach(t, test.update, test.name, func(path string) {
				octets := string(test.octets())
				if twin, ok := seen[octets]; ok {
					t.Errorf("%s changed: the octets are those of %s", path, twin)
				}
				seen[octets] = "a change of " + path
			})
			if !bytes.Equal(before, test.octets()) {
				t.Fatal("the test did not put everything back")
			}
		})
	}
}

// Equal values have equal octets, whatever the order of a map; and octets do not run into each other.
func TestCanonicalIsDeterministic(t *testing.T) {
	first := CanonicalMetricUpdate(metricUpdate())
	for range 100 {
		if !bytes.Equal(first, CanonicalMetricUpdate(metricUpdate())) {
			t.Fatal("the same update has two forms")
		}
	}
	a, b := metricUpdate(), metricUpdate()
	a.Source, a.Site = "ab", "c"
	b.Source, b.Site = "a", "bc"
	if bytes.Equal(CanonicalMetricUpdate(a), CanonicalMetricUpdate(b)) {
		t.Fatal("two strings run into each other")
	}
	if bytes.Equal(CanonicalMetricUpdate(&cats.MetricUpdate{}), CanonicalNetworkUpdate(&cats.NetworkUpdate{})) {
		t.Fatal("an empty metric update is an empty network update")
	}
}

// The form is part of the contract: a sender of another version must agree with it.
func TestCanonicalForm(t *testing.T) {
	u := &cats.MetricUpdate{UpdateHeader: cats.UpdateHeader{
		Source: "c", Site: "", Epoch: 1, Sequence: 2, Timestamp: time.UnixMilli(3), Kind: cats.UpdateRefresh, Base: 4,
		TTL: 5*time.Millisecond + 999,
	}}
	number := func(v byte) []byte { return []byte{0, 0, 0, 0, 0, 0, 0, v} }
	want := slices.Concat([]byte("margay metric update 1\x00"), number(1), []byte("c"), number(0),
		number(1), number(2), number(3), number(2), number(4), number(5), number(0))
	if got := CanonicalMetricUpdate(u); !bytes.Equal(got, want) {
		t.Fatalf("octets\n%s, want\n%s", hex.EncodeToString(got), hex.EncodeToString(want))
	}
}

// A duration that a message cannot carry is sealed as the message carries it.
func TestCanonicalDurations(t *testing.T) {
	octets := func(d time.Duration) string {
		u := metricUpdate()
		u.Records[0].Age = d
		return string(CanonicalMetricUpdate(u))
	}
	if octets(-time.Second) != octets(0) {
		t.Error("a negative age is not sealed as 0")
	}
	if octets(math.MaxInt64) != octets(math.MaxUint32*time.Millisecond) {
		t.Error("an age beyond 32 bits is not sealed as the longest")
	}
}
