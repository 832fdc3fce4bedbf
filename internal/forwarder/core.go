package forwarder

import (
	"container/list"
	"fmt"
	"net/netip"

	"github.com/margay-net/margay/cats"
)

// Core is the state of one forwarder.
type Core struct {
	cfg         Config
	attachments map[string]*Attachment
	numbers     map[string]uint16 // of attachment names, for keys
	up          bool              // there is a session with the C-PS
	counter     uint64            // of transactions
	operation   uint64            // ID of the latest Operation
	epochs      map[cats.Shard]cats.Epoch

	provisions map[cats.Shard]*cats.Provision // in force
	offered    []offer                        // given to the shell and not answered yet
	services   serviceTable                   // of provisions

	pending      map[cats.Transaction]*pendingFlow
	pendingByKey map[key]*pendingFlow
	pendingDue   deadlines[cats.Transaction]
	perTenant    cats.Tally[string]
	perClient    cats.Tally[client]
	heldDown     map[key]heldDownKey
	holdDownDue  deadlines[key]
	announced    announcements

	records    map[identity]*record
	byClient   map[key]*record // ingress halves but those that are removed
	byService  map[key]*record // egress halves but those that are removed
	agenda     agenda
	removed    removals
	awaited    map[uint64]awaited
	scanned    cats.Instant
	down       map[netip.Addr]string // first segments without a next hop, and why
	unreported []cats.BindingStatus  // removals that the C-PS has not been told of

	stats Stats
	now   cats.Instant // of the Step that runs
	out   *Effects     // of the Step that runs
}

// New makes a core from its configuration and from what survived the last run. The shell has made the data plane agree
// with restored before.
func New(now cats.Instant, cfg Config, restored Restored) *Core {
	cfg.Limits = cfg.Limits.WithDefaults()
	c := &Core{
		cfg: cfg, now: now, numbers: make(map[string]uint16), epochs: make(map[cats.Shard]cats.Epoch),
		pending: make(map[cats.Transaction]*pendingFlow), pendingByKey: make(map[key]*pendingFlow),
		heldDown:  make(map[key]heldDownKey),
		announced: announcements{byKey: make(map[key]*list.Element)},
		records:   make(map[identity]*record), byClient: make(map[key]*record), byService: make(map[key]*record),
		removed: removals{halves: make(map[identity]struct{})}, awaited: make(map[uint64]awaited), down: make(map[netip.Addr]string),
	}
	c.attach(cfg.Attachments)
	for shard, epoch := range restored.Epochs {
		c.epochs[shard] = epoch
	}
	c.putInForce(byShard(restored.Provisions))
	for _, r := range restored.Records {
		c.restore(r)
	}
	return c
}

// Step takes what happened until now and fills out with what has to be done. It returns when it wants to be called
// again at the latest, cats.Never if nothing is waited for. Now never runs backwards.
func (c *Core) Step(now cats.Instant, in *Events, out *Effects) (next cats.Instant) {
	out.reset()
	c.now, c.out = now, out
	if in.Attachments != nil {
		c.attach(in.Attachments)
		if c.up && in.Session == SessionUnchanged {
			out.Send.Attachments = c.clientAttachments()
		}
	}
	for i := range in.Results {
		c.settle(&in.Results[i])
	}
	if in.Provisioned != nil {
		c.provisioned(in.Provisioned)
	}
	c.expirePending()
	c.expireHoldDowns()
	c.expireAnnouncements()
	c.removed.expire(c.now)
	c.session(in.Session)
	for _, b := range in.Steering {
		c.obey(b)
	}
	for i := range in.Announcements {
		c.announce(&in.Announcements[i])
	}
	for i := range in.Misses {
		c.miss(&in.Misses[i])
	}
	for i := range in.Paths {
		c.pathChange(&in.Paths[i])
	}
	c.scanned = max(c.scanned, in.Scanned)
	for i := range in.Usage {
		c.usage(&in.Usage[i])
	}
	c.inspectDue()
	c.fillStats()
	c.out = nil
	return min(c.pendingDue.next(), c.holdDownDue.next(), c.announced.next(), c.agenda.next())
}

func (c *Core) attach(attachments []Attachment) {
	c.cfg.Attachments = attachments
	c.attachments = make(map[string]*Attachment, len(attachments))
	for i := range attachments {
		c.attachments[attachments[i].Name] = &attachments[i]
	}
}

// obey carries out one message of the C-PS, its parts in the order of their fields.
func (c *Core) obey(b *cats.SteeringBatch) {
	if b.Provision != nil {
		c.offer(b.Provision)
	}
	for i := range b.Removes {
		c.remove(&b.Removes[i])
	}
	for i := range b.Drains {
		c.drain(&b.Drains[i])
	}
	for i := range b.Installs {
		c.install(&b.Installs[i])
	}
	for i := range b.Refusals {
		c.refuse(&b.Refusals[i])
	}
}

// fence tells whether the owner of a shard may still command here, and remembers the highest epoch before anything is
// done in its name (CP section 13.2).
func (c *Core) fence(shard cats.Shard, epoch cats.Epoch) bool {
	highest := c.epochs[shard]
	switch epoch.Compare(highest) {
	case -1:
		return false
	case +1:
		c.epochs[shard] = epoch
		c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalEpoch, Shard: shard, Epoch: epoch})
		c.audit(Audit{Event: "epoch-raised", Detail: fmt.Sprintf("shard %d: from %s to %s", shard, highest, epoch)})
	}
	return true
}

// staleOrder accounts for an order of an owner that a higher epoch has replaced.
func (c *Core) staleOrder(what string, t cats.Transaction, shard cats.Shard, epoch cats.Epoch) (detail string) {
	c.stats.StaleOrders++
	detail = fmt.Sprintf("%s of shard %d at epoch %s, the highest seen is %s", what, shard, epoch, c.epochs[shard])
	c.audit(Audit{Event: "order-refused", Reason: cats.ReasonStaleEpoch, Transaction: t, Detail: detail})
	return detail
}

func (c *Core) audit(a Audit) { c.out.Audit = append(c.out.Audit, a) }

func (c *Core) fillStats() {
	s := &c.stats
	s.IngressHalves, s.EgressHalves = len(c.byClient), len(c.byService)
	s.Pending, s.HeldDown, s.Announcements = len(c.pending), len(c.heldDown), c.announced.len()
	c.out.Stats = *s
}
