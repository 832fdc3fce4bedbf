package simulation

import (
	"container/heap"
	"fmt"
	"io"
	"time"

	"github.com/margay-net/margay/cats"
)

// The phases of a run: faults and traffic, then traffic's rest over sound links, at whose end all tables agree.
const (
	faultTime  = 20 * time.Second
	settleTime = 45 * time.Second
)

// start is an arbitrary wall-clock instant, so that no core can mistake zero for a time.
const start = cats.Instant(1_700_000_000 * time.Second)

// Result is what a run saw; for a person, and to tell that a run was no idle one.
type Result struct {
	Seed      uint64
	Steps     int // of all cores
	Packets   int // from clients
	Admitted  int // transactions with a decision
	Local     int // of them, whose ingress is the egress too
	Committed int // held packets released
	Refused   int // held packets dropped by a reason
	Lost      int // messages
	Crashes   int
}

// occurrence is something that happens at an instant.
type occurrence struct {
	at    cats.Instant
	order uint64 // of scheduling; breaks ties
	do    func()
}

type agenda []occurrence

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(occurrence)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// world is one domain on virtual time.
type world struct {
	chance     chance
	now        cats.Instant
	scheduled  uint64
	agenda     agenda
	faults     bool // links lose, sessions break, processes crash
	cps        *controller
	forwarders []*node
	clients    clients
	result     Result
	violation  error // the first one
	trace      io.Writer
}

// Run plays one seed. The error is the first violation of an invariant.
func Run(seed uint64) (Result, error) { return Trace(seed, io.Discard) }

// Trace is Run, and writes what happens to out, a line each.
func Trace(seed uint64, out io.Writer) (Result, error) {
	w := &world{chance: chance(seed), now: start, faults: true, trace: out}
	w.result.Seed = seed
	w.cps = newController(w)
	for i, name := range forwarderNames {
		w.forwarders = append(w.forwarders, newNode(w, name, byte(i+1)))
	}
	w.cps.boot()
	for _, n := range w.forwarders {
		n.boot()
	}
	w.cps.report()
	w.cps.moveLinks()
	w.clients.begin(w)
	w.scheduleFault()
	w.runUntil(start.Add(faultTime))
	w.faults = false
	w.runUntil(start.Add(faultTime + settleTime))
	if w.violation == nil {
		w.checkAgreement()
	}
	if w.violation != nil {
		return w.result, fmt.Errorf("seed %d: %w", seed, w.violation)
	}
	return w.result, nil
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now.Add(d), do) }

func (w *world) at(t cats.Instant, do func()) {
	w.scheduled++
	heap.Push(&w.agenda, occurrence{at: max(t, w.now), order: w.scheduled, do: do})
}

func (w *world) runUntil(end cats.Instant) {
	for w.violation == nil && len(w.agenda) > 0 && w.agenda[0].at <= end {
		next := heap.Pop(&w.agenda).(occurrence)
		w.now = next.at
		next.do()
	}
	w.now = end
}

// log traces what happens; it costs nothing but for Trace.
func (w *world) log(format string, args ...any) {
	if w.trace != io.Discard {
		fmt.Fprintf(w.trace, "%-14s "+format+"\n", append([]any{w.now.Sub(start)}, args...)...)
	}
}

// violated records the first violation.
func (w *world) violated(format string, args ...any) {
	if w.violation == nil {
		w.violation = fmt.Errorf("at %s: "+format, append([]any{w.now.Sub(start)}, args...)...)
	}
}

// scheduleFault lets something fail every now and then until the faults end.
func (w *world) scheduleFault() {
	w.after(w.chance.between(200*time.Millisecond, 4*time.Second), func() {
		if !w.faults {
			return
		}
		victim := w.forwarders[w.chance.below(len(w.forwarders))]
		switch w.chance.below(5) {
		case 0:
			w.cps.crash()
		case 1, 2:
			victim.crash()
		default:
			victim.disconnect()
		}
		w.scheduleFault()
	})
}
