package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error is what is wrong with one file: every fault, in the order of the file.
type Error struct {
	File   string
	Faults []Fault
}

// Fault is one thing that is wrong with a file.
type Fault struct {
	Line    int    // from 1
	Column  int    // in characters, from 1
	Text    string // what is wrong and what is needed
	Excerpt string // the line, without its end
}

// Problem is what a Validate method found: where, relative to its struct ("csmas[0].name"; empty for the struct
// itself), and what is wrong and what is needed.
type Problem struct {
	Path string
	Text string
}

// At makes a Problem; format and args are fmt.Sprintf's.
func At(path, format string, args ...any) Problem {
	return Problem{Path: path, Text: fmt.Sprintf(format, args...)}
}

// Error gives every fault as "file:line:column: text", followed by the line with a caret under the column.
func (e *Error) Error() string {
	var out strings.Builder
	for i, f := range e.Faults {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s:%d:%d: %s", e.File, f.Line, f.Column, f.Text)
		if f.Excerpt != "" {
			fmt.Fprintf(&out, "\n%6d | %s\n       | %s^", f.Line, f.Excerpt, indent(f.Excerpt, f.Column-1))
		}
	}
	return out.String()
}

// Brief gives err in one line for a log: of a file's faults only the first, and how many more there are.
func Brief(err error) string {
	var file *Error
	if !errors.As(err, &file) || len(file.Faults) == 0 {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	first := file.Faults[0]
	text := fmt.Sprintf("%s:%d:%d: %s", file.File, first.Line, first.Column, first.Text)
	if more := len(file.Faults) - 1; more > 0 {
		text += fmt.Sprintf("; %d more: --check shows all", more)
	}
	return text
}

// indent is white space as wide as the first n characters of line: tabs stay tabs.
func indent(line string, n int) string {
	var out strings.Builder
	for _, c := range line {
		if n--; n < 0 {
			break
		}
		if c != '\t' {
			c = ' '
		}
		out.WriteRune(c)
	}
	return out.String()
}

// mostExcerpt is how many characters of a line a fault shows.
const mostExcerpt = 200

// isText tells lines that a person can read from those of a file that is no text.
func isText(line string) bool {
	return utf8.ValidString(line) && !strings.ContainsFunc(line, func(c rune) bool { return c != '\t' && !unicode.IsPrint(c) })
}

func newError(file string, lines [][]byte, faults []Fault) *Error {
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	for i := range faults {
		if n := faults[i].Line - 1; n >= 0 && n < len(lines) {
			line := string(bytes.TrimRight(lines[n], "\r"))
			if utf8.RuneCountInString(line) <= mostExcerpt && isText(line) {
				faults[i].Excerpt = line
			}
		}
	}
	return &Error{File: file, Faults: faults}
}
