// Package audit keeps the append-only audit log of a daemon: refusals, policy violations, and every exception to
// failing closed.
//
// A log is a file of JSON lines with mode 0600. Each record carries the SHA-256 of what stands between the start of the
// record before it and itself, which is that record's line and, after a crash, what the crash cut short. So a line
// that is changed, removed or put in later is found by Verify; only lines cut off at the end cannot be, which is why
// logs are shipped elsewhere too. A file that has grown is rotated away, and the next one goes on with its chain.
//
// Nothing is dropped: when the queue is full, or the disk is, callers wait. What peers can cause at will is recorded at
// a bounded rate, and the rest of it is counted and told in summaries.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Record is one line of an audit log.
type Record struct {
	Time     time.Time `json:"time"`             // UTC
	Event    string    `json:"event"`            // what happened, such as "channel-refused"
	Subject  string    `json:"subject"`          // who did it: an identity, or an address where there is none
	Object   string    `json:"object"`           // what it was done to
	Reason   string    `json:"reason"`           // a cats.Reason; "none" where nothing was refused
	Detail   string    `json:"detail,omitempty"` // for a person
	Previous string    `json:"previous"`         // SHA-256, hexadecimal; zeros on the first record of all
}

// TornEvent marks that a crash cut short the line, or lines, before it.
const TornEvent = "audit-torn"

// RotatedEvent begins every file but the first; its object is the name of the file before, whose chain goes on.
const RotatedEvent = "audit-rotated"

const (
	// mostField bounds each text of a record, in octets: a peer chooses some of them.
	mostField = 2048
	// mostLine is more than four such texts take when every octet is escaped.
	mostLine = 64 << 10
)

// encode gives the record's line, without newline.
func (r Record) encode(previous string) []byte {
	r.Previous = previous
	for _, field := range []*string{&r.Event, &r.Subject, &r.Object, &r.Detail} {
		*field = bounded(*field)
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		panic(fmt.Sprintf("audit: a record of texts and a time always encodes: %v", err))
	}
	return bytes.TrimSuffix(line.Bytes(), []byte("\n"))
}

func bounded(s string) string {
	if len(s) > mostField {
		s = s[:mostField] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

// decode reads a line strictly.
func decode(line []byte) (Record, error) {
	var r Record
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("not an audit record: %w", err)
	}
	if int(decoder.InputOffset()) != len(line) || r.Event == "" || r.Time.IsZero() {
		return Record{}, errors.New("not an audit record")
	}
	return r, nil
}
