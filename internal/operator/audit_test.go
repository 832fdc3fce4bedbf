package operator

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/observe/audit"
)

func TestAuditVerify(t *testing.T) {
	dir := t.TempDir()
	whole, changed := filepath.Join(dir, "whole.audit"), filepath.Join(dir, "changed.audit")
	logger, _ := observe.NewLogger(&bytes.Buffer{})
	log, err := audit.Open(audit.Options{File: whole, MaxSize: 1 << 20, Keep: 1}, logger, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"one", "two", "three"} {
		log.Record("channel-refused", subject, "here", cats.ReasonUnauthorized, "")
	}
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(changed, bytes.Replace(content, []byte("two"), []byte("too"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	verify := func(files ...string) (string, error) {
		var out bytes.Buffer
		root := Root()
		root.SetOut(&out)
		root.SetArgs(append([]string{"audit", "verify"}, files...))
		err := root.Execute()
		return out.String(), err
	}
	if out, err := verify(whole); err != nil || !strings.Contains(out, "3 records, the chain holds") {
		t.Errorf("a whole log: %q, %v", out, err)
	}
	// Rotated at each batch: all but the newest older file are gone.
	rotated := filepath.Join(dir, "rotated.audit")
	if log, err = audit.Open(audit.Options{File: rotated, MaxSize: 1, Keep: 1}, logger, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"one", "two", "three"} {
		log.Record("channel-refused", subject, "here", cats.ReasonUnauthorized, "")
		if err := log.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if out, err := verify(rotated); err != nil || !strings.Contains(out, "4 records in 2 files, the chain holds; it goes on from rotated.audit.00000001, which is not there any more") {
		t.Errorf("a rotated log: %q, %v", out, err)
	}
	out, err := verify(changed, whole)
	if err == nil || !strings.Contains(err.Error(), changed) || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("a changed log: %v", err)
	}
	if !strings.Contains(out, whole) {
		t.Errorf("the log after it was not looked at: %q", out)
	}
}
