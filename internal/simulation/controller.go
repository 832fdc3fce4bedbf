package simulation

import (
	"net/netip"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/pce"
	"github.com/margay-net/margay/internal/pce/tedb"
)

const (
	ingressName    = "IF-1"
	attachmentName = "client-1"
	tenantName     = "default"
	serviceID      = cats.CSID("S1")
)

var (
	forwarderNames = []string{"IF-1", "EF-1", "EF-2"}
	serviceAddress = netip.MustParseAddrPort("192.0.2.100:443")
	returnSID      = netip.MustParseAddr("2001:db8:0:1::100")
)

// site is one place with one instance, and what its C-SMA last told.
type site struct {
	source  string
	name    string
	csci    cats.CSCIID
	egress  string
	locator netip.AddrPort
	sid     netip.Addr

	sequence uint64
	told     cats.Record // as the C-PS has it
	known    bool        // by the C-PS since its start
}

// controller is the C-PS: its core, which a crash takes, and the sites that report to it.
type controller struct {
	world       *world
	core        *cps.Core // nil while it is down
	out         cps.Effects
	incarnation uint64
	term        uint64 // in the store
	sessions    uint64 // numbers given out
	wake        cats.Instant
	sites       []*site
	topology    uint64 // generation
	admitted    map[cats.Transaction]cats.CSCIID
}

func newController(w *world) *controller {
	return &controller{
		world: w, admitted: map[cats.Transaction]cats.CSCIID{},
		sites: []*site{
			{source: "csma-0", name: "edge-0", csci: "0", egress: ingressName, locator: netip.MustParseAddrPort("198.51.100.1:443"), sid: netip.MustParseAddr("2001:db8:0:1::1")},
			{source: "csma-1", name: "edge-1", csci: "A", egress: "EF-1", locator: netip.MustParseAddrPort("198.51.100.11:443"), sid: netip.MustParseAddr("2001:db8:0:e1::11")},
			{source: "csma-2", name: "edge-2", csci: "B", egress: "EF-2", locator: netip.MustParseAddrPort("198.51.100.21:443"), sid: netip.MustParseAddr("2001:db8:0:e2::21")},
		},
	}
}

// boot starts the C-PS as a new owner of the shard; of the last one only the term is left.
func (c *controller) boot() {
	c.world.log("C-PS boots with term %d", c.term+1)
	c.incarnation++
	c.term++
	c.core = cps.New(cps.Config{Epoch: cats.Epoch{Term: c.term}, RoutingDomain: "domain"})
	domain := &cps.Domain{Forwarders: forwarderNames, Catalogue: c.catalogue()}
	in := cps.Events{Domain: domain}
	for _, s := range c.sites {
		s.known = false
		domain.Sources = append(domain.Sources, cps.Source{Name: s.source, Site: s.name, Services: []cats.CSID{serviceID}})
		c.sessions++
		in.Sources = append(in.Sources, cps.SourceEvent{Name: s.source, Session: c.sessions, Opened: true})
		in.Sources = append(in.Sources, c.update(s, c.sessions))
	}
	in.Paths = c.paths()
	c.step(&in)
}

// crash ends the C-PS without warning; every session breaks, and it comes back later.
func (c *controller) crash() {
	if c.core == nil {
		return
	}
	c.world.result.Crashes++
	c.world.log("C-PS crashes")
	c.core = nil
	for _, n := range c.world.forwarders {
		n.disconnect()
	}
	c.world.after(c.world.chance.between(50*time.Millisecond, 3*time.Second), c.boot)
}

func (c *controller) catalogue() *catalogue.Catalogue {
	records := catalogue.Records{
		Services: []catalogue.ServiceRecord{{
			CSID: serviceID, Number: 1, Version: "1", State: catalogue.Published, BandPercent: 5, Tenants: []string{tenantName}, Idle: 8 * time.Second,
			Addresses: []catalogue.Address{{Prefix: netip.PrefixFrom(serviceAddress.Addr(), 32), Protocol: cats.UDP, Port: serviceAddress.Port()}},
		}},
		Attachments: []catalogue.Attachment{{Ingress: ingressName, Name: attachmentName, Tenant: tenantName}},
	}
	for _, s := range c.sites {
		records.Deployments = append(records.Deployments, catalogue.Deployment{
			Site: s.name, CSCIID: s.csci, CSID: serviceID, Version: "1", State: catalogue.Validated,
			Locator: cats.Locator{Protocol: cats.UDP, Address: s.locator},
			Egress:  []catalogue.EgressAttachment{{Forwarder: s.egress, SID: s.sid}},
		})
	}
	all, err := catalogue.New(records)
	if err != nil {
		panic(err) // the records above are a constant
	}
	return all
}

