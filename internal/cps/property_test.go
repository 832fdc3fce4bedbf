package cps

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

// Whatever the forwarders and C-SMAs say in whatever order, answered, late, repeated, wrong or never: no flow holds
// slots that were not reported when it was admitted, slots are given back once, one key and one service-side tuple have
// one flow, and nothing takes a transition that the state machine does not have.
func TestAnyOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := ready(t)
		s.pce.asked = nil
		requests := []cats.ServiceRequest{}
		bindings := []cats.Binding{}
		names := []string{"IF-1", "EF-1", "EF-2"}
		gas := map[cats.CSCIID]uint32{csciA: 10, csciB: 10}
		admitted := map[cats.Transaction]bool{}
		note := func() {
			for _, e := range s.out.Steering {
				for _, i := range e.Batch.Installs {
					bindings = append(bindings, i.Binding)
					if !admitted[i.Binding.Transaction] {
						admitted[i.Binding.Transaction] = true
						if held := s.core.ledger.Debited(catalogue.Instance{CSID: "S1", CSCIID: i.Binding.CSCIID}); held > uint64(gas[i.Binding.CSCIID]) {
							rt.Fatalf("%d slots of %s are held, %d reported", held, i.Binding.CSCIID, gas[i.Binding.CSCIID])
						}
					}
				}
			}
		}
		actions := map[string]func(*rapid.T){
			"request": func(rt *rapid.T) {
				q := s.newRequest(rapid.Uint16Range(51000, 51006).Draw(rt, "port"))
				requests = append(requests, q)
				s.request(q)
			},
			"repeat": func(rt *rapid.T) {
				if len(requests) > 0 {
					s.request(rapid.SampledFrom(requests).Draw(rt, "request"))
				}
			},
			"status": func(rt *rapid.T) {
				if len(bindings) > 0 {
					b := bindings[len(bindings)-1-rapid.IntRange(0, min(5, len(bindings)-1)).Draw(rt, "back")]
					result := rapid.SampledFrom([]cats.BindingResult{cats.BindingInstalled, cats.BindingInstalled, cats.BindingRefused,
						cats.BindingEnding, cats.BindingRemoved, cats.BindingCounters}).Draw(rt, "result")
					s.status(rapid.SampledFrom([]string{b.Ingress, b.Egress}).Draw(rt, "from"), &b, result, cats.ReasonIdle)
				}
			},
			"report": func(rt *rapid.T) {
				source := rapid.SampledFrom([]string{"csma-1", "csma-2"}).Draw(rt, "source")
				slots := rapid.Uint32Range(0, 4).Draw(rt, "gas")
				r := s.record(source, slots, rapid.Uint32Range(1, 20).Draw(rt, "computing"))
				r.Health = rapid.SampledFrom([]cats.Health{cats.Healthy, cats.Healthy, cats.Degraded, cats.Unhealthy}).Draw(rt, "health")
				gas[instanceOf[source]] = slots
				s.send(source, s.update(source, r))
			},
			"reconnect": func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "name")
				var held []cats.Binding
				for _, b := range bindings {
					if (b.Ingress == name || b.Egress == name) && rapid.Bool().Draw(rt, "holds") {
						held = append(held, b)
					}
				}
				if rapid.Bool().Draw(rt, "seen to end") {
					s.disconnect(name)
				}
				s.hello(hello(name, held...))
				note()
				s.acknowledge(s.provisionOf(name), name)
			},
			"time": func(rt *rapid.T) {
				d := rapid.SampledFrom([]time.Duration{time.Millisecond, 500 * time.Millisecond, 6 * time.Second}).Draw(rt, "time")
				s.wait(d)
				s.paths()
			},
			"": func(rt *rapid.T) {
				note()
				c := s.core
				holding, underway := 0, 0
				keys, tuples := map[cats.FlowKey]bool{}, map[cats.Tuple]bool{}
				for tr, r := range c.flows {
					if tr != r.transaction() {
						rt.Fatalf("flow %s is filed as %s", r.transaction(), tr)
					}
					if r.underway() {
						underway++
					}
					if r.state == cats.DestinationSelected || r.state == cats.BindingReady || r.state == cats.Active {
						holding++
					}
					if c.byKey[r.binding.Match] == r {
						keys[r.binding.Match] = true
					}
					if r.state == cats.BindingReady {
						if tuples[r.binding.Reverse.Service] {
							rt.Fatalf("two commits of %s", r.binding.Reverse.Service)
						}
						tuples[r.binding.Reverse.Service] = true
					}
				}
				if holding != c.ledger.Flows() || underway != c.pending.Total() || len(keys) != len(c.byKey) {
					rt.Fatalf("%d flows hold slots, %d debited; %d under way, %d counted; %d keys, %d filed",
						holding, c.ledger.Flows(), underway, c.pending.Total(), len(keys), len(c.byKey))
				}
			},
		}
		rt.Repeat(actions)
		settleAll(rt, s, bindings)
	})
}

// settleAll lets every forwarder come back empty and time pass: nothing may be left.
func settleAll(rt *rapid.T, s *script, bindings []cats.Binding) {
	for _, name := range []string{"IF-1", "EF-1", "EF-2"} {
		s.disconnect(name)
	}
	for _, name := range []string{"EF-1", "EF-2", "IF-1"} {
		s.hello(hello(name))
	}
	for range 20 {
		s.wait(time.Second)
		for _, e := range slices.Clone(s.out.Steering) {
			for _, r := range e.Batch.Removes {
				s.statusOf(e.Forwarder, r.Half, &cats.Binding{Transaction: r.Transaction}, cats.BindingRemoved, cats.ReasonNone)
			}
		}
	}
	if n := len(s.core.flows) + len(s.core.byKey) + len(s.core.byTuple) + s.core.ledger.Flows() + s.core.pending.Total(); n != 0 {
		rt.Fatalf("left: %d flows, %d keys, %d tuples, %d debits, %d pending", len(s.core.flows), len(s.core.byKey),
			len(s.core.byTuple), s.core.ledger.Flows(), s.core.pending.Total())
	}
}
