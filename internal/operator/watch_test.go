package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestWatch(t *testing.T) {
	show := func(t *testing.T, f viewFlags, view func(n int, w io.Writer) error) (string, error) {
		t.Helper()
		f.watch = true
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		c := &cobra.Command{}
		c.SetContext(ctx)
		c.SetOut(&out)
		n := 0
		err := f.show(c, func(_ context.Context, w io.Writer) error {
			if n++; n == 3 {
				cancel()
				return ctx.Err()
			}
			return view(n, w)
		})
		return out.String(), err
	}
	say := func(n int, w io.Writer) error {
		_, err := fmt.Fprintf(w, "view %d\n", n)
		return err
	}
	t.Run("a line between two showings", func(t *testing.T) {
		out, err := show(t, viewFlags{}, say)
		lines := strings.Split(out, "\n")
		if err != nil || len(lines) != 4 || lines[0] != "view 1" || !strings.HasPrefix(lines[1], "--- ") || lines[2] != "view 2" {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("documents of YAML are separated", func(t *testing.T) {
		if out, err := show(t, viewFlags{format: formatYAML}, say); err != nil || !strings.HasPrefix(out, "--- # ") || strings.Count(out, "\n--- # ") != 1 {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("documents of JSON follow one another", func(t *testing.T) {
		if out, err := show(t, viewFlags{format: formatJSON}, say); err != nil || out != "view 1\nview 2\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("what lacks something goes on, and is an error in the end", func(t *testing.T) {
		out, err := show(t, viewFlags{}, func(n int, w io.Writer) error { return errors.Join(say(n, w), incomplete{errors.New("EF-2 is away")}) })
		if err == nil || err.Error() != "EF-2 is away" || !strings.Contains(out, "view 2") {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("a failure ends it", func(t *testing.T) {
		failure := errors.New("the C-PS is away")
		if out, err := show(t, viewFlags{}, func(int, io.Writer) error { return failure }); !errors.Is(err, failure) || out != "" {
			t.Errorf("%q, %v", out, err)
		}
	})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, got := range map[string]string{
		"\x1b[H\x1b[2J03:04:05, every second until ctrl-C\n": (&viewFlags{}).before(true, true, at),
		"\x1b[H\x1b[2J":  (&viewFlags{format: formatJSON}).before(false, true, at),
		"--- 03:04:05\n": (&viewFlags{format: formatWide}).before(false, false, at),
		"":               (&viewFlags{}).before(true, false, at),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
