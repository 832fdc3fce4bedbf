package operator

import (
	"strings"
	"testing"
)

func TestTableInPages(t *testing.T) {
	columns := append(names("A", "LONGER"), column{name: "MORE", wide: true})
	page := func(rows ...[]any) *table {
		t := &table{columns: columns, footer: "the end"}
		for _, r := range rows {
			t.add(r...)
		}
		return t
	}
	for wide, want := range map[bool]string{
		false: "A    LONGER\nb    -\nµµµ  2\nc    3\nwider than all before  4\nd                      free text, which is as long as it is\nthe end\n",
		true: "A    LONGER  MORE\nb    -       x\nµµµ  2       yy\nc    3       z\nwider than all before  4       z\n" +
			"d                      free text, which is as long as it is\nthe end\n",
	} {
		var out strings.Builder
		p := printer{w: &out, wide: wide}
		first := page([]any{"b", "", "x"}, []any{"µµµ", 2, "yy"})
		second := page([]any{"c", 3, "z"})
		third := page([]any{"wider than all before", 4, "z"}, []any{"d", "free text, which is as long as it is"})
		for _, step := range []error{p.page(first), p.page(second), p.finish(third)} {
			if step != nil {
				t.Fatal(step)
			}
		}
		if out.String() != want {
			t.Errorf("wide %t:\n%q\nwant\n%q", wide, out.String(), want)
		}
	}
}
