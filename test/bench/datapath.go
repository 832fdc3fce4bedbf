package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab/namespace"
)

// How much the area datapath measures.
const (
	datapathPairs   = 20      // runs of each system, in turn
	datapathPackets = 200_000 // in each run
)

// crowd is a number of established flows.
type crowd struct {
	name   string
	flows  int
	noCode bool // whether the kernel's own parts are measured too
}

var crowds = []crowd{{"1", 1, true}, {"10k", 10_000, true}, {"1m", 1_000_000, true}, {"4m", 4_000_000, false}}

// datapathArea compares the throughput of established flows through Margay's program with that through the kernel's own
// parts, and through programs that do less than an ingress must. The runs of all systems are interleaved, so that what
// else the machine does hits them alike.
func datapathArea(ctx context.Context, b *bench) (results []Result, err error) {
	most := 0
	for _, l := range crowds {
		if l.noCode {
			most = max(most, l.flows)
		}
	}
	restore, err := prepareNetfilter(most, b.note)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	for _, l := range crowds {
		some, err := l.measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s flows: %w", l.name, err)
		}
		results = append(results, some...)
	}
	return results, nil
}

// measure compares all systems with a number of flows.
func (l crowd) measure(ctx context.Context) (results []Result, err error) {
	stage := newStage("dp")
	defer func() { err = errors.Join(err, stage.close()) }()
	generator, sink, err := instruments(stage)
	if err != nil {
		return nil, err
	}
	margay, unload, err := newMargay(stage, l.flows, generator, sink)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unload()) }()
	if err := margay.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", margay.name, err)
	}
	redirect, err := newRedirect(stage, generator, sink)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, redirect.close()) }()
	probe, err := newProbe(stage, linesOf(tableOf(l.flows)), generator, sink)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, probe.close()) }()
	before, behind, err := wire(generator, "direct", sink, "direct")
	if err != nil {
		return nil, err
	}
	direct := &ingress{name: "generator and sink alone", in: behind, before: before, behind: behind}
	systems := []*ingress{margay, redirect.ingress, probe.ingress, direct}
	for _, s := range systems {
		s.flows = l.flows
	}
	if !l.noCode {
		samples, err := compare(ctx, generator, systems)
		if err != nil {
			return nil, err
		}
		return datapathResults(l.name, samples), nil
	}
	kernel, baseline, err := newNoCode(stage, l.flows, generator, sink)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(kernel.check(), kernel.meetAll(generator)); err != nil {
		return nil, fmt.Errorf("%s: %w", kernel.name, err)
	}
	if err := baseline.checkFlows(l.flows); err != nil {
		return nil, err
	}
	samples, err := compare(ctx, generator, append(systems, kernel))
	if err != nil {
		return nil, err
	}
	return datapathResults(l.name, samples), baseline.checkFlows(l.flows)
}

// meetAll sends a packet of each flow, so that all are established.
func (i *ingress) meetAll(generator *namespace.Namespace) (err error) {
	l, err := i.loop()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	return generator.Do(func() error {
		for left := i.flows; left > 0; left -= datapathPackets {
			if err := l.runInTurn(uint64(min(left, datapathPackets))); err != nil {
				return err
			}
		}
		return nil
	})
}

// datapathResults makes results of the ns per packet of each run of Margay, the redirect, the probe, generator and sink
// alone, and, where it was measured, the no-code baseline.
func datapathResults(flows string, samples [][]float64) []Result {
	name := func(what string) string { return "datapath." + what + ".64." + flows }
	margay := samples[0]
	results := []Result{
		ratio(name("ingress_vs_redirect"), name("redirect_ns"), margay, samples[1]),
		ratio(name("ingress_vs_probe"), name("probe_ns"), margay, samples[2]),
	}
	if len(samples) > 4 {
		results = append(results, ratio(name("ingress_vs_nocode"), name("nocode_ns"), samples[4], margay))
	}
	if flows == "1" { // the comparison with one flow also has the short name
		short := results[len(results)-1]
		short.Name = "datapath.ingress_vs_nocode.64"
		results = append(results, short)
	}
	for i, what := range []string{"ingress_ns", "redirect_ns", "probe_ns", "direct_ns", "nocode_ns"}[:len(samples)] {
		results = append(results, summary(name(what), "ns/packet", median(samples[i]), samples[i]))
	}
	return results
}

// ratio is a result that compares the medians of two systems' runs; its spread is that of the pairs.
func ratio(name, to string, a, b []float64) Result {
	r := summary(name, "x", median(a)/median(b), quotients(a, b))
	r.RatioTo, r.Ratio = to, r.Value
	return r
}

// compare runs all systems in turn, and gives the ns per packet of each run of each. The order turns round from one
// turn to the next, so that none always comes first.
func compare(ctx context.Context, generator *namespace.Namespace, systems []*ingress) (samples [][]float64, err error) {
	loops := make([]*loop, len(systems))
	defer func() {
		for _, l := range loops {
			if l != nil {
				err = errors.Join(err, l.close())
			}
		}
	}()
	for i, s := range systems {
		if loops[i], err = s.loop(); err != nil {
			return nil, err
		}
	}
	samples = make([][]float64, len(systems))
	err = generator.Do(func() error {
		if err := pin(); err != nil {
			return err
		}
		for turn := range datapathPairs + 1 {
			for place := range systems {
				i := place
				if turn%2 == 1 {
					i = len(systems) - 1 - place
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				took, err := loops[i].run(datapathPackets)
				if err != nil {
					return fmt.Errorf("%s: %w", systems[i].name, err)
				}
				if turn > 0 { // the first is to warm up
					samples[i] = append(samples[i], float64(took)/float64(time.Nanosecond)/datapathPackets)
				}
			}
		}
		return nil
	})
	return samples, err
}

// pin keeps this thread, and with it the kernel's work on what it sends, on the last CPU.
func pin() error {
	var set unix.CPUSet
	set.Set(runtime.NumCPU() - 1)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning to the last CPU: %w", err)
	}
	return nil
}
