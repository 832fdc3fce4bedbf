package main

import (
	"math"
	"slices"
)

// median gives the middle of values, or the mean of the two in the middle.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// percentile gives the smallest of values that at least p percent are not above (nearest rank).
func percentile(values []float64, p float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[max(0, int(math.Ceil(p/100*float64(len(s))))-1)]
}

// quotients gives a[i]/b[i].
func quotients(a, b []float64) []float64 {
	q := make([]float64, len(a))
	for i := range a {
		q[i] = a[i] / b[i]
	}
	return q
}

// summary is a Result of the value and the spread of its runs.
func summary(name, unit string, value float64, runs []float64) Result {
	return Result{Name: name, Value: value, Unit: unit, Runs: len(runs), Min: slices.Min(runs), Max: slices.Max(runs)}
}
