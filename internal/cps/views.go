package cps

import (
	"maps"
	"slices"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/cps/cst"
	"github.com/margay-net/margay/internal/cps/selection"
)

// The views are copies for operators. They are taken by the goroutine that calls Step, between two Steps.

// ServiceView is a service with what is available of it.
type ServiceView struct {
	Service        catalogue.ServiceRecord
	Deployments    int
	Eligible       int    // instances that an admission could use now, the path aside
	EffectiveSlots uint64 // of the eligible ones
	Bindings       int    // flows that hold slots
}

// InstanceView is a deployment, or a CST row that has none, with what is known of it.
type InstanceView struct {
	Instance       catalogue.Instance
	Deployment     *catalogue.Deployment // nil: the catalogue has none
	Report         *ReportView           // nil: nothing was reported
	Debited        uint64
	EffectiveSlots uint32 // 0 where it is not eligible
	Bindings       int    // flows that hold slots
	Delivering     []string
	Stage          selection.Stage // first filter that would remove it whatever the ingress
}

// ReportView is a CST row at one instant.
type ReportView struct {
	cst.Row
	Validity cats.Validity
	Age      time.Duration
}

// PathRowView is an NST row at one instant.
type PathRowView struct {
	cats.NSTRow
	TableGeneration uint64 // of the NST
	Validity        cats.Validity
	Age             time.Duration
}

// FlowView is a row of the flow binding table.
type FlowView struct {
	Binding cats.Binding
	State   cats.FlowState
	Forward cats.Usage
	Reverse cats.Usage
	PathUp  bool
	Age     time.Duration // since the decision, or the request where there is none
	Reason  cats.Reason   // why it ends
}

// ForwarderView is a forwarder as the core knows it.
type ForwarderView struct {
	Name         string
	Connected    bool
	Since        cats.Instant // its session began or ended; zero: never seen
	Hello        cats.ForwarderHello
	Sent         uint64 // generation of the last provision
	Acknowledged uint64
	Refused      cats.Reason // of the last provision
	Deliveries   []cats.CSCIID
	Bindings     int // that it owns as the ingress
}

// Catalogue gives the catalogue in use and its generation.
func (c *Core) Catalogue() (*catalogue.Catalogue, uint64) { return c.catalogue, c.domains }

// Generations gives those of the CST and the NST.
func (c *Core) Generations() (cst, nst uint64) { return c.cst.Generation(), c.nst.Generation() }

func (c *Core) reportView(row *cst.Row) *ReportView {
	return &ReportView{Row: *row, Validity: row.Validity(c.now), Age: row.Age(c.now)}
}

// Instances gives every deployment, and every row that no deployment authorizes, by CS-ID and CSCI-ID.
func (c *Core) Instances(now cats.Instant) []InstanceView {
	c.now = now
	bindings := make(map[catalogue.Instance]int)
	for _, r := range c.flows {
		if r.underway() && r.state != cats.Pending || r.state == cats.Active {
			bindings[r.instance()]++
		}
	}
	var all []InstanceView
	for i := range c.catalogue.Records().Deployments {
		d := &c.catalogue.Records().Deployments[i]
		v := c.deploymentView(d)
		v.Bindings = bindings[v.Instance]
		all = append(all, v)
	}
	for _, row := range c.cst.Rows() {
		if c.catalogue.Deployment(row.Instance) == nil {
			all = append(all, InstanceView{Instance: row.Instance, Report: c.reportView(row),
				Debited: c.ledger.Debited(row.Instance), Bindings: bindings[row.Instance], Stage: selection.StageAuthorization})
		}
	}
	slices.SortFunc(all, func(a, b InstanceView) int { return a.Instance.Compare(b.Instance) })
	return all
}

// deploymentView judges a deployment by its best egress, for a tenant of the service and a flow that fits the locator.
func (c *Core) deploymentView(d *catalogue.Deployment) InstanceView {
	about := c.instanceFacts(d)
	about.Encapsulation = true
	instance := catalogue.Instance{CSID: d.CSID, CSCIID: d.CSCIID}
	v := InstanceView{Instance: instance, Deployment: d, Debited: c.ledger.Debited(instance)}
	if about.Report != nil {
		v.Report = c.reportView(about.Report)
	}
	request := &selection.Request{Service: c.catalogue.Service(d.CSID)}
	request.Key.Tuple = cats.Tuple{Protocol: d.Locator.Protocol, Target: d.Locator.Address}
	if tenants := request.Service.Tenants; len(tenants) > 0 {
		request.Key.Tenant = tenants[0]
	}
	v.Stage = selection.InstanceStage(request, &about)
	for _, e := range d.Egress {
		by := about
		c.egressFacts(&by, e)
		if by.Acknowledged {
			v.Delivering = append(v.Delivering, e.Forwarder)
		}
		stage := selection.InstanceStage(request, &by)
		if stage == selection.StageNone || v.Stage != selection.StageNone && stage > v.Stage {
			v.Stage = stage
		}
	}
	if v.Stage == selection.StageNone {
		v.EffectiveSlots = about.Effective
	}
	return v
}

