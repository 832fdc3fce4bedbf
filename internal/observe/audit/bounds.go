package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/margay-net/margay/cats"
)

// What peers can make a log write, so that none of them fills the disk or keeps the writer from others' records.
const (
	sourceBurst = 10               // records of one event from one source at once,
	sourceEvery = 10 * time.Second // and then one in this time
	allBurst    = 100              // records of all events from all sources at once,
	allEvery    = time.Second      // and then one in this time

	mostSources    = 1024 // that are told apart; the rest share one place
	summarizeEvery = time.Minute
	mostSummarized = 8 // sources of one event that a summary names; the rest share one record

	otherSources = "other sources"
)

// SummaryEvent tells how many records RecordFrom left out: its subject is their source, its object their event.
const SummaryEvent = "audit-summary"

// bounds decides which records of RecordFrom are written. It is safe for concurrent use.
type bounds struct {
	mutex  sync.Mutex // guards what follows
	all    *rate.Limiter
	causes map[cause]*allowance
}

// cause is who caused records of what.
type cause struct{ event, source string }

type allowance struct {
	limiter *rate.Limiter
	left    int         // records left out since the last summary
	reason  cats.Reason // of the last of them
}

func newBounds() *bounds {
	return &bounds{all: rate.NewLimiter(rate.Every(allEvery), allBurst), causes: make(map[cause]*allowance)}
}

// allow tells whether a record is to be written; one that is not is counted for the next summary.
func (b *bounds) allow(now time.Time, c cause, reason cats.Reason) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	a := b.allowance(c)
	if a.limiter.AllowN(now, 1) && b.all.AllowN(now, 1) {
		return true
	}
	a.left++
	a.reason = reason
	return false
}

func (b *bounds) allowance(c cause) *allowance {
	if a := b.causes[c]; a != nil {
		return a
	}
	if len(b.causes) >= mostSources && c.source != otherSources {
		return b.allowance(cause{c.event, otherSources})
	}
	a := &allowance{limiter: rate.NewLimiter(rate.Every(sourceEvery), sourceBurst)}
	b.causes[c] = a
	return a
}

// summarize gives the records that stand for those left out since it was last called, and forgets quiet sources.
func (b *bounds) summarize(now time.Time) []Record {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	var left []cause
	for c, a := range b.causes {
		switch {
		case a.left > 0:
			left = append(left, c)
		case a.limiter.TokensAt(now) >= sourceBurst:
			delete(b.causes, c)
		}
	}
	slices.SortFunc(left, func(x, y cause) int {
		return cmp.Or(strings.Compare(x.event, y.event), cmp.Compare(b.causes[y].left, b.causes[x].left), strings.Compare(x.source, y.source))
	})
	var records []Record
	for len(left) > 0 {
		of := left[0].event
		n := slices.IndexFunc(left, func(c cause) bool { return c.event != of })
		if n < 0 {
			n = len(left)
		}
		records = append(records, b.summarizeEvent(now, left[:n])...)
		left = left[n:]
	}
	return records
}

// summarizeEvent names the sources that most was left out of, and adds up the rest. All are of one event.
func (b *bounds) summarizeEvent(now time.Time, causes []cause) (records []Record) {
	rest, sources, reason := 0, 0, cats.ReasonNone
	for _, c := range causes {
		a := b.causes[c]
		if len(records) < mostSummarized && c.source != otherSources {
			records = append(records, summary(now, c, a.reason, fmt.Sprintf("%d more from %s", a.left, c.source)))
		} else {
			rest, sources, reason = rest+a.left, sources+1, a.reason
		}
		a.left = 0
	}
	if rest > 0 {
		c := cause{causes[0].event, otherSources}
		records = append(records, summary(now, c, reason, fmt.Sprintf("%d more from %d or more other sources", rest, sources)))
	}
	return records
}

func summary(now time.Time, c cause, reason cats.Reason, detail string) Record {
	return Record{Time: now.UTC(), Event: SummaryEvent, Subject: c.source, Object: c.event, Reason: reason.String(), Detail: detail}
}
