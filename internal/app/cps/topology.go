package cps

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/cps"
	"github.com/margay-net/margay/internal/cps/feed"
	"github.com/margay-net/margay/internal/pce"
	"github.com/margay-net/margay/internal/pce/tedb"
)

// topology is the C-PS's copy of the TEDB: what the C-NMAs said, and the PCE on all of it. It belongs to the owner.
type topology struct {
	domain     string
	sources    map[string]*networkSource
	snapshot   *pce.Snapshot // nil: no C-NMA has said anything yet
	generation uint64        // of the TEDB
	views      uint64        // of the NST
}

// networkSource is what one C-NMA last said. Its maps are never changed.
type networkSource struct {
	position feed.Position
	measured cats.Instant
	ttl      time.Duration
	nodes    map[string]cats.Node
	links    map[[2]string]cats.Link
	paths    map[pathKey]cats.NetworkPath
}

type pathKey struct {
	headend, egress string
	color           uint32
}

func newTopology(domain string) *topology {
	return &topology{domain: domain, sources: make(map[string]*networkSource)}
}

// position gives the last applied update of a C-NMA.
func (t *topology) position(source string) feed.Position {
	if s := t.sources[source]; s != nil {
		return s.position
	}
	return feed.Position{}
}

// apply takes an update of a C-NMA and gives the answer to it. Changed tells that the paths are to be looked at anew. An
// update that makes the topology contradict itself is refused and changes nothing. So is one in part: a source's topology
// has one age, which a DELTA or WITHDRAW must not make younger for what it does not name.
func (t *topology) apply(now cats.Instant, u *cats.NetworkUpdate) (answer cats.Feedback, changed bool) {
	position := t.position(u.Source)
	verdict, err := position.Judge(&u.UpdateHeader)
	switch {
	case err != nil:
	case u.Kind != cats.UpdateFull && u.Kind != cats.UpdateRefresh:
		verdict, err = feed.Refuse, fmt.Errorf("a %s of a topology is not taken here; send FULL, and REFRESH while nothing changes: %w", u.Kind, cats.ReasonUnknownType)
	case u.TTL <= 0:
		verdict, err = feed.Refuse, fmt.Errorf("the update has no ttl: %w", cats.ReasonMalformed)
	}
	if verdict == feed.Apply {
		if changed, err = t.take(now, u); err != nil {
			verdict = feed.Refuse
		}
	}
	switch verdict {
	case feed.Apply, feed.Repeated:
		position = t.position(u.Source)
		return cats.Feedback{Kind: cats.FeedbackApplied, Epoch: position.Epoch, Sequence: position.Sequence}, changed
	case feed.NeedFull:
		return cats.Feedback{Kind: cats.FeedbackNeedFull, Epoch: position.Epoch, Sequence: position.Sequence,
			Detail: fmt.Sprintf("%s %d.%d builds on %d, applied is %d.%d", u.Kind, u.Epoch, u.Sequence, u.Base, position.Epoch, position.Sequence)}, false
	}
	reason := cmp.Or(cats.ReasonOf(err), cats.ReasonConsistency)
	return cats.Feedback{Kind: cats.FeedbackRefused, Epoch: u.Epoch, Sequence: u.Sequence, Reason: reason, Detail: err.Error()}, false
}

// take applies an update that is next.
func (t *topology) take(now cats.Instant, u *cats.NetworkUpdate) (changed bool, err error) {
	before := t.sources[u.Source]
	after := before.after(now, u)
	if before != nil && before.sameContent(after) {
		t.sources[u.Source] = after
		t.snapshot = t.snapshot.Refreshed(u.Source, now, u.TTL)
		return true, nil
	}
	sources := maps.Clone(t.sources)
	sources[u.Source] = after
	if err := t.build(sources); err != nil {
		return false, err
	}
	return true, nil
}

