package sci

import (
	"fmt"
	"math"

	"github.com/margay-net/margay/cats"
)

// Resource is one thing that requests of a service share and that limits how many of them run at once. Capacity, Use and
// Need are in the same unit, which is the caller's: connections, cores, octets of memory.
type Resource struct {
	Name     string
	Capacity float64 // of the whole machine, > 0
	Reserve  float64 // share of Capacity that is kept free, 0..1
	Use      float64 // taken by others than this service, >= 0
	Need     float64 // of one request, >= 0; 0: the service does not need this resource
}

// Check tells, with ReasonRange and the field's name, when a value of r is outside its range or not a finite number.
func (r Resource) Check() error {
	for _, f := range []struct {
		name             string
		value, low, high float64
	}{
		{"capacity", r.Capacity, 0, math.MaxFloat64},
		{"reserve", r.Reserve, 0, 1},
		{"use", r.Use, 0, math.MaxFloat64},
		{"need", r.Need, 0, math.MaxFloat64},
	} {
		if !(f.value >= f.low && f.value <= f.high) { // also true of NaN
			return fmt.Errorf("resource %q: %s %v is outside %v to %v: %w", r.Name, f.name, f.value, f.low, f.high, cats.ReasonRange)
		}
	}
	return nil
}

// Slots gives how many requests of one service the resources carry at once: the least over the needed resources of
// floor(max(0, capacity*(1-reserve) - use) / need), and never more than limit. Without any needed resource it is limit.
func Slots(resources []Resource, limit uint32) uint32 {
	slots := float64(limit)
	for _, r := range resources {
		if r.Need <= 0 {
			continue
		}
		slots = min(slots, floor(max(0, r.Capacity*(1-r.Reserve)-r.Use)/r.Need))
	}
	return uint32(slots)
}

// Weighted gives the slots to report for an instance of health h: all when HEALTHY, the share degraded (0..1) when
// DEGRADED, none otherwise. Health is weighed here, at the SCI, and nowhere else.
func Weighted(slots uint32, h cats.Health, degraded float64) uint32 {
	switch h {
	case cats.Healthy:
		return slots
	case cats.Degraded:
		return uint32(floor(float64(slots) * degraded))
	}
	return 0
}

// floor rounds down, but takes a value that only binary fractions keep below an integer as that integer: a capacity of
// 100 with a reserve of 0.07 leaves 93, not 92.
func floor(v float64) float64 { return math.Floor(v * (1 + 1e-12)) }
