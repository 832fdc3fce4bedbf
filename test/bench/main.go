// Bench measures Margay on this machine, beside what one could build from the kernel's own parts in the same run, and
// writes a table and a file of results. docs/benchmarks.md says how each figure comes about and how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// areaTime bounds one area, so that nothing hangs for ever.
const areaTime = 5 * time.Minute

// bench is what an area needs to know of this run.
type bench struct {
	programs string // directory of the daemons
	note     func(format string, args ...any)
}

// area is a group of results, which are named "area.result" and measured together.
type area struct {
	name    string
	measure func(context.Context, *bench) ([]Result, error)
}

var areas = []area{
	{"datapath", datapathArea},
	{"firstpacket", firstPacketArea},
	{"conn", connArea},
}

func main() {
	names := flag.String("areas", "", "areas to measure, separated by commas; the others' results in the file stay; empty: all")
	out := flag.String("out", "bench/results.json", "file of results")
	programs := flag.String("programs", "build/bin", "directory of margay and its daemons")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, *names, *out, *programs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures the chosen areas. An area that fails keeps its earlier results in the file and does not stop the others.
func run(ctx context.Context, names, out, programs string) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("needs root: network namespaces and BPF; run it with sudo")
	}
	file, err := load(out)
	if err != nil {
		return err
	}
	here, err := thisMachine()
	if err != nil {
		return err
	}
	if programs, err = filepath.Abs(programs); err != nil {
		return err
	}
	b := &bench{programs: programs, note: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}}
	if dropped := file.moveTo(here); dropped > 0 {
		b.note("%s has %d results of another machine, which are left out from here on", out, dropped)
	}
	var failed []error
	measured := 0
	for _, a := range chosen {
		if ctx.Err() != nil {
			break
		}
		b.note("measuring %s", a.name)
		results, err := measure(ctx, a, b)
		if err != nil {
			failed = append(failed, fmt.Errorf("area %s: %w", a.name, err))
			continue
		}
		file.merge(a.name, results)
		measured++
	}
	if measured > 0 {
		failed = append(failed, file.save(out), file.print(os.Stdout))
	}
	return errors.Join(failed...)
}

func measure(ctx context.Context, a area, b *bench) ([]Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, areaTime, fmt.Errorf("not done after %s", areaTime))
	defer cancel()
	results, err := a.measure(ctx, b)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return results, err
}

// choose gives the areas of a list of names; all for an empty one.
func choose(names string) ([]area, error) {
	if strings.TrimSpace(names) == "" {
		return areas, nil
	}
	var chosen []area
	for _, name := range strings.Split(names, ",") {
		found := find(strings.TrimSpace(name))
		if found == nil {
			var known []string
			for _, a := range areas {
				known = append(known, a.name)
			}
			return nil, fmt.Errorf("there is no area %q; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, *found)
	}
	return chosen, nil
}

func find(name string) *area {
	for i := range areas {
		if areas[i].name == name {
			return &areas[i]
		}
	}
	return nil
}
