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
	datapathPackets = 100_000 // in each run
)

// datapathArea compares the throughput of one established flow through Margay's program with that through the kernel's
// own parts. The runs of all systems are interleaved, so that what else the machine does hits them alike.
func datapathArea(ctx context.Context, b *bench) (results []Result, err error) {
	restore, err := prepareNetfilter(1, b.note)
	if err != nil {
		return nil, err
	}
	stage := newStage("dp")
	defer func() { err = errors.Join(err, stage.close(), restore()) }()
	generator, sink, err := instruments(stage)
	if err != nil {
		return nil, err
	}
	margay, unload, err := newMargay(stage, generator, sink)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unload()) }()
	kernel, baseline, err := newNoCode(stage, generator, sink)
	if err != nil {
		return nil, err
	}
	for _, s := range []*ingress{margay, kernel} {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := baseline.checkFlows(1); err != nil {
		return nil, err
	}
	before, behind, err := wire(generator, "direct", sink, "direct")
	if err != nil {
		return nil, err
	}
	direct := &ingress{name: "generator and sink alone", in: behind, before: before, behind: behind}
	samples, err := compare(ctx, generator, []*ingress{margay, kernel, direct})
	if err != nil {
		return nil, err
	}
	if err := baseline.checkFlows(1); err != nil {
		return nil, err
	}
	return datapathResults(samples[0], samples[1], samples[2]), nil
}

// datapathResults makes results of the ns per packet of each run.
func datapathResults(margay, noCode, direct []float64) []Result {
	ratio := median(noCode) / median(margay)
	versus := summary("datapath.ingress_vs_nocode.64", "x", ratio, quotients(noCode, margay))
	versus.RatioTo, versus.Ratio = "datapath.nocode_ns.64", ratio
	return []Result{
		versus,
		summary("datapath.ingress_ns.64", "ns/packet", median(margay), margay),
		summary("datapath.nocode_ns.64", "ns/packet", median(noCode), noCode),
		summary("datapath.direct_ns.64", "ns/packet", median(direct), direct),
	}
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
