package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

const (
	fileName = "bindings.journal"
	lockName = "lock"
	// freshInfix is in the names of files that Compact has not finished.
	freshInfix = ".new-"

	// growth and slack bound the file: it is due for Compact beyond slack octets and growth times its last image.
	growth = 4
	slack  = 1 << 20
)

// Totals are what an agent counts beside the data plane, over its restarts.
type Totals struct {
	Requests uint64                 // service requests
	Released uint64                 // held packets that were released
	Drops    map[cats.Reason]uint64 // held packets that were dropped
}

// Sum gives a number that grows whenever one of the totals does.
func (t *Totals) Sum() uint64 {
	sum := t.Requests + t.Released
	for _, n := range t.Drops {
		sum += n
	}
	return sum
}

// Contents are what a journal holds.
type Contents struct {
	forwarder.Restored
	Totals Totals
}

// Report tells a person what Open found.
type Report struct {
	Torn      int    // octets at the end that no whole entry is made of
	Why       string // what stopped the reading there
	OtherBoot bool   // the records were of another boot of the kernel, and are gone with it
	Discarded int    // those records
}

// Journal is an open journal. It belongs to one goroutine.
type Journal struct {
	directory string
	boot      string
	file      *os.File
	lock      *os.File
	size      int64 // of the file
	image     int64 // of the file when it was last written anew
	buffer    []byte
}

// Open reads the journal in a directory, which is made if absent, and writes it anew. It gives what is left of it in this
// boot of the kernel. Where another agent has the journal open, or it is damaged anywhere but at its end, it fails, and
// nothing is changed.
func Open(directory, boot string) (*Journal, Contents, Report, error) {
	none := func(err error) (*Journal, Contents, Report, error) {
		return nil, Contents{}, Report{}, fmt.Errorf("journal in %s: %w", directory, err)
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return none(err)
	}
	lock, err := acquire(filepath.Join(directory, lockName))
	if err != nil {
		return none(err)
	}
	j := &Journal{directory: directory, boot: boot, lock: lock}
	j.sweep()
	content, err := os.ReadFile(j.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		lock.Close()
		return none(err)
	}
	s := newState()
	taken, why := s.replay(content)
	if why != nil && !s.tail(content[taken:], why, boot) {
		lock.Close()
		return nil, Contents{}, Report{}, fmt.Errorf("journal %s is damaged at octet %d of %d (%w), where no crash does that: what is lost with it cannot be told. "+
			"Move the file away, keep it, and start again: flows through this forwarder may end (docs/operations.md, \"A damaged journal\")", j.path(), taken, len(content), why)
	}
	contents := s.contents(boot)
	report := Report{Torn: len(content) - taken}
	if why != nil {
		report.Why = why.Error()
	}
	if s.booted && s.boot != boot {
		report.OtherBoot, report.Discarded = true, len(s.records)
	}
	if err := j.Compact(contents); err != nil {
		lock.Close()
		return none(err)
	}
	return j, contents, report, nil
}

// acquire takes the lock that one agent at a time may have.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.New("another forwarder has it open: give each its own state directory, or stop the other")
		}
		return nil, err
	}
	return f, nil
}

// sweep removes what a crash in Compact left, and no copy that somebody keeps beside it. That it cannot is no reason not
// to start.
func (j *Journal) sweep() {
	left, _ := filepath.Glob(j.path() + freshInfix + "*")
	for _, name := range left {
		os.Remove(name)
	}
}

func (j *Journal) path() string { return filepath.Join(j.directory, fileName) }

// Append writes entries in their order; with sync they are on disk when it returns. After an error the journal is of no
// further use: what was promised to be kept may not be.
func (j *Journal) Append(entries []forwarder.JournalEntry, sync bool) error {
	if len(entries) == 0 {
		return nil
	}
	var err error
	j.buffer = j.buffer[:0]
	for i := range entries {
		if j.buffer, err = appendEntry(j.buffer, &entries[i]); err != nil {
			return fmt.Errorf("journal in %s: %w", j.directory, err)
		}
	}
	if err = j.write(); err == nil && sync {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("journal in %s: %w", j.directory, err)
	}
	return nil
}

// AppendTotals writes what the agent has counted so far, as Append does.
func (j *Journal) AppendTotals(t Totals) (err error) {
	if j.buffer, err = appendTotals(j.buffer[:0], &t); err == nil {
		err = j.write()
	}
	if err != nil {
		return fmt.Errorf("journal in %s: %w", j.directory, err)
	}
	return nil
}

func (j *Journal) write() error {
	n, err := j.file.Write(j.buffer)
	j.size += int64(n)
	return err
}

// Grown tells whether the file is due for Compact.
func (j *Journal) Grown() bool { return j.size > slack && j.size > growth*j.image }

// Size gives the size of the file, octets.
func (j *Journal) Size() int64 { return j.size }

// Compact replaces the file by one that says r and nothing else. Until that is whole and on disk, the old file stands.
func (j *Journal) Compact(r Contents) error {
	content, err := image(j.boot, r)
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(j.directory, fileName+freshInfix+"*")
	if err != nil {
		return err
	}
	if err := j.swap(fresh, content); err != nil {
		fresh.Close()
		os.Remove(fresh.Name())
		return err
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.size, j.image = fresh, int64(len(content)), int64(len(content))
	return nil
}

// swap writes content to fresh and gives it the journal's name.
func (j *Journal) swap(fresh *os.File, content []byte) error {
	if _, err := fresh.Write(content); err != nil {
		return err
	}
	if err := fresh.Sync(); err != nil {
		return err
	}
	if err := os.Rename(fresh.Name(), j.path()); err != nil {
		return err
	}
	d, err := os.Open(j.directory)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Close lets go of the journal.
func (j *Journal) Close() error { return errors.Join(j.file.Close(), j.lock.Close()) }
