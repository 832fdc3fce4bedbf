package sci

import (
	"errors"
	"math"
	"testing"

	"github.com/margay-net/margay/cats"
	"pgregory.net/rapid"
)

func TestSlots(t *testing.T) {
	concurrency := Resource{Name: "concurrency", Capacity: 200, Reserve: 0.1, Need: 1}
	for _, test := range []struct {
		name      string
		resources []Resource
		limit     uint32
		want      uint32
	}{
		{"capacity less the reserve", []Resource{concurrency}, NoLimit, 180},
		{"the administrator's limit", []Resource{concurrency}, 100, 100},
		{"a limit of none", []Resource{concurrency}, 0, 0},
		{"the scarcest resource", []Resource{concurrency, {Name: "memory", Capacity: 64, Need: 0.5}}, NoLimit, 128},
		{"use by others", []Resource{{Capacity: 8, Reserve: 0.25, Use: 2, Need: 1.5}}, NoLimit, 2},
		{"more in use than there is", []Resource{{Capacity: 8, Use: 9, Need: 1}}, NoLimit, 0},
		{"a resource that is not needed", []Resource{{Capacity: 0, Need: 0}}, 7, 7},
		{"an integer that binary fractions miss", []Resource{{Capacity: 100, Reserve: 0.07, Need: 1}}, NoLimit, 93},
		{"beyond uint32", []Resource{{Capacity: 1e300, Need: 1}}, NoLimit, math.MaxUint32},
		{"a need so small that the division overflows", []Resource{{Capacity: math.MaxFloat64, Need: 0.5}}, 12, 12},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Slots(test.resources, test.limit); got != test.want {
				t.Errorf("%d slots, want %d", got, test.want)
			}
		})
	}
}

func TestSlotsFitTheResources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Resource{
			Capacity: rapid.Float64Range(0, 1e6).Draw(t, "capacity"), Reserve: rapid.Float64Range(0, 1).Draw(t, "reserve"),
			Use: rapid.Float64Range(0, 1e6).Draw(t, "use"), Need: rapid.Float64Range(0.01, 1e4).Draw(t, "need"),
		}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		free := r.Capacity*(1-r.Reserve) - r.Use
		n := float64(Slots([]Resource{r}, NoLimit))
		if n > 0 && n*r.Need > free*(1+1e-9) {
			t.Fatalf("%v slots of %v do not fit into %v", n, r.Need, free)
		}
		if (n+1)*r.Need < free {
			t.Fatalf("one more than %v slots of %v would fit into %v", n, r.Need, free)
		}
		worse := r
		worse.Use += rapid.Float64Range(0, 1e6).Draw(t, "more use")
		if m := float64(Slots([]Resource{worse}, NoLimit)); m > n {
			t.Fatalf("more use gave more slots: %v, then %v", n, m)
		}
	})
}

func TestWeighted(t *testing.T) {
	for health, want := range map[cats.Health]uint32{cats.Healthy: 181, cats.Degraded: 90, cats.Unhealthy: 0, cats.HealthUnknown: 0} {
		if got := Weighted(181, health, 0.5); got != want {
			t.Errorf("%v: %d slots, want %d", health, got, want)
		}
	}
}

func TestResourceCheck(t *testing.T) {
	for _, r := range []Resource{
		{Capacity: -1, Need: 1}, {Capacity: math.NaN(), Need: 1}, {Capacity: math.Inf(1), Need: 1},
		{Capacity: 1, Reserve: 1.1, Need: 1}, {Capacity: 1, Reserve: -0.1, Need: 1}, {Capacity: 1, Reserve: math.NaN(), Need: 1},
		{Capacity: 1, Use: -1, Need: 1}, {Capacity: 1, Need: -1}, {Capacity: 1, Need: math.Inf(1)},
	} {
		if err := r.Check(); !errors.Is(err, cats.ReasonRange) {
			t.Errorf("%+v: %v, want reason range", r, err)
		}
	}
}
