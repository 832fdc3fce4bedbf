package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// tailLength is how much of an existing log Open reads: many records, and no more time on a large log than a small one.
const tailLength = 1 << 20

// writer is the file and where its chain stands.
type writer struct {
	file  *os.File
	size  int64 // up to which the file is whole and on disk
	chain *chain
}

// openWriter gives also the number of torn lines at the end; if there are any, the next record must be their marker.
func openWriter(path string) (w *writer, torn int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, 0, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, 0, err
	}
	w = &writer{file: file}
	torn, err = w.take()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return w, torn, nil
}

// take makes the file this process's alone, and readable by its owner alone, and finds where its chain stands.
func (w *writer) take() (torn int64, err error) {
	if err := syscall.Flock(int(w.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return 0, fmt.Errorf("another process writes it: %w", err)
	}
	if err := w.file.Chmod(0o600); err != nil {
		return 0, err
	}
	if err := syncDirectory(filepath.Dir(w.file.Name())); err != nil {
		return 0, err
	}
	if w.size, err = w.file.Seek(0, io.SeekEnd); err != nil {
		return 0, err
	}
	if w.chain, err = w.tail(); err != nil {
		return 0, fmt.Errorf("its end was tampered with: %w; move it away to keep it, a new one is then begun", err)
	}
	return w.finish()
}

// tail follows the last records of the file.
func (w *writer) tail() (*chain, error) {
	c := newChain()
	from := max(0, w.size-tailLength)
	section := io.NewSectionReader(w.file, from, w.size-from)
	if from == 0 {
		return c, c.follow(section, false)
	}
	// The first line read is cut; what it was chained to is unknown.
	c.known = false
	skipped, err := skipLine(section)
	if err != nil {
		return nil, err
	}
	if _, err := section.Seek(skipped, io.SeekStart); err != nil {
		return nil, err
	}
	if err := c.follow(section, false); err != nil {
		return nil, err
	}
	if !c.known {
		return nil, fmt.Errorf("no record in its last %d octets", tailLength)
	}
	return c, nil
}

func skipLine(section *io.SectionReader) (int64, error) {
	start := make([]byte, mostLine)
	n, err := section.Read(start)
	if err != nil {
		return 0, err
	}
	for i, b := range start[:n] {
		if b == '\n' {
			return int64(i) + 1, nil
		}
	}
	return 0, errors.New("a line is longer than any record")
}

// finish ends a last line that has no newline. If all of it but the newline is there, it is a record like any other.
func (w *writer) finish() (torn int64, err error) {
	pending := w.chain.summary.Pending
	if pending > 0 {
		line := make([]byte, pending)
		if _, err := w.file.ReadAt(line, w.size-pending); err != nil {
			return 0, err
		}
		if err := w.chain.next(line); err != nil {
			return 0, err
		}
		if err := w.write([]byte("\n")); err != nil {
			return 0, err
		}
	}
	return w.chain.torn, nil
}

// append writes the records and waits for the disk. On an error the file is as it was before.
func (w *writer) append(records []Record) error {
	var text []byte
	next := w.chain.fork()
	for _, record := range records {
		line := record.encode(next.previous())
		next.line++
		next.accept(line)
		text = append(append(text, line...), '\n')
	}
	if err := w.write(text); err != nil {
		return err
	}
	w.chain = next
	return nil
}

func (w *writer) write(text []byte) error {
	_, err := w.file.Write(text)
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		return errors.Join(err, w.file.Truncate(w.size))
	}
	w.size += int64(len(text))
	return nil
}

func (w *writer) close() error { return w.file.Close() }

// syncDirectory makes a new file's name durable.
func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
