package operator

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// column is a column of a table with what its help says of it.
type column struct {
	name, meaning string
	wide          bool // shown with -o wide only; such columns come last
}

// names are columns that need no help.
func names(all ...string) []column {
	columns := make([]column, len(all))
	for i, n := range all {
		columns[i].name = n
	}
	return columns
}

// table is an answer as rows of text.
type table struct {
	columns []column
	rows    [][]string
	footer  string
}

// add adds a row. One with fewer cells than columns ends in free text.
func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
		if row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

func (t *table) write(w io.Writer) error {
	p := printer{w: w}
	return p.finish(t)
}

// printer writes a table that comes in pages. Columns only ever grow, so that the pages line up but for what is wider
// than all before it.
type printer struct {
	w      io.Writer
	wide   bool
	widths []int // nil: the head is not written yet
}

// page writes the rows of t, and the head before the first of all.
func (p *printer) page(t *table) error {
	var head []string
	for _, c := range t.columns {
		if p.wide || !c.wide {
			head = append(head, c.name)
		}
	}
	first := p.widths == nil
	if first {
		p.widths = make([]int, len(head))
		p.fit(head)
	}
	for _, row := range t.rows {
		p.fit(row)
	}
	var text strings.Builder
	if first {
		p.line(&text, head)
	}
	for _, row := range t.rows {
		p.line(&text, row)
	}
	_, err := io.WriteString(p.w, text.String())
	return err
}

// finish writes the last page and what stands below it.
func (p *printer) finish(t *table) error {
	err := p.page(t)
	if err == nil && t.footer != "" {
		_, err = fmt.Fprintln(p.w, t.footer)
	}
	return err
}

func (p *printer) fit(row []string) {
	for i := range min(len(row), len(p.widths)) {
		if i < len(row)-1 || len(row) >= len(p.widths) {
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
}

func (p *printer) line(text *strings.Builder, row []string) {
	row = row[:min(len(row), len(p.widths))]
	for i, cell := range row {
		text.WriteString(cell)
		if i < len(row)-1 {
			text.WriteString(strings.Repeat(" ", p.widths[i]-utf8.RuneCountInString(cell)+2))
		}
	}
	text.WriteByte('\n')
}