// after gives the source as an update makes it.
func (s *networkSource) after(now cats.Instant, u *cats.NetworkUpdate) *networkSource {
	next := &networkSource{position: feed.Next(&u.UpdateHeader), measured: now, ttl: u.TTL}
	if u.Kind == cats.UpdateRefresh {
		next.nodes, next.links, next.paths = s.nodes, s.links, s.paths
		return next
	}
	next.nodes, next.links, next.paths = make(map[string]cats.Node), make(map[[2]string]cats.Link), make(map[pathKey]cats.NetworkPath)
	for _, n := range u.Nodes {
		next.nodes[n.Name] = n
	}
	for _, l := range u.Links {
		next.links[[2]string{l.From, l.To}] = l
	}
	for _, p := range u.Paths {
		next.paths[pathKey{p.Headend, p.Egress, p.Color}] = p
	}
	return next
}

// sameContent tells whether two states of a source differ in their times alone.
func (s *networkSource) sameContent(o *networkSource) bool {
	return maps.Equal(s.nodes, o.nodes) && maps.Equal(s.paths, o.paths) &&
		maps.EqualFunc(s.links, o.links, func(a, b cats.Link) bool {
			a.Age, b.Age = 0, 0
			return a == b
		})
}

// build makes the next generation of all the sources together, or changes nothing.
func (t *topology) build(sources map[string]*networkSource) error {
	list := make([]tedb.Source, 0, len(sources))
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		s := sources[name]
		list = append(list, tedb.Source{
			Name: name, Measured: s.measured, TTL: s.ttl,
			Nodes: slices.SortedFunc(maps.Values(s.nodes), func(a, b cats.Node) int { return cmp.Compare(a.Name, b.Name) }),
			Links: slices.SortedFunc(maps.Values(s.links), func(a, b cats.Link) int {
				return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
			}),
		})
	}
	snapshot, err := pce.Build(t.domain, t.generation+1, list...)
	if err != nil {
		return err
	}
	t.generation++
	t.views++
	t.sources, t.snapshot = sources, snapshot
	return nil
}

// retain forgets the C-NMAs that are not configured any more, and tells whether there were any.
func (t *topology) retain(configured []string) (bool, error) {
	sources := maps.Clone(t.sources)
	maps.DeleteFunc(sources, func(name string, _ *networkSource) bool { return !slices.Contains(configured, name) })
	if len(sources) == len(t.sources) {
		return false, nil
	}
	return true, t.build(sources)
}

// renumber makes the next view a new generation: the ends that rows are wanted for have changed.
func (t *topology) renumber() { t.views++ }

// view gives what the core selects and computes paths on; nil where there is no topology yet.
func (t *topology) view(d *core.Domain) *core.PathView {
	if t.snapshot == nil {
		return nil
	}
	rows := t.snapshot.Rows(ends(d))
	index := make(map[pathKey]int, len(rows))
	for i := range rows {
		index[pathKey{rows[i].Headend, rows[i].Egress, rows[i].Color}] = i
	}
	for _, name := range slices.Sorted(maps.Keys(t.sources)) {
		for key, p := range t.sources[name].paths {
			if i, wanted := index[key]; wanted { // what was measured end to end counts more than what is derived
				rows[i] = t.measured(name, &p)
			}
		}
	}
	return &core.PathView{Generation: t.views, Rows: rows, PCE: t.snapshot}
}

func (t *topology) measured(source string, p *cats.NetworkPath) cats.NSTRow {
	s := t.sources[source]
	return cats.NSTRow{Headend: p.Headend, Egress: p.Egress, Color: p.Color, Reachable: p.Reachable, Metrics: p.Metrics,
		Source: source, Generation: t.generation, Measured: s.measured.Add(-p.Age), TTL: s.ttl}
}

// ends gives the forwarders where flows come in, and those where they can go to.
func ends(d *core.Domain) (ingresses, egresses []string) {
	for _, name := range d.Forwarders {
		if d.Catalogue.IsIngress(name) {
			ingresses = append(ingresses, name)
		}
		if d.Catalogue.IsEgress(name) {
			egresses = append(egresses, name)
		}
	}
	return ingresses, egresses
}
