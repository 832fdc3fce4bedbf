package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNextEpoch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	now := time.UnixMilli(1_700_000_000_000)
	next := func(now time.Time, want uint64) {
		t.Helper()
		if got, err := NextEpoch(dir, now); err != nil || got != want {
			t.Errorf("epoch %d, %v; want %d", got, err, want)
		}
	}
	next(now, 1_700_000_000_000)
	next(now, 1_700_000_000_001)                  // two starts within a millisecond
	next(now.Add(-time.Hour), 1_700_000_000_002)  // the clock went back
	next(now.Add(time.Second), 1_700_000_001_000) // it goes on
	next(time.UnixMilli(-5), 1_700_000_001_001)   // no clock at all
	if err := StoreEpoch(dir, 1_800_000_000_000); err != nil {
		t.Fatal(err)
	}
	next(now, 1_800_000_000_001)
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left over: %v, %v", files, err)
	}
	if err := os.WriteFile(filepath.Join(dir, epochFile), []byte("yesterday"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NextEpoch(dir, now); err == nil || !strings.Contains(err.Error(), "remove it to start from the clock") {
		t.Errorf("damaged state: %v", err)
	}
}
