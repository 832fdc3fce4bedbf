package demo

import (
	"slices"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	var r report
	r.step(1, "IF-1 gets the packet.")
	r.note("$ margay request")
	r.draft("client-facing packet", "a -> b", "a -> b")
	r.expect("TTL", "63", "62")
	var text strings.Builder
	r.write(&text)
	const want = `
Step 1. IF-1 gets the packet.
  $ margay request
  client-facing packet  draft:    a -> b  seen: a -> b  ok
  TTL                   expected: 63      seen: 62      DIFFERS
`
	if text.String() != want {
		t.Errorf("%s\nwant%s", text.String(), want)
	}
	if r.compared != 2 || !slices.Equal(r.differs, []string{"TTL"}) {
		t.Errorf("%d compared, %v differ", r.compared, r.differs)
	}
}
