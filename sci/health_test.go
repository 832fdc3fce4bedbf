package sci

import (
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

// TestTracker plays checks, one a second: + good, - failed, . none; and compares the health after each.
func TestTracker(t *testing.T) {
	letters := map[byte]cats.Health{'?': cats.HealthUnknown, 'H': cats.Healthy, 'D': cats.Degraded, 'U': cats.Unhealthy}
	for _, test := range []struct{ name, checks, healths string }{
		{"healthy after two good checks", "++", "?H"},
		{"two good checks in a row", "+-+-+-", "??????"},
		{"unhealthy after three failed checks", "---", "??U"},
		{"two failed checks are forgiven", "++--+--+", "?HHHHHHH"},
		{"from healthy to unhealthy", "++---", "?HHHU"},
		{"stays unhealthy until two good checks in a row", "---+-++", "??UUUUD"},
		{"degraded needs five good checks more", "---+++++++", "??UUDDDDDH"},
		{"a failed check starts the count anew", "---++++++-+++++", "??UUDDDDDDDDDDH"},
		{"degraded falls back after three failed checks", "---++---", "??UUDDDU"},
		{"silence makes it unknown", "++...", "?HHH?"},
		{"failures before a silence do not count after it", "++--...-", "?HHHHH??"},
		{"known again", "++...++", "?HHH??H"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tracker := Tracker{Rules: DefaultRules, Interval: time.Second}
			now := cats.Instant(1e18)
			var got strings.Builder
			for i, check := range []byte(test.checks) {
				now = now.Add(time.Second)
				tracker.Age(now)
				if check != '.' {
					before := tracker.Health()
					if changed := tracker.Observe(now, check == '+'); changed != (before != tracker.Health()) {
						t.Errorf("check %d: Observe says %v of %v to %v", i, changed, before, tracker.Health())
					}
				}
				for letter, health := range letters {
					if health == tracker.Health() {
						got.WriteByte(letter)
					}
				}
			}
			if got.String() != test.healths {
				t.Errorf("checks  %s\nhealths %s\nwant    %s", test.checks, &got, test.healths)
			}
		})
	}
}
