package cps

import (
	"fmt"
	"maps"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/admission"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/cst"
	"github.com/margay-net/margay/internal/cps/ledger"
	"github.com/margay-net/margay/internal/cps/nst"
)

// Core is one C-PS core: the one owner of its shard's selections and bindings. Its methods are called by one goroutine.
type Core struct {
	config Config

	catalogue *catalogue.Catalogue
	policies  map[cats.CSID]string // version of each service's policy
	domains   uint64               // generation of the domain
	expected  []string             // forwarders of the domain, sorted
	sources   map[string]*source

	cst    *cst.Table
	nst    *nst.Table
	pce    PathComputer // nil: no path view yet
	ledger ledger.Ledger

	flows       map[cats.Transaction]*record
	byKey       map[cats.FlowKey]*record        // the flow that a request of the key joins
	byTuple     map[cats.Tuple]*record          // owner of each service-side tuple, instance to client
	states      [cats.ReconnectRequired + 1]int // flows by state; ABSENT: only removals are outstanding
	closed      closed
	pending     admission.Pending
	generations *admission.Generations

	forwarders map[string]*forwarder
	started    bool
	openAt     cats.Instant // requests are decided from here at the latest
	open       bool         // bindings are rebuilt, requests are decided
	fence      cats.Fence   // with one, nothing may be decided
	waiting    []*record    // PENDING until open

	agenda   agenda
	counters Counters

	now     cats.Instant
	out     *Effects
	touched []*forwarder // that have something queued in this Step
}

// New makes a core that knows nothing but its configuration. It decides nothing before it has a Domain and has heard
// the domain's forwarders, or has waited for them.
func New(config Config) *Core {
	config = config.withDefaults()
	empty, err := catalogue.New(catalogue.Records{})
	if err != nil { // an empty catalogue has no contradictions
		panic(err)
	}
	return &Core{
		config:      config,
		fence:       config.Fence,
		catalogue:   empty,
		sources:     make(map[string]*source),
		cst:         cst.New(),
		nst:         nst.New(),
		flows:       make(map[cats.Transaction]*record),
		byKey:       make(map[cats.FlowKey]*record),
		byTuple:     make(map[cats.Tuple]*record),
		closed:      newClosed(config.Limits.Closed),
		generations: admission.NewGenerations(config.Timing.Generation, config.Limits.Generations),
		forwarders:  make(map[string]*forwarder),
	}
}

// Step takes what happened until now and fills out with what has to be done. It returns when it wants to be called
// again at the latest, cats.Never if nothing is waited for. Now never runs backwards.
func (c *Core) Step(now cats.Instant, in *Events, out *Effects) (next cats.Instant) {
	out.reset()
	c.now, c.out = now, out
	if !c.started {
		c.started, c.openAt = true, now.Add(c.config.Timing.Reconcile)
	}
	if in.Domain != nil {
		c.provisionDomain(in.Domain)
	}
	if in.Paths != nil && c.nst.Replace(in.Paths.Generation, in.Paths.Rows) {
		c.pce = in.Paths.PCE
	}
	for i := range in.Sources {
		c.sourceEvent(&in.Sources[i])
	}
	for i := range in.Forwarders {
		c.forwarderEvent(&in.Forwarders[i])
	}
	c.expire() // after what has come in: an answer that waited here is not late
	c.openGate()
	for i := range in.Explains {
		out.Explanations = append(out.Explanations, c.explain(&in.Explains[i]))
	}
	c.flush()
	c.out = nil
	next = c.agenda.next()
	if !c.open && c.fence.IsZero() {
		next = min(next, c.openAt)
	}
	return next
}

// provisionDomain replaces what the operator provisions: rows and deployments that are no longer there admit nothing
// more, flows of a deployment that is revoked or is another now lose their instance, and every forwarder gets its new rules.
func (c *Core) provisionDomain(d *Domain) {
	c.domains++
	c.catalogue = d.Catalogue
	c.expected = slices.Clone(d.Forwarders)
	slices.Sort(c.expected)
	c.policies = make(map[cats.CSID]string)
	for _, s := range d.Catalogue.Records().Services {
		c.policies[s.CSID] = fmt.Sprintf("%s/%d%%/%s@%d", s.Policy, s.BandPercent, s.TieBreak, c.domains)
	}
	c.replaceSources(d.Sources)
	c.cst.Retain(func(i catalogue.Instance) bool { return c.catalogue.Deployment(i) != nil })
	c.failRevoked(maps.Values(c.flows))
	for _, name := range slices.Sorted(maps.Keys(c.forwarders)) {
		f := c.forwarders[name]
		if !slices.Contains(c.expected, name) {
			c.dismiss(f, cats.ReasonUnauthorized, "the domain no longer has this forwarder")
			c.abandon(f)
			continue
		}
		c.compareAttachments(f)
		c.provision(f)
	}
}

// complete tells whether everybody who is waited for after a start has spoken: every forwarder has told what it holds and
// taken its rules, every C-SMA has sent its rows, and there is a topology.
func (c *Core) complete() bool {
	for _, name := range c.expected {
		if f := c.forwarders[name]; f == nil || !f.connected || !f.answered {
			return false
		}
	}
	for name := range c.sources {
		if c.cst.Position(name).Epoch == 0 {
			return false
		}
	}
	return c.pce != nil
}

// openGate begins to decide once the bindings are rebuilt and the sources were heard, or the wait is over. What came meanwhile is decided in its order.
func (c *Core) openGate() {
	if c.open || !c.fence.IsZero() || len(c.expected) == 0 {
		return
	}
	if c.now < c.openAt && !c.complete() {
		return
	}
	c.open = true
	waiting := c.waiting
	c.waiting = nil
	for _, r := range waiting {
		if r.state == cats.Pending {
			c.decide(r)
		}
	}
}

func (c *Core) audit(a Audit) { c.out.Audit = append(c.out.Audit, a) }
