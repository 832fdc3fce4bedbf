// Package nst is the Network Service Table: the reachability and metrics of the path from each ingress to each egress,
// derived from the TEDB, in soft state (CP section 5, Table 1). It ages apart from the CST (CP section 13.1).
package nst

import (
	"cmp"
	"slices"
	"time"

	"github.com/margay-net/margay/cats"
)

// Validity gives the soft state of a row: VALID within its ttl, STALE within as much again, then EXPIRED.
func Validity(row *cats.NSTRow, now cats.Instant) cats.Validity {
	switch age := Age(row, now); {
	case age < row.TTL:
		return cats.Valid
	case age < 2*row.TTL:
		return cats.Stale
	}
	return cats.Expired
}

// Age gives the time since the row was measured.
func Age(row *cats.NSTRow, now cats.Instant) time.Duration { return now.Sub(row.Measured) }

// Table holds one generation of rows.
type Table struct {
	generation uint64
	rows       []cats.NSTRow // by headend, egress, color
	index      map[ends][]cats.NSTRow
}

type ends struct{ headend, egress string }

// New gives an empty table of generation 0.
func New() *Table { return &Table{} }

// Replace takes all rows anew and tells whether it did: rows of an older generation change nothing. The same generation
// again has the same content, measured later.
func (t *Table) Replace(generation uint64, rows []cats.NSTRow) bool {
	if generation < t.generation {
		return false
	}
	sorted := slices.Clone(rows)
	slices.SortFunc(sorted, func(a, b cats.NSTRow) int {
		return cmp.Or(cmp.Compare(a.Headend, b.Headend), cmp.Compare(a.Egress, b.Egress), cmp.Compare(a.Color, b.Color))
	})
	index := make(map[ends][]cats.NSTRow)
	for first := 0; first < len(sorted); {
		last := first + 1
		for last < len(sorted) && sorted[last].Headend == sorted[first].Headend && sorted[last].Egress == sorted[first].Egress {
			last++
		}
		index[ends{sorted[first].Headend, sorted[first].Egress}] = sorted[first:last:last]
		first = last
	}
	t.generation, t.rows, t.index = generation, sorted, index
	return true
}

// Generation is that of the rows.
func (t *Table) Generation() uint64 { return t.generation }

// Rows gives all rows by headend, egress and color; not to be changed.
func (t *Table) Rows() []cats.NSTRow { return t.rows }

// Paths gives the rows of one headend and egress by color; not to be changed.
func (t *Table) Paths(headend, egress string) []cats.NSTRow { return t.index[ends{headend, egress}] }
