package audit

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
)

// tailLength is how much of an existing log Open reads: many records, and no more time on a large log than a small one.
const tailLength = 1 << 20

// writer is the current file and where its chain stands.
type writer struct {
	options Options
	log     *slog.Logger
	file    *os.File
	size    int64 // up to which the file is whole and on disk
	chain   *chain
	serial  uint64 // of the newest older file; 0: there is none
}

// openWriter gives also the number of torn lines at the end; if there are any, the next record must be their marker.
func openWriter(options Options, log *slog.Logger) (w *writer, torn int64, err error) {
	if options.MaxSize < 1 || options.Keep < 1 {
		return nil, 0, fmt.Errorf("%d files of %d octets: need one or more of each", options.Keep, options.MaxSize)
	}
	if err := os.MkdirAll(filepath.Dir(options.File), 0o700); err != nil {
		return nil, 0, err
	}
	file, err := os.OpenFile(options.File, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, 0, err
	}
	w = &writer{options: options, log: log, file: file}
	torn, err = w.take()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return w, torn, nil
}

// take makes the file this process's alone, and readable by its owner alone, and finds where its chain stands.
func (w *writer) take() (torn int64, err error) {
	if err := w.lock(); err != nil {
		return 0, err
	}
	if err := w.file.Chmod(0o600); err != nil {
		return 0, err
	}
	if err := syncDirectory(filepath.Dir(w.options.File)); err != nil {
		return 0, err
	}
	if w.size, err = w.file.Seek(0, io.SeekEnd); err != nil {
		return 0, err
	}
	before, err := w.resume()
	if err != nil {
		return 0, err
	}
	if w.size == 0 && len(before) > 0 {
		return 0, fmt.Errorf("it is missing or empty, while %s and others that go before it are there: put it back, or move those away too", before[len(before)-1].path)
	}
	if w.chain, err = w.tail(before); err != nil {
		return 0, fmt.Errorf("its end was tampered with: %w; move it away to keep it, together with all %s.*; a new one is then begun", err, filepath.Base(w.options.File))
	}
	return w.finish()
}

// lock makes the file this process's alone.
func (w *writer) lock() error {
	if err := syscall.Flock(int(w.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another process writes it: %w", err)
	}
	named, err := os.Stat(w.options.File)
	if err != nil {
		return err
	}
	if mine, err := w.file.Stat(); err != nil || !os.SameFile(mine, named) {
		return errors.Join(errors.New("another process has just rotated it"), err)
	}
	return nil
}

// tail follows the last records of the log.
func (w *writer) tail(before []older) (*chain, error) {
	if w.size > tailLength || len(before) == 0 {
		return tail(newChain(), w.file, w.size)
	}
	newest := before[len(before)-1].path
	file, err := os.Open(newest)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	c, err := tail(newChain(), file, info.Size())
	if err == nil && (c.why != nil || c.summary.Pending > 0) {
		err = errors.Join(errors.New("its last line is not whole, though it was rotated away"), c.why)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", newest, err)
	}
	c.line, c.summary = 0, Summary{}
	return tail(c, w.file, w.size)
}

// tail follows the last records of one file, before which c stands.
func tail(c *chain, file *os.File, size int64) (*chain, error) {
	from := max(0, size-tailLength)
	section := io.NewSectionReader(file, from, size-from)
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

// append writes the records and waits for the disk. On an error none of them is in the log. Torn lines stay in one file
// with their marker.
func (w *writer) append(records []Record) error {
	text, next := w.encode(records)
	if w.size > 0 && w.size+int64(len(text)) > w.options.MaxSize && w.chain.torn == 0 {
		if err := w.rotate(); err != nil {
			return fmt.Errorf("rotate the audit log: %w", err)
		}
		text, next = w.encode(records)
	}
	if err := w.write(text); err != nil {
		return err
	}
	w.chain = next
	return nil
}

// encode gives the lines of records that come next, and the chain after them.
func (w *writer) encode(records []Record) (text []byte, next *chain) {
	next = w.chain.fork()
	for _, record := range records {
		line := record.encode(next.previous())
		next.line++
		next.accept(line)
		text = append(append(text, line...), '\n')
	}
	return text, next
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
