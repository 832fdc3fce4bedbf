package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/margay-net/margay/cats"
)

// older is a file that was rotated away. Serials begin with 1 and are never used again.
type older struct {
	path   string
	serial uint64
}

func rotatedName(path string, serial uint64) string { return fmt.Sprintf("%s.%08d", path, serial) }

// rotated lists the older files of the log at path, the oldest first.
func rotated(path string) ([]older, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var all []older
	for _, e := range entries {
		digits, found := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if serial, err := strconv.ParseUint(digits, 10, 64); found && err == nil && rotatedName("", serial) == "."+digits {
			all = append(all, older{rotatedName(path, serial), serial})
		}
	}
	slices.SortFunc(all, func(a, b older) int { return cmp.Compare(a.serial, b.serial) })
	return all, nil
}

// withoutLink leaves out the newest older file where it is a second name of the current one: a rotation is under way, or
// was cut short.
func withoutLink(all []older, current *os.File) ([]older, error) {
	if len(all) == 0 {
		return all, nil
	}
	newest := all[len(all)-1]
	a, err := os.Stat(newest.path)
	if err != nil {
		return nil, err
	}
	b, err := current.Stat()
	if err != nil {
		return nil, err
	}
	if os.SameFile(a, b) {
		return all[:len(all)-1], nil
	}
	return all, nil
}

// rotate puts a file that holds the chain's next record, the marker, in the place of the current one, which keeps its
// content under another name. Whatever fails or ends on the way, the log's own name stands for a locked file with a
// record in it.
func (w *writer) rotate() error {
	path, away := w.options.File, rotatedName(w.options.File, w.serial+1)
	fresh, text, chain, err := w.begin(filepath.Base(away))
	if err != nil {
		return err
	}
	err = os.Link(path, away)
	if err == nil {
		if err = os.Rename(fresh.Name(), path); err != nil {
			err = errors.Join(err, os.Remove(away))
		}
	}
	if err != nil {
		return errors.Join(err, fresh.Close(), os.Remove(fresh.Name()))
	}
	if err := w.file.Close(); err != nil {
		w.log.Warn("the rotated audit log did not close", "file", away, "error", err)
	}
	w.file, w.size, w.chain = fresh, int64(len(text)), chain
	w.serial++
	w.prune()
	return syncDirectory(filepath.Dir(path))
}

// begin makes the next file, with the marker that it goes on from a file that will be called before.
func (w *writer) begin(before string) (file *os.File, text []byte, next *chain, err error) {
	file, err = os.OpenFile(w.fresh(), os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, nil, err
	}
	text, next = w.encode([]Record{{
		Time: time.Now().UTC(), Event: RotatedEvent, Subject: "audit", Object: before, Reason: cats.ReasonNone.String(),
		Detail: "the chain goes on from " + before,
	}})
	if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		if _, err = file.Write(text); err == nil {
			err = file.Sync()
		}
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, text, next, nil
}

// fresh names a file that is not yet part of the log.
func (w *writer) fresh() string { return w.options.File + ".new" }

// prune removes the oldest files. What cannot be removed is tried again with the next rotation.
func (w *writer) prune() {
	all, err := rotated(w.options.File)
	for ; err == nil && len(all) > w.options.Keep; all = all[1:] {
		err = os.Remove(all[0].path)
	}
	if err != nil {
		w.log.Warn("old audit logs cannot be removed", "file", w.options.File, "error", err)
	}
}

// resume clears what a crash in rotate left, and gives the older files.
func (w *writer) resume() ([]older, error) {
	if err := os.Remove(w.fresh()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all, err := rotated(w.options.File)
	if err != nil {
		return nil, err
	}
	whole, err := withoutLink(all, w.file)
	if err != nil {
		return nil, err
	}
	if len(whole) < len(all) {
		if err := os.Remove(all[len(whole)].path); err != nil {
			return nil, err
		}
	}
	if len(whole) > 0 {
		w.serial = whole[len(whole)-1].serial
	}
	return whole, nil
}
