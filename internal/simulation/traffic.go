package simulation

import (
	"net/netip"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

// flowCount is few, so that keys are used again and again.
const flowCount = 12

// clients sends UDP packets of a few flows to the service.
type clients struct {
	carried map[cats.Transaction]cats.CSCIID // where packets of a transaction went
}

func (c *clients) begin(w *world) {
	c.carried = map[cats.Transaction]cats.CSCIID{}
	c.send(w)
}

func (c *clients) send(w *world) {
	w.after(w.chance.between(time.Millisecond, 150*time.Millisecond), func() {
		if !w.faults {
			return
		}
		w.result.Packets++
		source := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.10"), uint16(50_000+w.chance.below(flowCount)))
		key := cats.FlowKey{Attachment: attachmentName, Tenant: tenantName,
			Tuple: cats.Tuple{Protocol: cats.UDP, Source: source, Target: serviceAddress}}
		ingress := w.forwarders[0]
		if s, found := ingress.byKey[key]; found {
			w.carry(ingress, s)
		} else {
			ingress.miss(key)
		}
		c.send(w)
	})
}

// carry takes a packet of an established flow through both data planes and, mostly, an answer back.
func (w *world) carry(ingress *node, s slot) {
	entry := ingress.plane[s]
	w.checkCarried(entry)
	entry.count(w, w.chance.happens(3))
	for _, n := range w.forwarders {
		if e := n.plane[slot{s.transaction, cats.EgressHalf}]; e != nil {
			e.count(w, false)
		}
	}
}

func (e *planeEntry) count(w *world, silent bool) {
	e.usage.Forward.Packets++
	if !silent {
		e.usage.Reverse.Packets++
	}
	if !e.draining {
		e.usage.LastSeen = w.now
	}
}

// obey hands a message of the C-PS to the core.
func (n *node) obey(batch *cats.SteeringBatch) {
	if n.core != nil {
		n.step(&forwarder.Events{Steering: []*cats.SteeringBatch{batch}})
	}
}
