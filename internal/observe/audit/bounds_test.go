package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

var began = time.Unix(1_700_000_000, 0)

// allowed counts how many of n records from one source are written.
func (b *bounds) allowed(now time.Time, source string, n int) (written int) {
	for range n {
		if b.allow(now, cause{"channel-refused", source}, cats.ReasonUnauthorized) {
			written++
		}
	}
	return written
}

func TestBounds(t *testing.T) {
	t.Run("SM-12-2 one source: a burst, then one in ten seconds", func(t *testing.T) {
		b := newBounds()
		if n := b.allowed(began, "192.0.2.0", 1000); n != sourceBurst {
			t.Errorf("%d at once", n)
		}
		if n := b.allowed(began.Add(time.Minute), "192.0.2.0", 1000); n != 6 {
			t.Errorf("%d after a minute", n)
		}
		if n := b.allowed(began.Add(time.Minute), "192.0.2.1", 1000); n != sourceBurst {
			t.Errorf("%d of another source, which has done nothing", n)
		}
	})
	t.Run("SM-12-2 all sources: a burst, then one a second, and a bounded memory", func(t *testing.T) {
		b := newBounds()
		n := 0
		for i := range 100_000 {
			n += b.allowed(began, fmt.Sprint(i), 1)
		}
		if n != allBurst {
			t.Errorf("%d at once", n)
		}
		for i := range 100_000 {
			n += b.allowed(began.Add(10*time.Second), fmt.Sprint(i), 1)
		}
		if n != allBurst+10 {
			t.Errorf("%d within ten seconds", n)
		}
		if len(b.causes) > mostSources+1 {
			t.Errorf("%d sources are kept", len(b.causes))
		}
		b.summarize(began.Add(time.Minute))
		b.summarize(began.Add(time.Hour))
		if len(b.causes) != 0 {
			t.Errorf("%d quiet sources are kept", len(b.causes))
		}
	})
}

func TestSummary(t *testing.T) {
	b := newBounds()
	if r := b.summarize(began); len(r) != 0 {
		t.Errorf("a summary of nothing: %+v", r)
	}
	b.allowed(began, "192.0.2.1", 17)
	b.allow(began, cause{"report-refused", "sci-a"}, cats.ReasonOverload)
	records := b.summarize(began.Add(time.Minute))
	want := Record{
		Time: began.Add(time.Minute).UTC(), Event: SummaryEvent, Subject: "192.0.2.1", Object: "channel-refused",
		Reason: "unauthorized", Detail: "7 more from 192.0.2.1",
	}
	if len(records) != 1 || records[0] != want {
		t.Errorf("%+v, want %+v", records, want)
	}
	if r := b.summarize(began.Add(time.Minute)); len(r) != 0 {
		t.Errorf("the same again: %+v", r)
	}

	// As many sources as anybody likes are few records, and none is lost from the numbers.
	total := 0
	for i := range 5000 {
		for range 20 + i%3 {
			if !b.allow(began.Add(time.Hour), cause{"channel-refused", fmt.Sprint("s", i)}, cats.ReasonUnauthorized) {
				total++
			}
		}
	}
	records = b.summarize(began.Add(time.Hour))
	if len(records) != mostSummarized+1 || records[mostSummarized].Subject != otherSources {
		t.Fatalf("%d records, the last %+v", len(records), records[len(records)-1])
	}
	for _, r := range records {
		var n int
		if _, err := fmt.Sscanf(r.Detail, "%d more from ", &n); err != nil {
			t.Fatalf("detail %q: %v", r.Detail, err)
		}
		total -= n
	}
	if total != 0 {
		t.Errorf("%d left out are in no summary", total)
	}
}
