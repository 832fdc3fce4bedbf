// Command cmd plays new seeds of the simulation and ends with their count and rate.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/margay-net/margay/internal/simulation"
)

func main() {
	first := flag.Uint64("first", uint64(time.Now().UnixNano()), "first seed; later ones follow it")
	seeds := flag.Uint64("seeds", 1000, "how many")
	trace := flag.Bool("trace", false, "write what happens in each run")
	flag.Parse()
	began, failed := time.Now(), 0
	for seed := *first; seed < *first+*seeds; seed++ {
		out := io.Discard
		if *trace {
			out = os.Stdout
		}
		if _, err := simulation.Trace(seed, out); err != nil {
			fmt.Println(err)
			failed++
		}
	}
	took := time.Since(began)
	fmt.Printf("simulate: seeds %d to %d: %d runs, %d failed, %.0f an hour\n", *first, *first+*seeds-1, *seeds, failed, float64(*seeds)/took.Hours())
	if failed > 0 {
		os.Exit(1)
	}
}
