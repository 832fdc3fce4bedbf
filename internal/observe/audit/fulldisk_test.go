package audit

import (
	"context"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/testenv"
)

func limitFiles(t *testing.T, octets uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = min(octets, limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
}

func fullDisk(t *testing.T, path string) {
	signal.Ignore(syscall.SIGXFSZ)
	var logged testenv.Buffer
	l := open(t, path, &logged)
	record := func(n int) {
		for range n {
			l.Record("e", "s", "o", cats.ReasonNone, strings.Repeat("d", 100))
		}
	}
	record(10)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	limitFiles(t, 3000) // in the middle of the next record but one
	record(10)
	testenv.Eventually(t, "the file's limit is felt", func() bool { return testutil.ToFloat64(l.failed) >= 2 })
	if summary, err := Verify(path); err != nil || summary.Records != 10 {
		t.Fatalf("while the disk is full: %+v, %v", summary, err)
	}
	limitFiles(t, 1<<62)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(logged.String(), "cannot be written") || !strings.Contains(logged.String(), "written again") {
		t.Errorf("logged %q", logged.String())
	}
	if n := testutil.ToFloat64(l.written); n != 20 {
		t.Errorf("counted %v records", n)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}

	// A disk that stays full: Close gives up when its context ends, and says what was lost.
	l = open(t, path, io.Discard)
	limitFiles(t, 1)
	record(3)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Close(ctx); err == nil || !strings.Contains(err.Error(), "3 audit records were lost") {
		t.Errorf("Close = %v", err)
	}
	limitFiles(t, 1<<62)
}
