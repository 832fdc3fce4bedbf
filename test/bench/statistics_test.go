package main

import (
	"reflect"
	"testing"
)

func TestStatistics(t *testing.T) {
	odd, even := []float64{3, 1, 2}, []float64{4, 1, 3, 2}
	if got := median(odd); got != 2 {
		t.Errorf("median of %v is %v", odd, got)
	}
	if got := median(even); got != 2.5 {
		t.Errorf("median of %v is %v", even, got)
	}
	if odd[0] != 3 {
		t.Error("median sorted the caller's slice")
	}
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for p, want := range map[float64]float64{0: 1, 1: 1, 50: 50, 99: 99, 99.5: 100, 100: 100} {
		if got := percentile(hundred, p); got != want {
			t.Errorf("percentile %v of 1..100 is %v, want %v", p, got, want)
		}
	}
}

func TestDatapathResults(t *testing.T) {
	// Three runs each: a ratio is that of the medians, its spread that of the runs in turn.
	got := datapathResults("1m", [][]float64{{100, 200, 400}, {50, 100, 100}, {80, 160, 200}, {50, 60, 70}, {400, 400, 400}})
	want := []Result{
		{Name: "datapath.ingress_vs_redirect.64.1m", Value: 2, Unit: "x", RatioTo: "datapath.redirect_ns.64.1m", Ratio: 2, Runs: 3, Min: 2, Max: 4},
		{Name: "datapath.ingress_vs_probe.64.1m", Value: 1.25, Unit: "x", RatioTo: "datapath.probe_ns.64.1m", Ratio: 1.25, Runs: 3, Min: 1.25, Max: 2},
		{Name: "datapath.ingress_vs_nocode.64.1m", Value: 2, Unit: "x", RatioTo: "datapath.nocode_ns.64.1m", Ratio: 2, Runs: 3, Min: 1, Max: 4},
		{Name: "datapath.ingress_ns.64.1m", Value: 200, Unit: "ns/packet", Runs: 3, Min: 100, Max: 400},
		{Name: "datapath.redirect_ns.64.1m", Value: 100, Unit: "ns/packet", Runs: 3, Min: 50, Max: 100},
		{Name: "datapath.probe_ns.64.1m", Value: 160, Unit: "ns/packet", Runs: 3, Min: 80, Max: 200},
		{Name: "datapath.direct_ns.64.1m", Value: 60, Unit: "ns/packet", Runs: 3, Min: 50, Max: 70},
		{Name: "datapath.nocode_ns.64.1m", Value: 400, Unit: "ns/packet", Runs: 3, Min: 400, Max: 400},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestFirstPacketResults(t *testing.T) {
	margay := []delays{{first: []float64{110, 220}, established: []float64{10, 20}}, {first: []float64{330}, established: []float64{30}}}
	noCode := []delays{{first: []float64{30, 30}, established: []float64{10, 10}}, {first: []float64{10}, established: []float64{10}}}
	got := map[string]Result{}
	for _, r := range firstPacketResults(margay, noCode) {
		got[r.Name] = r
	}
	want := Result{
		Name: "firstpacket.p50_us", Value: 200, Unit: "us", RatioTo: "firstpacket.nocode_p50_us", Ratio: 10, Runs: 2, Min: 100, Max: 300,
	}
	if got[want.Name] != want {
		t.Errorf("got  %+v\nwant %+v", got[want.Name], want)
	}
	if r := got["firstpacket.nocode_p50_us"]; r.Value != 20 || r.Min != 0 || r.Max != 20 {
		t.Errorf("the baseline's is %+v", r)
	}
	nothing := []delays{{first: []float64{10}, established: []float64{10}}}
	if r := firstPacketResults(margay, nothing)[0]; r.RatioTo != "" || r.Ratio != 0 {
		t.Errorf("a ratio to a baseline that adds nothing: %+v", r)
	}
}
