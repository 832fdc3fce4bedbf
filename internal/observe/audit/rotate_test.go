package audit

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/testenv"
)

// small makes a file of about ten records of fill.
func small(path string) Options { return Options{File: path, MaxSize: 2000, Keep: 3} }

func fill(t *testing.T, l *Log, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		l.Record("e", fmt.Sprint("subject ", i), "o", cats.ReasonNone, "")
		if err := l.Flush(); err != nil { // a batch each
			t.Fatal(err)
		}
	}
}

// files lists the log's directory.
func files(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// subjects gives the subjects of all records of fill, in the order of the files.
func subjects(t *testing.T, path string) (all []string) {
	t.Helper()
	older, err := rotated(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range append(older, struct {
		path   string
		serial uint64
	}{path: path}) {
		for _, line := range lines(t, o.path) {
			record, err := decode([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			if record.Event == "e" {
				all = append(all, record.Subject)
			}
		}
	}
	return all
}

func verified(t *testing.T, path string) Summary {
	t.Helper()
	summary, err := Verify(path)
	if err != nil {
		t.Fatal(err)
	}
	return summary
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.audit")
	l := openRotated(t, small(path), io.Discard)
	fill(t, l, 0, 25)
	closed(t, l)
	if got, want := files(t, path), []string{"x.audit", "x.audit.00000001", "x.audit.00000002"}; !slices.Equal(got, want) {
		t.Fatalf("files %q, want %q", got, want)
	}
	for _, name := range files(t, path) {
		info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
		if err != nil || info.Mode() != 0o600 || info.Size() > 2000 {
			t.Errorf("%s: mode %v, %d octets, %v", name, info.Mode(), info.Size(), err)
		}
	}
	if s := verified(t, path); s.Files != 3 || s.Records != 25+2 || s.Before != "" {
		t.Errorf("%+v", s)
	}
	if got := subjects(t, path); len(got) != 25 || got[0] != "subject 0" || got[24] != "subject 24" {
		t.Errorf("records %q", got)
	}

	// It goes on after a restart, and no more files are kept than asked for.
	l = openRotated(t, small(path), io.Discard)
	fill(t, l, 25, 80)
	closed(t, l)
	names := files(t, path)
	if len(names) != 4 || names[1] < "x.audit.00000004" {
		t.Errorf("files %q, want the current one and the three before it", names)
	}
	s := verified(t, path)
	older, err := rotated(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Base(rotatedName(path, older[0].serial-1)); s.Files != 4 || s.Before != want {
		t.Errorf("%+v, want what was before to be %s", s, want)
	}
	if got := subjects(t, path); got[len(got)-1] != "subject 79" {
		t.Errorf("the last record is %q", got[len(got)-1])
	}
	// A rotated file by itself.
	if s := verified(t, older[1].path); s.Files != 1 || s.Before != filepath.Base(older[0].path) {
		t.Errorf("%+v", s)
	}
	// A change of its size takes effect with the next record.
	l = openRotated(t, Options{File: path, MaxSize: 1, Keep: 1}, io.Discard)
	fill(t, l, 80, 82)
	closed(t, l)
	if s := verified(t, path); s.Files != 2 {
		t.Errorf("%+v", s)
	}
}

func TestTamperingWithRotatedFiles(t *testing.T) {
	change := func(path string, f func(string) string) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rewrite(t, path, f(string(data)))
	}
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	for name, c := range map[string]struct {
		spoil      func(path string)
		want, file string // of the error of Verify
		opens      bool   // what is too far back for Open, which reads the end alone
	}{
		"a changed record in an older file": {func(p string) { change(p+".00000001", replace("subject 2", "nobody!!!")) }, "line 4 does not follow", ".00000001", true},
		"the last record of an older file": {func(p string) {
			change(p+".00000002", func(s string) string { return s[:strings.LastIndex(s[:len(s)-1], "\n")+1] })
		}, "line 1 does not follow: it goes on from x.audit.00000002", "", false},
		"an older file's end":                   {func(p string) { change(p+".00000002", func(s string) string { return s[:len(s)-1] }) }, "not whole", ".00000002", false},
		"a missing older file":                  {func(p string) { os.Remove(p + ".00000001"); os.Rename(p+".00000002", p+".00000001") }, "it stands in the place of another file", ".00000001", true},
		"a gap":                                 {func(p string) { os.Rename(p+".00000002", p+".00000003") }, "x.audit.00000002 is missing", "", true},
		"the marker of the current file":        {func(p string) { change(p, func(s string) string { return s[strings.Index(s, "\n")+1:] }) }, "line 1 does not follow", "", false},
		"the first records of the oldest file":  {func(p string) { change(p+".00000001", func(s string) string { return s[strings.Index(s, "\n")+1:] }) }, "line 1 does not follow", ".00000001", true},
		"another log's current file":            {func(p string) { data, _ := os.ReadFile(written(t, 3)); rewrite(t, p, string(data)) }, "line 1 does not follow", "", false},
		"an older file in the place of current": {func(p string) { os.Rename(p+".00000002", p) }, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.audit")
			l := openRotated(t, small(path), io.Discard)
			fill(t, l, 0, 25)
			closed(t, l)
			c.spoil(path)
			_, err := Verify(path)
			if c.want == "" { // cut off at the end, which no chain can tell
				if err != nil {
					t.Error(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path+c.file) {
				t.Errorf("Verify = %v, want %q of %s", err, c.want, c.file)
			}
			l, err = Open(small(path), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if (err == nil) != c.opens {
				t.Errorf("Open = %v", err)
			}
			if err == nil {
				closed(t, l)
			}
		})
	}
}

func TestCurrentFileIsMissing(t *testing.T) {
	for _, emptied := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "x.audit")
		l := openRotated(t, small(path), io.Discard)
		fill(t, l, 0, 12)
		closed(t, l)
		if err := os.Rename(path, path+".elsewhere"); err != nil {
			t.Fatal(err)
		}
		if emptied {
			rewrite(t, path, "")
		}
		if _, err := Open(small(path), slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "missing or empty") || !strings.Contains(err.Error(), ".00000001") {
			t.Errorf("Open = %v", err)
		}
		if err := os.Rename(path+".elsewhere", path); err != nil {
			t.Fatal(err)
		}
		closed(t, openRotated(t, small(path), io.Discard))
		verified(t, path)
	}
}

// A rotation may be cut short after each of its steps.
func TestRotationIsCutShort(t *testing.T) {
	for name, leave := range map[string]func(path string) error{
		"the next file is begun":      func(p string) error { return os.WriteFile(p+".new", []byte(`{"time":`), 0o600) },
		"the old file has both names": func(p string) error { return os.Link(p, p+".00000002") },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.audit")
			l := openRotated(t, small(path), io.Discard)
			fill(t, l, 0, 15)
			closed(t, l)
			if err := leave(path); err != nil {
				t.Fatal(err)
			}
			before := verified(t, path)
			l = openRotated(t, Options{File: path, MaxSize: 2000, Keep: 9}, io.Discard)
			fill(t, l, 15, 40)
			closed(t, l)
			if s := verified(t, path); before.Records != 16 || s.Files < 4 || s.Records != 40+int64(s.Files-1) {
				t.Errorf("before %+v, after %+v", before, s)
			}
			if got := subjects(t, path); len(got) != 40 {
				t.Errorf("%d records", len(got))
			}
			if names := files(t, path); slices.Contains(names, "x.audit.new") {
				t.Errorf("left over: %q", names)
			}
		})
	}
}

// A file cannot be rotated while a directory stands where the next one has to be made: records wait, and none is lost.
func TestRotationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.audit")
	l := openRotated(t, small(path), io.Discard)
	fill(t, l, 0, 9)
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		l.Record("e", "waits", "o", cats.ReasonNone, "")
	}
	testenv.Eventually(t, "the failure is felt", func() bool { return testutil.ToFloat64(l.failed) >= 1 })
	if err := os.Remove(path + ".new"); err != nil {
		t.Fatal(err)
	}
	closed(t, l)
	if s := verified(t, path); s.Files != 2 || s.Records != 9+5+1 {
		t.Errorf("%+v", s)
	}
}

