package pce

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/pce/search"
	"github.com/margay-net/margay/internal/pce/segments"
	"github.com/margay-net/margay/internal/pce/tedb"
)

// diagnose tells a person why a search found nothing, with the least that would have to change for a path to exist.
func (s *Snapshot) diagnose(p search.Problem, err error) error {
	ends := fmt.Sprintf("from %s to %s", s.topology.Name(p.From), s.topology.Name(p.To))
	if errors.Is(err, search.ErrBudget) {
		return fmt.Errorf("%s %s: a path may exist: %w", err, ends, cats.ReasonOverload)
	}
	if p.Max[tedb.Hops].Present {
		return s.tooDeep(p, ends)
	}
	within := ""
	if asked := bounded(p); len(asked) > 0 {
		within = " within " + strings.Join(asked, ", ")
	}
	if ways := s.relaxations(p); len(ways) > 0 {
		return fmt.Errorf("no path %s%s; it would take %s: %w", ends, within, strings.Join(ways, " or "), cats.ReasonNoPath)
	}
	if needs := s.apart(p); len(needs) > 0 {
		return fmt.Errorf("no path %s%s; it would take at least %s: %w", ends, within, strings.Join(needs, " and "),
			cats.ReasonNoPath)
	}
	if within != "" && s.connected(p) {
		return fmt.Errorf("no path %s%s together, though each alone can be met: %w", ends, within, cats.ReasonNoPath)
	}
	return fmt.Errorf("no path %s: no links lead there: %w", ends, cats.ReasonNoPath)
}

// tooDeep explains that paths meet the bounds and the headend can push none of their segment lists.
func (s *Snapshot) tooDeep(p search.Problem, ends string) error {
	most := p.Max[tedb.Hops].Value
	fewest, found := s.least(p, tedb.Hops)
	if !found {
		return fmt.Errorf("no path %s of at most %d segments, the most that headend %s can push: %w", ends, most,
			s.topology.Name(p.From), cats.ReasonCapabilityMismatch)
	}
	return fmt.Errorf("a path %s within the bounds needs at least %d segments, and headend %s can push %d: %w", ends,
		segments.Count(int(fewest)), s.topology.Name(p.From), most, cats.ReasonCapabilityMismatch)
}

var units = [tedb.Metrics]string{tedb.Delay: "µs", tedb.Jitter: "µs", tedb.Loss: "ppm"}

// bounded lists the bounds of a problem for a person.
func bounded(p search.Problem) []string {
	var list []string
	for m := range tedb.Metrics {
		if p.Max[m].Present {
			list = append(list, fmt.Sprintf("max %s %d %s", m, p.Max[m].Value, units[m]))
		}
	}
	if p.Bandwidth > 0 {
		list = append(list, fmt.Sprintf("min bandwidth %d kbit/s", p.Bandwidth))
	}
	return list
}

// relaxations lists what would give a path if it alone were changed.
func (s *Snapshot) relaxations(p search.Problem) []string {
	var ways []string
	for m := range tedb.Metrics {
		if !p.Max[m].Present {
			continue
		}
		if v, found := s.least(p, m); found {
			ways = append(ways, more(m, v, p.Max[m].Value))
		}
	}
	if v, found := s.widest(p); found {
		ways = append(ways, less(v, p.Bandwidth))
	}
	if names := s.unpinned(p); len(names) > 0 {
		ways = append(ways, "a SID on transit node "+strings.Join(names, ", "))
	}
	return ways
}

// apart lists the bounds that cannot be met even alone, with the least that each would have to be.
func (s *Snapshot) apart(p search.Problem) []string {
	alone := search.Problem{From: p.From, To: p.To, Rank: p.Rank}
	var needs []string
	for m := range tedb.Metrics {
		if !p.Max[m].Present {
			continue
		}
		if v, found := s.least(alone, m); found && v > p.Max[m].Value {
			needs = append(needs, more(m, v, p.Max[m].Value))
		}
	}
	alone.Bandwidth = p.Bandwidth
	if v, found := s.widest(alone); found && v < p.Bandwidth {
		needs = append(needs, less(v, p.Bandwidth))
	}
	return needs
}

func more(m tedb.Metric, need, asked uint32) string {
	return fmt.Sprintf("max %s %d %s (%d more)", m, need, units[m], need-asked)
}

func less(need, asked uint32) string {
	return fmt.Sprintf("min bandwidth %d kbit/s (%d less)", need, asked-need)
}

// least gives the least value that metric m can have within all bounds but its own.
func (s *Snapshot) least(p search.Problem, m tedb.Metric) (uint32, bool) {
	p.Rank, p.Max[m] = m, cats.Optional[uint32]{}
	path, err := s.work.Find(s.topology, p)
	if err != nil {
		return 0, false
	}
	var sum uint64
	for _, l := range path {
		sum += s.topology.Weights(m)[l]
	}
	return tedb.Value(m, sum), true
}

// widest gives the greatest bandwidth that a path within the other bounds has, up to the one asked for.
func (s *Snapshot) widest(p search.Problem) (uint32, bool) {
	if p.Bandwidth == 0 {
		return 0, false
	}
	widths := []uint32{p.Bandwidth}
	for _, b := range s.topology.Bandwidths() {
		if b < p.Bandwidth {
			widths = append(widths, b)
		}
	}
	slices.Sort(widths)
	widths = slices.Compact(widths)
	feasible := func(width uint32) bool {
		p.Bandwidth = width
		_, err := s.work.Find(s.topology, p)
		return err == nil
	}
	first, _ := slices.BinarySearchFunc(widths, true, func(width uint32, _ bool) int {
		if feasible(width) {
			return -1
		}
		return 1
	})
	if first == 0 {
		return 0, false
	}
	return widths[first-1], true
}

// unpinned gives the transit nodes without SID on the best path within the bounds that goes through such nodes.
func (s *Snapshot) unpinned(p search.Problem) []string {
	p.Unpinned = true
	path, err := s.work.Find(s.topology, p)
	if err != nil {
		return nil
	}
	var names []string
	for _, l := range path {
		if _, n := s.topology.Ends(l); n != p.To && !s.topology.SID(n).IsValid() {
			names = append(names, s.topology.Name(n))
		}
	}
	return names
}

// connected tells whether any path can be pinned, whatever its metrics.
func (s *Snapshot) connected(p search.Problem) bool {
	_, err := s.work.Find(s.topology, search.Problem{From: p.From, To: p.To, Rank: p.Rank})
	return err == nil
}
