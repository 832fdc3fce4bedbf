package audit

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
)

// Summary is what Verify found in a log whose chain holds.
type Summary struct {
	Files   int    // the rotated ones that are still there, and the current one
	Before  string // name of the file before the first of them, which is gone; empty: the log begins with the first
	Records int64  // whole ones, markers included
	Torn    int64  // lines that a crash cut short, each accounted for by a marker
	Pending int64  // octets after the last newline: a line being written, or torn and not yet marked
}

// Verify reads the whole log at path, the files that were rotated away first, and checks its chain. The error names the
// file and the first line that does not fit. A rotated file can also be read by itself.
func Verify(path string) (Summary, error) {
	current, err := os.Open(path)
	if err != nil {
		return Summary{}, fmt.Errorf("audit log: %w", err)
	}
	defer current.Close()
	older, err := rotated(path)
	if err != nil {
		return Summary{}, fmt.Errorf("audit log %s: %w", path, err)
	}
	if older, err = withoutLink(older, current); err != nil { // rotated away since it was opened
		return Summary{}, fmt.Errorf("audit log %s: %w", path, err)
	}
	c := newChain()
	for i, o := range older {
		if i > 0 && o.serial != older[i-1].serial+1 {
			return Summary{}, fmt.Errorf("audit log %s: %s is missing", path, rotatedName(path, older[i-1].serial+1))
		}
		if err := c.followOlder(o.path); err != nil {
			return Summary{}, fmt.Errorf("audit log %s: %w", o.path, err)
		}
		if before := c.summary.Before; i == 0 && before != "" && !strings.HasSuffix(before, rotatedName("", o.serial-1)) {
			return Summary{}, fmt.Errorf("audit log %s: it goes on from %s: it stands in the place of another file", o.path, before)
		}
	}
	c.line = 0
	if err := c.follow(current, true); err != nil {
		return Summary{}, fmt.Errorf("audit log %s: %w", path, err)
	}
	c.summary.Files = len(older) + 1
	return c.summary, nil
}

// followOlder checks a whole file that was rotated away.
func (c *chain) followOlder(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	c.line = 0
	if err := errors.Join(c.follow(file, true), file.Close()); err != nil {
		return err
	}
	if c.summary.Pending > 0 {
		return errors.New("its last line is not whole, though it was rotated away")
	}
	return nil
}

// chain follows the lines of a log, whether they are read or written.
type chain struct {
	link    hash.Hash // over the last record's line and the torn lines after it
	started bool      // link has something in it
	known   bool      // link covers all that it should: false while reading only the tail of a file
	line    int64     // number of the last line
	torn    int64     // lines since the last record, waiting for a marker
	why     error     // what is wrong with the first of them
	summary Summary
}

func newChain() *chain { return &chain{link: sha256.New(), known: true} }

// previous is what the next record must carry.
func (c *chain) previous() string {
	if !c.started {
		return strings.Repeat("0", 2*sha256.Size)
	}
	return hex.EncodeToString(c.link.Sum(nil))
}

// follow checks every whole line of r. With strict, torn lines at the end that no marker accounts for are an error;
// without, the caller is about to write the marker.
func (c *chain) follow(r io.Reader, strict bool) error {
	reader := bufio.NewReaderSize(r, mostLine)
	for {
		line, err := reader.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			c.summary.Pending = int64(len(line))
			if strict {
				return c.why
			}
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("line %d is longer than any record", c.line+1)
		case err != nil:
			return err
		}
		if err := c.next(line[:len(line)-1]); err != nil {
			return err
		}
	}
}

// next takes one line, without its newline.
func (c *chain) next(line []byte) error {
	c.line++
	record, err := decode(line)
	if err != nil {
		c.tear(line, fmt.Errorf("line %d: %w", c.line, err))
		return nil
	}
	if c.why != nil && record.Event != TornEvent {
		return c.why
	}
	if c.known && record.Previous != c.previous() {
		switch {
		case record.Event != RotatedEvent:
			return fmt.Errorf("line %d does not follow what stands before it: something there was changed, removed or put in", c.line)
		case c.started:
			return fmt.Errorf("line %d does not follow: it goes on from %s, which was changed, or is not there", c.line, record.Object)
		}
		c.summary.Before = record.Object // all that was before has been rotated out
	}
	c.accept(line)
	return nil
}

// accept makes line the last record.
func (c *chain) accept(line []byte) {
	c.summary.Records++
	c.summary.Torn += c.torn
	c.torn, c.why = 0, nil
	c.link.Reset()
	c.link.Write(line)
	c.started, c.known = true, true
}

// tear adds a line that is no record.
func (c *chain) tear(line []byte, why error) {
	if c.started {
		c.link.Write([]byte("\n"))
	}
	c.link.Write(line)
	c.started = true
	c.torn++
	if c.why == nil {
		c.why = why
	}
}

// fork gives a chain that goes on from here without touching c. Only valid when nothing waits for a marker, or when the
// next record is the marker.
func (c *chain) fork() *chain {
	f := *c
	clone, err := c.link.(hash.Cloner).Clone()
	if err != nil {
		panic(fmt.Sprintf("audit: cannot clone SHA-256: %v", err))
	}
	f.link = clone
	return &f
}