// A crash cuts a line short just where the file is due: the line stays in one file with its marker.
func TestTornWhereTheFileIsFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.audit")
	l := openRotated(t, small(path), io.Discard)
	fill(t, l, 0, 8)
	closed(t, l)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"time":"2026-` + strings.Repeat("x", 500)); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	l = openRotated(t, small(path), io.Discard)
	fill(t, l, 8, 20)
	closed(t, l)
	if s := verified(t, path); s.Torn != 1 || s.Records != 20+1+int64(s.Files-1) {
		t.Errorf("%+v", s)
	}
}

// What a peer can cause at will is bounded, counted, and summarized at the latest when the log is closed.
func TestRecordFrom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.audit")
	l := open(t, path, io.Discard)
	recorded := 0
	for range 1000 {
		if l.RecordFrom("192.0.2.1", "channel-refused", "192.0.2.1:999", "here", cats.ReasonUnauthorized, "why") {
			recorded++
		}
	}
	if recorded < sourceBurst || recorded > sourceBurst+10 {
		t.Errorf("%d of 1000 were recorded", recorded)
	}
	if n := testutil.ToFloat64(l.left); n != float64(1000-recorded) {
		t.Errorf("%v counted as left out, %d recorded", n, recorded)
	}
	l.Record("other", "a", "b", cats.ReasonNone, "") // what is not bounded
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	all := lines(t, path)
	last, err := decode([]byte(all[len(all)-1]))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != recorded+2 || last.Event != SummaryEvent || last.Subject != "192.0.2.1" || last.Object != "channel-refused" ||
		last.Reason != "unauthorized" || last.Detail != fmt.Sprintf("%d more from 192.0.2.1", 1000-recorded) {
		t.Errorf("%d records, the last is %+v", len(all), last)
	}
	verified(t, path)
}
