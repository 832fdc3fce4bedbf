package forwarder

import (
	"fmt"
	"maps"
	"slices"

	"github.com/margay-net/margay/cats"
)

// offer is what one Step gave the shell to put in force: the provisions of all shards, as one.
type offer struct {
	shards map[cats.Shard]*cats.Provision
	asked  []cats.Shard // whose provision is new, each once
	rules  *cats.Provision
}

// offer takes what a shard's core provisions, beside what the other shards have provisioned. The shell puts it into the
// data plane; only then it counts here (CP section 9).
func (c *Core) offer(p *cats.Provision) {
	if !c.fence(p.Shard, p.Epoch) {
		detail := c.staleOrder("provision", cats.Transaction{}, p.Shard, p.Epoch)
		c.acknowledge(cats.Provisioned{Shard: p.Shard, Generation: p.Generation, Reason: cats.ReasonStaleEpoch, Detail: detail})
		return
	}
	if c.out.Provision == nil { // the shell sees only the last of a Step
		c.offered = append(c.offered, offer{shards: maps.Clone(c.provisioning())})
	}
	o := &c.offered[len(c.offered)-1]
	o.shards[p.Shard] = p
	if !slices.Contains(o.asked, p.Shard) {
		o.asked = append(o.asked, p.Shard)
	}
	o.rules = together(o.shards)
	c.out.Provision = o.rules
	c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalProvision, Shard: p.Shard, Provision: p})
}

// provisioning gives what will be in force once the shell has done what it was given.
func (c *Core) provisioning() map[cats.Shard]*cats.Provision {
	if n := len(c.offered); n > 0 {
		return c.offered[n-1].shards
	}
	return c.provisions
}

// together gives the provisions of all shards as one. Its generation changes with that of each of them, and it has
// neither shard nor epoch unless there is one shard only.
func together(shards map[cats.Shard]*cats.Provision) *cats.Provision {
	all := &cats.Provision{}
	seen := make(map[cats.Delivery]bool) // an instance may have services of two shards
	for _, p := range inShardOrder(shards) {
		if len(shards) == 1 {
			return p
		}
		all.Generation += p.Generation
		all.Services = append(all.Services, p.Services...)
		for _, d := range p.Deliveries {
			if !seen[d] {
				seen[d] = true
				all.Deliveries = append(all.Deliveries, d)
			}
		}
	}
	return all
}

func byShard(list []*cats.Provision) map[cats.Shard]*cats.Provision {
	shards := make(map[cats.Shard]*cats.Provision, len(list))
	for _, p := range list {
		shards[p.Shard] = p
	}
	return shards
}

func inShardOrder(shards map[cats.Shard]*cats.Provision) []*cats.Provision {
	list := make([]*cats.Provision, 0, len(shards))
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		list = append(list, shards[shard])
	}
	return list
}

// provisioned takes the shell's answer and acknowledges to the C-PS what is in place. The shell answers again when that
// changes.
func (c *Core) provisioned(r *ProvisionResult) {
	at := slices.IndexFunc(c.offered, func(o offer) bool { return o.rules.Generation == r.Generation })
	if at < 0 {
		if together(c.provisions).Generation == r.Generation && r.Reason == cats.ReasonNone {
			for _, p := range inShardOrder(c.provisions) {
				c.acknowledge(cats.Provisioned{Shard: p.Shard, Generation: p.Generation, Deliveries: own(p, r.Deliveries)})
			}
		}
		return
	}
	answered := c.offered[at]
	asked := make(map[cats.Shard]*cats.Provision)
	for _, o := range c.offered[:at+1] { // an earlier one was replaced before it was applied
		for _, shard := range o.asked {
			asked[shard] = answered.shards[shard]
		}
	}
	c.offered = c.offered[at+1:]
	if r.Reason == cats.ReasonNone {
		c.putInForce(answered.shards)
	}
	for _, p := range inShardOrder(asked) {
		if r.Reason != cats.ReasonNone {
			c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalProvision, Shard: p.Shard, Provision: c.provisioning()[p.Shard]})
		}
		in := own(p, r.Deliveries)
		c.audit(Audit{Event: "provision", Reason: r.Reason, Detail: fmt.Sprintf("shard %d, generation %d: %d services, %d of %d deliveries in place %s",
			p.Shard, p.Generation, len(p.Services), len(in), len(p.Deliveries), r.Detail)})
		c.acknowledge(cats.Provisioned{Shard: p.Shard, Generation: p.Generation, Deliveries: in, Reason: r.Reason, Detail: r.Detail})
	}
}

// own gives those of the deliveries in place that a shard's provision asks for.
func own(p *cats.Provision, inPlace []cats.CSCIID) []cats.CSCIID {
	asked := make(map[cats.CSCIID]bool, len(p.Deliveries))
	for _, d := range p.Deliveries {
		asked[d.CSCIID] = true
	}
	var in []cats.CSCIID
	for _, id := range inPlace {
		if asked[id] {
			in = append(in, id)
		}
	}
	return in
}

func (c *Core) acknowledge(a cats.Provisioned) {
	a.Forwarder = c.cfg.Name
	if c.up {
		c.out.Send.Provisioned = append(c.out.Send.Provisioned, a)
	}
}

func (c *Core) putInForce(shards map[cats.Shard]*cats.Provision) {
	c.provisions = shards
	c.services = newServiceTable(together(shards).Services)
}

// delivers gives the delivery rule in force for a binding's instance, or an error that says what is missing.
func (c *Core) delivers(b *cats.Binding) error {
	if p := c.provisions[b.Shard]; p != nil {
		for _, d := range p.Deliveries {
			if d.CSCIID == b.CSCIID && d.SID == b.Attachment && d.Locator == b.Locator {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no delivery rule for %s at %s behind SID %s: %w",
		c.cfg.Name, b.CSCIID, b.Locator, b.Attachment, cats.ReasonCommitFailed)
}
