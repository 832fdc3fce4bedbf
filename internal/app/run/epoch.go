package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// epochFile holds the epoch of the last run in decimal digits, below the state directory.
const epochFile = "epoch"

// NextEpoch gives the epoch of this run, max(stored + 1, now in ms), after it is durable in the state directory dir,
// which is made if absent. It is above that of every run before, also where the state was lost and the clock was not.
func NextEpoch(dir string, now time.Time) (uint64, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return 0, fmt.Errorf("state: %w", err)
	}
	stored, err := readEpoch(filepath.Join(dir, epochFile))
	if err != nil {
		return 0, err
	}
	epoch := max(stored+1, uint64(max(now.UnixMilli(), 0)))
	return epoch, StoreEpoch(dir, epoch)
}

func readEpoch(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("state: %w", err)
	}
	epoch, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("state: %s is damaged (%w): remove it to start from the clock", path, err)
	}
	return epoch, nil
}

// StoreEpoch replaces the stored epoch, whole or not at all, and returns once it is on disk.
func StoreEpoch(dir string, epoch uint64) error {
	if err := storeEpoch(dir, epoch); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

func storeEpoch(dir string, epoch uint64) error {
	next, err := os.CreateTemp(dir, epochFile+".*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(next, epoch)
	if err := errors.Join(err, next.Sync(), next.Close()); err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	if err := os.Rename(next.Name(), filepath.Join(dir, epochFile)); err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
