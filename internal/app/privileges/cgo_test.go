//go:build cgo

package privileges

import (
	_ "runtime/cgo" // as in any program that uses cgo
	"strings"
	"testing"

	"github.com/margay-net/margay/internal/testenv"
)

// In a program that was built with cgo, Reduce says so and nothing changes.
func TestWithCgo(t *testing.T) {
	testenv.RequireRoot(t)
	out := run(t, "tell", nil)
	if !strings.Contains(out, "error: "+ErrCgo.Error()) || !strings.Contains(out, "is ErrCgo: true") {
		t.Errorf("got %s", out)
	}
	if !strings.Contains(out, "thread: ") || strings.Contains(out, "CapEff= ") || strings.Contains(out, "NoNewPrivs=1") {
		t.Errorf("the refused reduction changed something: %s", out)
	}
}
