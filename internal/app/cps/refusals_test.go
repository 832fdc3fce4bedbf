package cps

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/cps"
)

func TestRefusalLog(t *testing.T) {
	var out bytes.Buffer
	l := newRefusalLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	n := uint64(0)
	refuse := func(reason cats.Reason, stage string) {
		n++
		q := request(n, 51000)
		l.note(&core.RefusedFlow{Transaction: q.Transaction, Ingress: "IF-1", Key: q.Key, Reason: reason, Stage: stage, Detail: "why"})
	}
	lines := func(level string) (found []string) {
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "level="+level) {
				found = append(found, line)
			}
		}
		return found
	}
	start := cats.Instant(time.Hour)
	if next := l.tell(start); next != cats.Never {
		t.Errorf("with nothing to tell it wants to be called at %d", next)
	}
	refuse(cats.ReasonNoCandidate, "health")
	l.tell(start)
	refuse(cats.ReasonNoCandidate, "slots")
	refuse(cats.ReasonNoCandidate, "health")
	refuse(cats.ReasonUnauthorized, "")
	next := l.tell(start.Add(time.Millisecond))
	if next != start.Add(time.Second) {
		t.Errorf("the next line is due at %d", next)
	}
	if info := lines("INFO"); len(info) != 2 ||
		!strings.Contains(info[0], "refused 1 flow: no-candidate at stage health, last: transaction 01") ||
		!strings.Contains(info[0], "flow client-1/default tcp 192.0.2.10:51000 -> 192.0.2.100:443 at IF-1: why") ||
		!strings.Contains(info[1], "refused 1 flow: unauthorized, last: ") {
		t.Errorf("%q", info)
	}
	if debug := lines("DEBUG"); len(debug) != 4 || !strings.Contains(debug[1], "stage=slots") {
		t.Errorf("%q", debug)
	}
	if next := l.tell(next); next != cats.Never || !strings.Contains(lines("INFO")[2], "refused 2 flows: no-candidate at stage health") {
		t.Errorf("%d, %q", next, lines("INFO"))
	}
	refuse(cats.ReasonNoCandidate, "health")
	l.tell(next.Add(time.Millisecond))
	if len(lines("INFO")) != 3 {
		t.Errorf("%q", lines("INFO"))
	}
	if l.rest(); len(lines("INFO")) != 4 {
		t.Errorf("the rest is not told: %q", lines("INFO"))
	}
}
