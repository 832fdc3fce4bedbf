package simulation

import (
	"testing"
)

// The seeds that every run of the tests plays; `make simulate` plays new ones.
const testSeeds = 1000

func TestSimulation(t *testing.T) {
	var total Result
	for seed := uint64(1); seed <= testSeeds; seed++ {
		r, err := Run(seed)
		if err != nil {
			t.Errorf("%v (replay: go run ./internal/simulation/cmd -first %d -seeds 1)", err, seed)
			continue
		}
		total.Steps += r.Steps
		total.Admitted += r.Admitted
		total.Local += r.Local
		total.Committed += r.Committed
		total.Refused += r.Refused
		total.Lost += r.Lost
		total.Crashes += r.Crashes
	}
	t.Logf("%d seeds: %+v", testSeeds, total)
	if total.Committed == 0 || total.Refused == 0 || total.Crashes == 0 || total.Lost == 0 ||
		total.Local == 0 || total.Local == total.Admitted {
		t.Errorf("an idle simulation proves nothing: %+v", total)
	}
}

func TestASeedReplaysExactly(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		first, firstErr := Run(seed)
		second, secondErr := Run(seed)
		if first != second || (firstErr == nil) != (secondErr == nil) {
			t.Errorf("seed %d gave %+v, %v and then %+v, %v", seed, first, firstErr, second, secondErr)
		}
	}
}
