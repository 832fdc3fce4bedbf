package demo

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// report is what a run has to say. It is written as a whole, so that its columns line up.
type report struct {
	lines    []line
	compared int
	differs  []string // points
}

// line is a comparison, or text.
type line struct {
	text              string
	point, want, seen string
	source            string // who says what is wanted; empty: no comparison
	verdict           string
}

// step begins a step of section 14.
func (r *report) step(number int, what string) {
	r.lines = append(r.lines, line{text: fmt.Sprintf("\nStep %d. %s", number, what)})
}

// note tells what nothing is compared with.
func (r *report) note(format string, args ...any) {
	r.lines = append(r.lines, line{text: "  " + fmt.Sprintf(format, args...)})
}

// draft compares what was seen with what section 14 says.
func (r *report) draft(point, says, seen string) { r.compare("draft", point, says, seen) }

// expect compares what was seen with what follows from our own records, such as the binding, or from the protocols.
func (r *report) expect(point, follows, seen string) { r.compare("expected", point, follows, seen) }

func (r *report) compare(source, point, want, seen string) {
	l := line{point: point, want: want, seen: seen, source: source, verdict: "ok"}
	r.compared++
	if want != seen {
		l.verdict = "DIFFERS"
		r.differs = append(r.differs, point)
	}
	r.lines = append(r.lines, l)
}

func (r *report) write(w io.Writer) {
	var point, want, seen int
	for _, l := range r.lines {
		point, want, seen = max(point, utf8.RuneCountInString(l.point)), max(want, utf8.RuneCountInString(l.want)), max(seen, utf8.RuneCountInString(l.seen))
	}
	for _, l := range r.lines {
		if l.source == "" {
			fmt.Fprintln(w, l.text)
			continue
		}
		fmt.Fprintf(w, "  %-*s  %-9s %-*s  seen: %-*s  %s\n", point, l.point, l.source+":", want, l.want, seen, l.seen, l.verdict)
	}
}
