package cats_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/margay-net/margay/cats"
)

func TestReasonOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want cats.Reason
	}{
		{nil, cats.ReasonNone},
		{errors.New("plain"), cats.ReasonNone},
		{cats.ReasonNoPath, cats.ReasonNoPath},
		{fmt.Errorf("from a to b: %w", fmt.Errorf("deeper: %w", cats.ReasonRange)), cats.ReasonRange},
		{errors.Join(errors.New("plain"), cats.ReasonOverload), cats.ReasonOverload},
	} {
		if got := cats.ReasonOf(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

func TestParseReason(t *testing.T) {
	for _, r := range cats.Reasons() {
		if got, err := cats.ParseReason(r.String()); err != nil || got != r {
			t.Errorf("%s reads as %s, %v", r, got, err)
		}
	}
	if r, err := cats.ParseReason("bad-weather"); err == nil {
		t.Errorf("a reason that is not in the list reads as %s", r)
	}
}