// Services gives every service by CS-ID.
func (c *Core) Services(now cats.Instant) []ServiceView {
	records := c.catalogue.Records().Services
	all := make([]ServiceView, len(records))
	index := make(map[cats.CSID]*ServiceView, len(records))
	for i := range records {
		all[i].Service = records[i]
		index[records[i].CSID] = &all[i]
	}
	for _, i := range c.Instances(now) {
		s := index[i.Instance.CSID]
		if s == nil {
			continue
		}
		s.Bindings += i.Bindings
		if i.Deployment != nil {
			s.Deployments++
		}
		if i.Deployment != nil && i.Stage == selection.StageNone {
			s.Eligible++
			s.EffectiveSlots += uint64(i.EffectiveSlots)
		}
	}
	slices.SortFunc(all, func(a, b ServiceView) int {
		return catalogue.Instance{CSID: a.Service.CSID}.Compare(catalogue.Instance{CSID: b.Service.CSID})
	})
	return all
}

// Paths gives the NST by headend, egress and color.
func (c *Core) Paths(now cats.Instant) []PathRowView {
	c.now = now
	rows := c.nst.Rows()
	all := make([]PathRowView, len(rows))
	for i := range rows {
		all[i] = *c.pathView(&rows[i])
	}
	return all
}

// Flows gives the flows in the order of their transactions.
func (c *Core) Flows(now cats.Instant) []FlowView {
	all, _ := c.FlowPage(now, FlowQuery{})
	return all
}

// FlowQuery selects flows.
type FlowQuery struct {
	CSID   cats.CSID        // empty: all
	CSCIID cats.CSCIID      // empty: all
	After  cats.Transaction // only later ones
	Limit  int              // most of them; 0: all
}

// FlowPage gives the flows that a query selects in the order of their transactions, and how many there are beside After
// and Limit.
func (c *Core) FlowPage(now cats.Instant, q FlowQuery) (page []FlowView, total int) {
	var selected []*record
	for t, r := range c.flows {
		if r.state == cats.Absent || q.CSID != "" && q.CSID != r.binding.CSID || q.CSCIID != "" && q.CSCIID != r.binding.CSCIID {
			continue
		}
		if total++; slices.Compare(t[:], q.After[:]) > 0 {
			selected = append(selected, r)
		}
	}
	slices.SortFunc(selected, compareRecords)
	if q.Limit > 0 && len(selected) > q.Limit {
		selected = selected[:q.Limit]
	}
	page = make([]FlowView, len(selected))
	for i, r := range selected {
		page[i] = r.view(now)
	}
	return page, total
}

func (r *record) view(now cats.Instant) FlowView {
	began := r.began
	if r.binding.Decided != 0 {
		began = r.binding.Decided
	}
	return FlowView{
		Binding: r.binding, State: r.state, Forward: r.forward, Reverse: r.reverse,
		PathUp: r.pathUp[cats.IngressHalf] && r.pathUp[cats.EgressHalf], Age: now.Sub(began), Reason: r.reason,
	}
}

// Forwarders gives the forwarders of the domain, and those that have a session, by name.
func (c *Core) Forwarders() []ForwarderView {
	var all []ForwarderView
	names := slices.AppendSeq(slices.Clone(c.expected), maps.Keys(c.forwarders))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f := c.forwarder(name)
		v := ForwarderView{Name: name, Connected: f.connected, Since: f.since, Hello: f.hello, Refused: f.refused}
		if f.sent != nil {
			v.Sent = f.sent.Generation
		}
		if f.answered {
			v.Acknowledged = v.Sent
		}
		for d := range f.acknowledged {
			v.Deliveries = append(v.Deliveries, d.CSCIID)
		}
		slices.Sort(v.Deliveries)
		v.Deliveries = slices.Compact(v.Deliveries)
		for r := range f.flows {
			if r.binding.Ingress == name && r.state == cats.Active {
				v.Bindings++
			}
		}
		all = append(all, v)
	}
	return all
}