// paths derives the network view from links whose delays are drawn anew.
func (c *controller) paths() *cps.PathView {
	c.topology++
	source := tedb.Source{Name: "cnma-1", Measured: c.world.now, TTL: time.Hour, Nodes: []cats.Node{
		{Name: "IF-1"}, {Name: "EF-1"}, {Name: "EF-2"},
		{Name: "R1", SID: netip.MustParseAddr("2001:db8:0:f1::1")}, {Name: "R2", SID: netip.MustParseAddr("2001:db8:0:f2::1")},
	}}
	for _, router := range []string{"R1", "R2"} {
		for _, edge := range forwarderNames {
			delay := uint32(c.world.chance.between(100, 20_000))
			source.Links = append(source.Links,
				cats.Link{From: edge, To: router, DelayUS: delay}, cats.Link{From: router, To: edge, DelayUS: delay})
		}
	}
	snapshot, err := pce.Build("domain", c.topology, source)
	if err != nil {
		panic(err) // the topology above is a constant but for its delays
	}
	return &cps.PathView{Generation: c.topology, Rows: snapshot.Rows([]string{ingressName}, forwarderNames), PCE: snapshot}
}

// moveLinks changes the topology every now and then.
func (c *controller) moveLinks() {
	c.world.after(c.world.chance.between(time.Second, 6*time.Second), func() {
		if !c.world.faults {
			return
		}
		if c.core != nil {
			c.step(&cps.Events{Paths: c.paths()})
		}
		c.moveLinks()
	})
}

// report lets every site report something new again and again: few slots, none, or a failed instance.
func (c *controller) report() {
	c.world.after(c.world.chance.between(100*time.Millisecond, 2*time.Second), func() {
		if !c.world.faults {
			return
		}
		if c.core != nil {
			s := c.sites[c.world.chance.below(len(c.sites))]
			c.sessions++
			c.step(&cps.Events{Sources: []cps.SourceEvent{{Name: s.source, Session: c.sessions, Opened: true}, c.update(s, c.sessions)}})
		}
		c.report()
	})
}

// update gives a FULL of one site with metrics that are drawn anew.
func (c *controller) update(s *site, session uint64) cps.SourceEvent {
	s.sequence++
	health := cats.Healthy
	switch c.world.chance.below(12) {
	case 0:
		health = cats.Unhealthy
	case 1:
		health = cats.HealthUnknown
	case 2:
		health = cats.Degraded
	}
	s.told = cats.Record{
		CSID: serviceID, CSCIID: s.csci, Version: "1", Health: health, Reporting: cats.ReportingHealthy,
		Metrics:     cats.Metrics{GAS: uint32(c.world.chance.below(6)), ComputingTimeMS: uint32(1 + c.world.chance.below(20))},
		ReportEpoch: 1, ReportSequence: s.sequence,
	}
	s.known = true
	return cps.SourceEvent{Name: s.source, Session: session, Update: &cats.MetricUpdate{
		UpdateHeader: cats.UpdateHeader{Source: s.source, Site: s.name, Epoch: 1, Sequence: s.sequence,
			Timestamp: c.world.now.Wall(), Kind: cats.UpdateFull, TTL: 150 * time.Second},
		Records: []cats.Record{s.told},
	}}
}

func (c *controller) receive(name string, session uint64, batch cats.ForwarderBatch) {
	if c.core != nil {
		c.step(&cps.Events{Forwarders: []cps.ForwarderEvent{{Name: name, Session: session, Batch: batch}}})
	}
}

func (c *controller) closed(name string, session uint64) {
	if c.core != nil {
		c.step(&cps.Events{Forwarders: []cps.ForwarderEvent{{Name: name, Session: session, Closed: true}}})
	}
}

// step is the shell of the core.
func (c *controller) step(in *cps.Events) {
	w := c.world
	w.result.Steps++
	next := c.core.Step(w.now, in, &c.out)
	w.checkAdmissions(c)
	for i := range c.out.Steering {
		s := c.out.Steering[i]
		c.logSteering(&s)
		for _, n := range w.forwarders {
			if n.name == s.Forwarder && n.session != nil && n.session.number == s.Session {
				w.send(n, n.session, false, func() { n.obey(&s.Batch) })
			}
		}
	}
	c.wake = next
	if next == cats.Never {
		return
	}
	incarnation := c.incarnation
	w.at(next, func() {
		if c.core != nil && c.incarnation == incarnation && c.wake == next {
			c.step(&cps.Events{})
		}
	})
}

func (c *controller) logSteering(s *cps.Steering) {
	for _, r := range s.Batch.Removes {
		c.world.log("C-PS -> %s: remove %s %s %s", s.Forwarder, r.Transaction, r.Half, r.Reason)
	}
	for _, d := range s.Batch.Drains {
		c.world.log("C-PS -> %s: drain %s %s %s", s.Forwarder, d.Transaction, d.Half, d.Reason)
	}
	for _, i := range s.Batch.Installs {
		c.world.log("C-PS -> %s: install %s %s at %s", s.Forwarder, i.Binding.Transaction, i.Half, i.Binding.CSCIID)
	}
	for _, r := range s.Batch.Refusals {
		c.world.log("C-PS -> %s: refuse %s %s %s", s.Forwarder, r.Transaction, r.Reason, r.Stage)
	}
}
