package nst

import (
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

func row(headend, egress string, color uint32) cats.NSTRow {
	return cats.NSTRow{Headend: headend, Egress: egress, Color: color, Reachable: true, Measured: 1000, TTL: 30 * time.Second}
}

func TestReplace(t *testing.T) {
	table := New()
	if !table.Replace(3, []cats.NSTRow{row("IF-1", "EF-2", 1), row("IF-1", "EF-1", 0), row("IF-1", "EF-2", 0)}) {
		t.Fatal("a first generation was not taken")
	}
	if got := table.Paths("IF-1", "EF-2"); len(got) != 2 || got[0].Color != 0 || got[1].Color != 1 {
		t.Errorf("paths %v", got)
	}
	if got := table.Paths("EF-2", "IF-1"); got != nil {
		t.Errorf("paths of unknown ends: %v", got)
	}
	if table.Replace(2, nil) || table.Generation() != 3 || len(table.Rows()) != 3 {
		t.Error("generation 2 was taken after 3")
	}
	later := row("IF-1", "EF-1", 0)
	later.Measured += 500
	if !table.Replace(3, []cats.NSTRow{later}) || table.Generation() != 3 || table.Paths("IF-1", "EF-1")[0].Measured != later.Measured {
		t.Error("a later measurement of the same generation was not taken")
	}
	if !table.Replace(4, nil) || len(table.Paths("IF-1", "EF-2")) != 0 {
		t.Error("a newer generation did not replace all rows")
	}
}

func TestValidity(t *testing.T) {
	r := row("a", "b", 0)
	for _, c := range []struct {
		age  time.Duration
		want cats.Validity
	}{{0, cats.Valid}, {r.TTL - 1, cats.Valid}, {r.TTL, cats.Stale}, {2*r.TTL - 1, cats.Stale}, {2 * r.TTL, cats.Expired}} {
		if got := Validity(&r, r.Measured.Add(c.age)); got != c.want {
			t.Errorf("after %s: %s, want %s", c.age, got, c.want)
		}
	}
}
