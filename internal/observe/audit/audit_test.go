package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/margay-net/margay/cats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string, logged io.Writer) *Log {
	t.Helper()
	return openRotated(t, unrotated(path), logged)
}

// unrotated are options of a log that no test fills.
func unrotated(path string) Options { return Options{File: path, MaxSize: 1 << 40, Keep: 1} }

func openRotated(t *testing.T, options Options, logged io.Writer) *Log {
	t.Helper()
	l, err := Open(options, slog.New(slog.NewTextHandler(logged, nil)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closed(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// written makes a log of n records.
func written(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit", "x.audit")
	l := open(t, path, io.Discard)
	for i := range n {
		l.Record("call-refused", fmt.Sprintf("peer %d", i), "method", cats.ReasonUnauthorized, "why")
	}
	closed(t, l)
	return path
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

func rewrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRecords(t *testing.T) {
	before := time.Now().UTC()
	path := written(t, 3)
	summary, err := Verify(path)
	if err != nil || summary != (Summary{Files: 1, Records: 3}) {
		t.Fatalf("Verify = %+v, %v", summary, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if directory, err := os.Stat(filepath.Dir(path)); err != nil || directory.Mode() != fs.ModeDir|0o700 {
		t.Errorf("directory's mode %v, %v; want 0700", directory.Mode(), err)
	}
	for i, line := range lines(t, path) {
		var fields map[string]string
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339Nano, fields["time"])
		if err != nil || at.Before(before) || at.After(time.Now()) {
			t.Errorf("time %q, %v", fields["time"], err)
		}
		if fields["subject"] != fmt.Sprintf("peer %d", i) || fields["event"] != "call-refused" || fields["object"] != "method" || fields["reason"] != "unauthorized" || fields["detail"] != "why" || len(fields["previous"]) != 64 {
			t.Errorf("record %d is %s", i, line)
		}
	}
}

func TestGoesOnAfterReopening(t *testing.T) {
	path := written(t, 2)
	l := open(t, path, io.Discard)
	l.Record("again", "a", "b", cats.ReasonNone, "")
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	// On disk before Close, where another process can read it.
	if summary, err := Verify(path); err != nil || summary.Records != 3 {
		t.Errorf("after Flush: %+v, %v", summary, err)
	}
	closed(t, l)
	if got := lines(t, path); len(got) != 3 || !strings.Contains(got[2], `"reason":"none"`) {
		t.Errorf("lines %q", got)
	}
}

func TestTampering(t *testing.T) {
	good := lines(t, written(t, 6))
	text := func(l []string) string { return strings.Join(l, "\n") + "\n" }
	change := func(f func(l []string) []string) string { return text(f(append([]string(nil), good...))) }
	// A forger who knows the format, and chains a false record to what stands before it.
	forged := strings.Replace(good[2], "peer 2", "nobody", 1)
	for what, c := range map[string]struct{ content, want string }{
		"a changed text":         {change(func(l []string) []string { l[2] = forged; return l }), "line 4 does not follow"},
		"a changed reason":       {change(func(l []string) []string { l[0] = strings.Replace(l[0], "unauthorized", "none", 1); return l }), "line 2 does not follow"},
		"a removed line":         {change(func(l []string) []string { return append(l[:3], l[4:]...) }), "line 4 does not follow"},
		"a removed first line":   {change(func(l []string) []string { return l[1:] }), "line 1 does not follow"},
		"two lines swapped":      {change(func(l []string) []string { l[2], l[3] = l[3], l[2]; return l }), "line 3 does not follow"},
		"a line put in":          {change(func(l []string) []string { return append(l[:3:3], append([]string{forged}, l[3:]...)...) }), "line 4 does not follow"},
		"a repeated line":        {change(func(l []string) []string { return append(l[:3:3], append([]string{l[2]}, l[3:]...)...) }), "line 4 does not follow"},
		"no record in between":   {change(func(l []string) []string { l[2] = "nothing to see"; return l }), "line 3: not an audit record"},
		"an empty line":          {change(func(l []string) []string { l[2] = ""; return l }), "line 3: not an audit record"},
		"a cut line in between":  {change(func(l []string) []string { l[2] = l[2][:30]; return l }), "line 3: not an audit record"},
		"an unknown field":       {change(func(l []string) []string { l[2] = strings.Replace(l[2], "{", `{"x":1,`, 1); return l }), "line 3: not an audit record"},
		"a cut line at the end":  {change(func(l []string) []string { l[5] = l[5][:30]; return l }), "line 6: not an audit record"},
		"another file's records": {text(good) + text(lines(t, written(t, 1))), "line 7 does not follow"},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			rewrite(t, path, c.content)
			if summary, err := Verify(path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("Verify = %+v, %v; want an error with %q", summary, err, c.want)
			}
			if what == "a cut line at the end" {
				return // Open takes it for torn, and marks it: see below
			}
			if _, err := Open(unrotated(path), slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "was tampered with") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open = %v", err)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != c.content {
				t.Errorf("the refused log was touched")
			}
		})
	}
}

// A crash may leave any prefix of what was being written: the last line, or the marker that follows it.
func TestTornAtEveryOctet(t *testing.T) {
	whole, err := os.ReadFile(written(t, 3))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x")
	second := bytes.IndexByte(whole, '\n') + 1
	for cut := 0; cut <= len(whole); cut++ {
		if cut > 200 && cut < second { // the middle of a line is the middle of a line
			continue
		}
		rewrite(t, path, string(whole[:cut]))
		onlyNewlineMissing := cut > 0 && cut < len(whole) && whole[cut] == '\n'
		torn := cut > 0 && whole[cut-1] != '\n' && !onlyNewlineMissing
		if summary, err := Verify(path); err != nil || (summary.Pending > 0) != (torn || onlyNewlineMissing) {
			t.Fatalf("cut at %d, before: %+v, %v", cut, summary, err)
		}
		var logged bytes.Buffer
		l := open(t, path, &logged)
		l.Record("after", "a", "b", cats.ReasonNone, "")
		closed(t, l)
		records := int64(bytes.Count(whole[:cut], []byte("\n"))) + 1
		want := Summary{Files: 1, Records: records}
		if torn {
			want = Summary{Files: 1, Records: records + 1, Torn: 1}
		} else if onlyNewlineMissing {
			want.Records++
		}
		if summary, err := Verify(path); err != nil || summary != want {
			t.Fatalf("cut at %d: %+v, %v; want %+v", cut, summary, err, want)
		}
		if reported := strings.Contains(logged.String(), "cut short by a crash"); reported != torn {
			t.Fatalf("cut at %d: torn %v, reported %v", cut, torn, reported)
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(data, whole[:cut]) {
			t.Fatalf("cut at %d: what was there was changed", cut)
		}
	}
}

func TestTornAgainWhileTheMarkerIsWritten(t *testing.T) {
	path := written(t, 2)
	whole := strings.Join(lines(t, path), "\n") + "\n"
	rewrite(t, path, whole+`{"time":"20`+"\n"+`{"time":"2026-`)
	closed(t, open(t, path, io.Discard))
	if summary, err := Verify(path); err != nil || summary != (Summary{Files: 1, Records: 3, Torn: 2}) {
		t.Fatalf("%+v, %v", summary, err)
	}
	// What was torn is part of the chain too.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, path, strings.Replace(string(data), `{"time":"20`+"\n", `{"time":"21`+"\n", 1))
	if _, err := Verify(path); err == nil || !strings.Contains(err.Error(), "line 5 does not follow") {
		t.Errorf("a changed torn line: %v", err)
	}
}

// Open reads only the end of a large log, Verify all of it.
func TestLargeLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	l := open(t, path, io.Discard)
	long := strings.Repeat("long ", 400)
	for range 2 * tailLength / len(long) {
		l.Record("e", "s", "o", cats.ReasonNone, long)
	}
	closed(t, l)
	l = open(t, path, io.Discard)
	l.Record("e", "s", "o", cats.ReasonNone, "")
	closed(t, l)
	summary, err := Verify(path)
	if err != nil || summary.Records != int64(2*tailLength/len(long))+1 {
		t.Fatalf("%+v, %v", summary, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Replace(data, []byte("long long"), []byte("LONG long"), 1)
	rewrite(t, path, string(broken))
	if _, err := Verify(path); err == nil {
		t.Error("Verify took a changed first line")
	}
	rewrite(t, path, string(data[:len(data)/2])+strings.Repeat("x", 2*tailLength))
	if _, err := Open(unrotated(path), slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err == nil {
		t.Error("Open took a log whose end holds no record")
	}
}

func TestLongAndStrangeTexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	l := open(t, path, io.Discard)
	for _, s := range []string{strings.Repeat("\x00", 100_000), "line\nbreak", "\xff\xfe", `"quotes"`, "\u2028"} {
		l.Record(s+"e", s, s, cats.ReasonNone, s)
	}
	closed(t, l)
	if summary, err := Verify(path); err != nil || summary.Records != 5 {
		t.Errorf("%+v, %v", summary, err)
	}
	closed(t, open(t, path, io.Discard))
}

func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	l := open(t, path, io.Discard)
	var writers sync.WaitGroup
	const each = 2 * queueLength / 4 // together more than the queue holds
	for w := range 8 {
		writers.Go(func() {
			for i := range each {
				l.Record("e", fmt.Sprint(w), fmt.Sprint(i), cats.ReasonNone, "")
			}
		})
	}
	writers.Wait()
	closed(t, l)
	if summary, err := Verify(path); err != nil || summary.Records != 8*each {
		t.Errorf("%+v, %v; want %d records", summary, err, 8*each)
	}
	// Each writer's records are there once and in order.
	next := map[string]int{}
	for _, line := range lines(t, path) {
		record, err := decode([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if record.Object != fmt.Sprint(next[record.Subject]) {
			t.Fatalf("writer %s: record %s, want %d", record.Subject, record.Object, next[record.Subject])
		}
		next[record.Subject]++
	}
}

func TestOneProcessOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	l := open(t, path, io.Discard)
	if _, err := Open(unrotated(path), slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "another process writes it") {
		t.Errorf("second Open = %v", err)
	}
	closed(t, l)
	closed(t, open(t, path, io.Discard))
}

func TestAfterClose(t *testing.T) {
	var logged bytes.Buffer
	l := open(t, filepath.Join(t.TempDir(), "x"), &logged)
	closed(t, l)
	l.Record("late", "a", "b", cats.ReasonNone, "")
	if !strings.Contains(logged.String(), "audit record after the audit log was closed") || !strings.Contains(logged.String(), "late") {
		t.Errorf("the late record went nowhere: %q", logged.String())
	}
	if err := l.Flush(); !errors.Is(err, ErrClosed) {
		t.Errorf("Flush = %v", err)
	}
	if err := l.Close(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close = %v", err)
	}
}

// The file may not grow beyond a limit (as on a full disk) in the process that this test starts; records wait, and are
// written once the limit is lifted.
func TestFullDisk(t *testing.T) {
	if path := os.Getenv("AUDIT_TEST_FULL_DISK"); path != "" {
		fullDisk(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "x")
	command := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	command.Env = append(os.Environ(), "AUDIT_TEST_FULL_DISK="+path)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	summary, err := Verify(path)
	if err != nil || summary != (Summary{Files: 1, Records: 20}) {
		t.Errorf("%+v, %v", summary, err)
	}
}
