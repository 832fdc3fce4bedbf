package operator

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// constraintFlags are the constraints of a request that explain and request share.
type constraintFlags struct {
	maxDelay, maxRealDelay, maxComputing time.Duration
	minSlots                             uint32
}

func (f *constraintFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.maxDelay, "max-delay", 0, "hard bound on the one-way network delay, such as 20ms")
	flags.DurationVar(&f.maxRealDelay, "max-real-delay", 0, "hard bound on computing time plus network delay")
	flags.DurationVar(&f.maxComputing, "max-computing-time", 0, "hard bound on the computing time, whole milliseconds")
	flags.Uint32Var(&f.minSlots, "min-slots", 0, "hard bound on the free slots")
}

// bounds gives the bounds whose flags were set.
func (f *constraintFlags) bounds(flags *pflag.FlagSet) (cats.Bounds, error) {
	var b cats.Bounds
	for _, d := range []struct {
		name  string
		value time.Duration
		unit  time.Duration
		to    *cats.Optional[uint32]
	}{
		{"max-delay", f.maxDelay, time.Microsecond, &b.MaxDelayUS},
		{"max-real-delay", f.maxRealDelay, time.Microsecond, &b.MaxRealDelayUS},
		{"max-computing-time", f.maxComputing, time.Millisecond, &b.MaxComputingTimeMS},
	} {
		if !flags.Changed(d.name) {
			continue
		}
		if d.value < 0 || d.value%d.unit != 0 || d.value/d.unit > 1<<32-1 {
			return b, fmt.Errorf("--%s %s: need a whole number of %s, 0 to %d", d.name, d.value, d.unit, uint32(1<<32-1))
		}
		*d.to = cats.Some(uint32(d.value / d.unit))
	}
	if flags.Changed("min-slots") {
		b.MinSlots = cats.Some(f.minSlots)
	}
	return b, nil
}

func constraintMessage(hard cats.Bounds) *api.Constraints {
	if hard == (cats.Bounds{}) {
		return nil
	}
	optional := func(o cats.Optional[uint32]) *uint32 {
		if !o.Present {
			return nil
		}
		return &o.Value
	}
	return &api.Constraints{Hard: &api.Bounds{
		MaxDelayUs: optional(hard.MaxDelayUS), MaxRealDelayUs: optional(hard.MaxRealDelayUS),
		MaxComputingTimeMs: optional(hard.MaxComputingTimeMS), MinSlots: optional(hard.MinSlots),
	}}
}
