package forwarder

import (
	"fmt"

	"github.com/margay-net/margay/cats"
)

// offer takes what the C-PS provisions. The shell puts it into the data plane; only then it counts here (CP section 9).
func (c *Core) offer(p *cats.Provision) {
	if !c.fence(p.Shard, p.Epoch) {
		detail := c.staleOrder("provision", cats.Transaction{}, p.Shard, p.Epoch)
		c.acknowledge(cats.Provisioned{Generation: p.Generation, Reason: cats.ReasonStaleEpoch, Detail: detail})
		return
	}
	c.offered = append(c.offered, p)
	c.out.Provision = p
	c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalProvision, Provision: p})
}

// provisioned takes the shell's answer and acknowledges to the C-PS what is in place. The shell answers again when that
// changes.
func (c *Core) provisioned(r *ProvisionResult) {
	at := -1
	for i, p := range c.offered {
		if p.Generation == r.Generation {
			at = i
			break
		}
	}
	if at < 0 {
		if c.provision != nil && c.provision.Generation == r.Generation && r.Reason == cats.ReasonNone {
			c.acknowledge(cats.Provisioned{Generation: r.Generation, Deliveries: r.Deliveries})
		}
		return
	}
	p := c.offered[at]
	c.offered = c.offered[at+1:] // an earlier one was replaced before it was applied
	if r.Reason == cats.ReasonNone {
		c.putInForce(p)
	} else {
		c.out.Journal = append(c.out.Journal, JournalEntry{Kind: JournalProvision, Provision: c.provision})
	}
	c.audit(Audit{Event: "provision", Reason: r.Reason, Detail: fmt.Sprintf("generation %d: %d services, %d of %d deliveries in place %s",
		p.Generation, len(p.Services), len(r.Deliveries), len(p.Deliveries), r.Detail)})
	c.acknowledge(cats.Provisioned{Generation: p.Generation, Deliveries: r.Deliveries, Reason: r.Reason, Detail: r.Detail})
}

func (c *Core) acknowledge(a cats.Provisioned) {
	a.Forwarder = c.cfg.Name
	if c.up {
		c.out.Send.Provisioned = &a
	}
}

func (c *Core) putInForce(p *cats.Provision) {
	c.provision = p
	c.services = newServiceTable(nil)
	if p != nil {
		c.services = newServiceTable(p.Services)
	}
}

// delivers gives the delivery rule in force for a binding's instance, or an error that says what is missing.
func (c *Core) delivers(b *cats.Binding) error {
	if c.provision != nil {
		for _, d := range c.provision.Deliveries {
			if d.CSCIID == b.CSCIID && d.SID == b.Attachment && d.Locator == b.Locator {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no delivery rule for %s at %s behind SID %s: %w",
		c.cfg.Name, b.CSCIID, b.Locator, b.Attachment, cats.ReasonCommitFailed)
}
