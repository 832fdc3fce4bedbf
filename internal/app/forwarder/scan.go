package forwarder

import (
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	core "github.com/margay-net/margay/internal/forwarder"
)

// scan reads the counters of the data plane, and tells the core which halves were used since the last time. The first
// time read must be Usage of the data plane, and then Used.
func (a *App) scan(read func(func(datapath.Usage)) error) error {
	started := a.clock.now()
	counters, err := a.system.plane.Counters()
	if err != nil {
		return err
	}
	a.metrics.counters.Store(&counters)
	var changed []halfKey
	err = read(func(u datapath.Usage) {
		key := halfKey{u.Transaction, halfOf(u.Key.Kind)}
		p := a.system.halves.placed[key]
		if p != nil && p.see(&u) && !p.changed {
			p.changed = true
			changed = append(changed, key)
		}
	})
	if err != nil {
		return err
	}
	for _, key := range changed {
		p := a.system.halves.placed[key]
		p.changed, p.scanned = false, true
		a.in.Usage = append(a.in.Usage, core.Usage{
			Transaction: key.transaction, Half: key.half, Forward: p.forward, Reverse: p.reverse,
			LastSeen: a.clock.at(p.lastSeen), ForwardFlags: p.forwardFlags, ReverseFlags: p.reverseFlags,
		})
	}
	a.in.Scanned = started - cats.Instant(tick)
	return nil
}

func halfOf(k datapath.Kind) cats.Half {
	if k == datapath.IngressForward || k == datapath.IngressReverse {
		return cats.IngressHalf
	}
	return cats.EgressHalf
}

// see takes what one direction counted, and tells whether that is news.
func (p *placed) see(u *datapath.Usage) bool {
	usage, flags := &p.forward, &p.forwardFlags
	if u.Key.Kind == datapath.IngressReverse || u.Key.Kind == datapath.EgressReverse {
		usage, flags = &p.reverse, &p.reverseFlags
	}
	seen := core.TCPFlags(0)
	if u.FIN {
		seen |= core.FIN
	}
	if u.RST {
		seen |= core.RST
	}
	now := cats.Usage{Packets: u.Packets, Octets: u.Octets}
	if p.scanned && *usage == now && *flags == seen {
		return false
	}
	*usage, *flags = now, seen
	p.lastSeen = max(p.lastSeen, u.LastSeen)
	return true
}
