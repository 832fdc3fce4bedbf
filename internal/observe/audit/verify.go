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
	Records int64 // whole ones, markers of torn lines included
	Torn    int64 // lines that a crash cut short, each accounted for by a marker
	Pending int64 // octets after the last newline: a line being written, or torn and not yet marked
}

// Verify reads the whole log at path and checks its chain. The error names the first line that does not fit.
func Verify(path string) (Summary, error) {
	file, err := os.Open(path)
	if err != nil {
		return Summary{}, fmt.Errorf("audit log: %w", err)
	}
	c := newChain()
	err = c.follow(file, true)
	if err := errors.Join(err, file.Close()); err != nil {
		return Summary{}, fmt.Errorf("audit log %s: %w", path, err)
	}
	return c.summary, nil
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
		return fmt.Errorf("line %d does not follow what stands before it: something there was changed, removed or put in", c.line)
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
