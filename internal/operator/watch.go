package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// incomplete is the error of a view that was shown and lacks something.
type incomplete struct{ error }

// Unwrap gives what it lacks.
func (i incomplete) Unwrap() error { return i.error }

// viewFlags are the flags that every verb of get has.
type viewFlags struct {
	format string
	watch  bool
}

// show shows a view once, or with --watch every second until the context ends.
func (f *viewFlags) show(c *cobra.Command, view func(context.Context, io.Writer) error) error {
	if err := checkFormat(f.format, formatJSON, formatYAML, formatWide); err != nil {
		return err
	}
	if !f.watch {
		return view(c.Context(), c.OutOrStdout())
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	terminal := isTerminal(c.OutOrStdout())
	var lacks error
	for first := true; ; first = false {
		var text bytes.Buffer
		err := view(c.Context(), &text)
		if c.Context().Err() != nil {
			return lacks
		}
		if lacks = err; err != nil && !errors.As(err, new(incomplete)) {
			return err
		}
		if _, err := io.WriteString(c.OutOrStdout(), f.before(first, terminal, time.Now())+text.String()); err != nil {
			return err
		}
		select {
		case <-c.Context().Done():
			return lacks
		case <-again.C:
		}
	}
}

// before is what separates one showing from the one before it: a cleared screen with the time on a terminal, else a line
// that what reads the format takes.
func (f *viewFlags) before(first, terminal bool, now time.Time) string {
	at := now.Format(time.TimeOnly)
	switch {
	case terminal && isDocument(f.format):
		return "\x1b[H\x1b[2J"
	case terminal:
		return fmt.Sprintf("\x1b[H\x1b[2J%s, every second until ctrl-C\n", at)
	case f.format == formatJSON: // documents that follow one another need nothing between them
		return ""
	case f.format == formatYAML:
		return fmt.Sprintf("--- # %s\n", at)
	case first:
		return ""
	}
	return fmt.Sprintf("--- %s\n", at)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
