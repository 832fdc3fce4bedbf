package observe

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Health is whether a daemon is ready, by named conditions: it is ready when each of them holds. It is safe for
// concurrent use.
type Health struct {
	mutex      sync.Mutex // guards the conditions
	conditions []*Condition
}

// Condition is one thing that readiness takes, such as "cps-connected".
type Condition struct {
	health *Health
	name   string
	holds  bool
	why    string
}

// Condition adds a condition, which does not hold until it is set. Two of one name are a programming error and panic.
func (h *Health) Condition(name string) *Condition {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if slices.ContainsFunc(h.conditions, func(c *Condition) bool { return c.name == name }) {
		panic("observe: a second condition " + name)
	}
	c := &Condition{health: h, name: name, why: "not yet"}
	h.conditions = append(h.conditions, c)
	return c
}

// Holds says that the condition holds; detail is for a person and may be empty.
func (c *Condition) Holds(detail string) { c.set(true, detail) }

// Fails says that the condition does not hold, and why.
func (c *Condition) Fails(why string) { c.set(false, why) }

func (c *Condition) set(holds bool, why string) {
	c.health.mutex.Lock()
	defer c.health.mutex.Unlock()
	c.holds, c.why = holds, strings.ReplaceAll(why, "\n", " ")
}

// Ready tells whether every condition holds, and writes to w one line each: "ok name: detail" or "not ready name: why".
func (h *Health) Ready(w io.Writer) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	ready := true
	for _, c := range h.conditions {
		state := "ok"
		if !c.holds {
			state, ready = "not ready", false
		}
		line := state + " " + c.name
		if c.why != "" {
			line += ": " + c.why
		}
		fmt.Fprintln(w, line)
	}
	return ready
}
