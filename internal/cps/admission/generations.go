package admission

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/margay-net/margay/cats"
)

// Generations remembers the last request generation of each source address of a service at an ingress, so that metadata which
// was overtaken is refused (CP section 8.2). The oldest entry goes when it is past its time, or when there are too many.
type Generations struct {
	keep    time.Duration
	most    int
	entries map[generationKey]generation
	queue   []expiry // one for each entry, about in the order of time; a renewed entry is queued again when its turn comes
}

type generationKey struct {
	ingress string
	client  netip.Addr // the source address itself: hosts of one /64 count their own generations
	csID    cats.CSID
}

type generation struct {
	value uint16
	until cats.Instant
}

type expiry struct {
	at  cats.Instant
	key generationKey
}

// NewGenerations remembers each generation for keep, and at most so many of them.
func NewGenerations(keep time.Duration, most int) *Generations {
	return &Generations{keep: keep, most: most, entries: make(map[generationKey]generation)}
}

// Check takes the generation of a request. One that is lower than the last, in serial arithmetic (RFC 1982), gives
// ReasonStaleState; an equal one is a retry.
func (g *Generations) Check(now cats.Instant, ingress string, client netip.Addr, id cats.CSID, value uint16) error {
	g.forget(now)
	key := generationKey{ingress, client, id}
	last, known := g.entries[key]
	if known && now < last.until && int16(value-last.value) < 0 {
		return fmt.Errorf("request generation %d of client %s is below %d, seen before: %w", value, key.client, last.value, cats.ReasonStaleState)
	}
	until := now.Add(g.keep)
	g.entries[key] = generation{value, until}
	if !known {
		g.queue = append(g.queue, expiry{until, key})
	}
	return nil
}

func (g *Generations) forget(now cats.Instant) {
	for len(g.queue) > 0 && (g.queue[0].at <= now || len(g.entries) >= g.most) {
		first := g.queue[0]
		g.queue = g.queue[1:]
		entry := g.entries[first.key]
		if entry.until > now && len(g.entries) < g.most {
			g.queue = append(g.queue, expiry{entry.until, first.key})
			continue
		}
		delete(g.entries, first.key)
	}
}
