package cps

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	core "github.com/margay-net/margay/internal/cps"
	"github.com/margay-net/margay/internal/cps/catalogue"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

func domainFor(t *testing.T) *core.Domain {
	t.Helper()
	c, err := catalogue.New(catalogue.Records{
		Services: []catalogue.ServiceRecord{{CSID: "S1", Number: 1, Version: "1", State: catalogue.Published, Tenants: []string{"default"}, Idle: time.Hour}},
		Deployments: []catalogue.Deployment{{Site: "edge-1", CSCIID: "a", CSID: "S1", Version: "1", State: catalogue.Validated,
			Locator: cats.Locator{Protocol: cats.TCP, Address: netip.MustParseAddrPort("198.51.100.11:443")},
			Egress:  []catalogue.EgressAttachment{{Forwarder: "EF-1", SID: netip.MustParseAddr("2001:db8:0:e1::11")}}}},
		Attachments: []catalogue.Attachment{{Ingress: "IF-1", Name: "client-1", Tenant: "default"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &core.Domain{Catalogue: c, Forwarders: []string{"EF-1", "IF-1"}}
}

// said is an update of cnma-1 that builds on the one before.
func said(kind cats.UpdateKind, sequence uint64, u cats.NetworkUpdate) *cats.NetworkUpdate {
	u.UpdateHeader = header("cnma-1", "", sequence)
	u.Kind, u.Base = kind, sequence-1
	return &u
}

func TestTopology(t *testing.T) {
	const start = cats.Instant(time.Hour)
	full := func(top *topology, now cats.Instant) {
		t.Helper()
		u := network(line(500)...)(1)
		if f, changed := top.apply(now, &u); f.Kind != cats.FeedbackApplied || !changed {
			t.Fatalf("%+v", f)
		}
	}
	row := func(t *testing.T, top *topology) cats.NSTRow {
		t.Helper()
		v := top.view(domainFor(t))
		if len(v.Rows) != 1 || v.Rows[0].Headend != "IF-1" || v.Rows[0].Egress != "EF-1" {
			t.Fatalf("%+v", v.Rows)
		}
		return v.Rows[0]
	}
	t.Run("there is no view before a C-NMA has said anything", func(t *testing.T) {
		if v := newTopology(trusttest.Domain).view(domainFor(t)); v != nil {
			t.Errorf("%+v", v)
		}
	})
	t.Run("a refresh makes rows younger and no new generation", func(t *testing.T) {
		top := newTopology(trusttest.Domain)
		full(top, start)
		before := top.view(domainFor(t)).Generation
		if f, changed := top.apply(start+5, said(cats.UpdateRefresh, 2, cats.NetworkUpdate{})); f.Kind != cats.FeedbackApplied || f.Sequence != 2 || !changed {
			t.Fatalf("%+v", f)
		}
		if r := row(t, top); r.Measured != start+5 || top.view(domainFor(t)).Generation != before {
			t.Errorf("%+v", r)
		}
	})
	for _, kind := range []cats.UpdateKind{cats.UpdateDelta, cats.UpdateWithdraw} {
		t.Run("a "+kind.String()+" is refused with a reason, and makes nothing younger", func(t *testing.T) {
			top := newTopology(trusttest.Domain)
			full(top, start)
			u := said(kind, 2, cats.NetworkUpdate{Links: []cats.Link{{From: "R1", To: "EF-1", DelayUS: 900, BandwidthKbps: 1000, TEMetric: 10}}})
			if kind == cats.UpdateWithdraw {
				u.TTL = 0 // which it need not have
			}
			f, changed := top.apply(start+5, u)
			if f.Kind != cats.FeedbackRefused || f.Reason != cats.ReasonUnknownType || !strings.Contains(f.Detail, "send FULL") || changed {
				t.Errorf("%+v", f)
			}
			if r := row(t, top); !r.Reachable || r.Measured != start || r.Metrics.DelayUS != 1000 || top.position("cnma-1").Sequence != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("a FULL that leaves links without ends is refused", func(t *testing.T) {
		top := newTopology(trusttest.Domain)
		full(top, start)
		u := network(line(500)...)(2)
		u.Nodes = u.Nodes[:2]
		f, changed := top.apply(start, &u)
		if f.Kind != cats.FeedbackRefused || f.Reason == cats.ReasonNone || changed || !row(t, top).Reachable || top.position("cnma-1").Sequence != 1 {
			t.Errorf("%+v", f)
		}
	})
	t.Run("what was measured end to end counts more than what is derived", func(t *testing.T) {
		top := newTopology(trusttest.Domain)
		u := network(line(500)...)(1)
		u.Paths = []cats.NetworkPath{{Headend: "IF-1", Egress: "EF-1", Reachable: true, Metrics: cats.PathMetrics{DelayUS: 1234}, Age: time.Second}}
		top.apply(start, &u)
		if r := row(t, top); r.Metrics.DelayUS != 1234 || r.Measured != start.Add(-time.Second) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("SM-9.3-1 what builds on nothing asks for a FULL", func(t *testing.T) {
		if f, _ := newTopology(trusttest.Domain).apply(start, said(cats.UpdateRefresh, 2, cats.NetworkUpdate{})); f.Kind != cats.FeedbackNeedFull || f.Detail == "" {
			t.Errorf("%+v", f)
		}
	})
	t.Run("an update without lifetime is refused", func(t *testing.T) {
		u := network(line(500)...)(1)
		u.TTL = 0
		if f, _ := newTopology(trusttest.Domain).apply(start, &u); f.Kind != cats.FeedbackRefused || f.Reason != cats.ReasonMalformed {
			t.Errorf("%+v", f)
		}
	})
	t.Run("a C-NMA that is not configured any more is forgotten", func(t *testing.T) {
		top := newTopology(trusttest.Domain)
		full(top, start)
		other := network(cats.Link{From: "IF-1", To: "EF-1", DelayUS: 1, BandwidthKbps: 1})(1)
		other.Source = "cnma-2"
		other.Nodes = slices.DeleteFunc(other.Nodes, func(n cats.Node) bool { return n.Name == "R1" })
		if f, _ := top.apply(start, &other); f.Kind != cats.FeedbackApplied {
			t.Fatalf("%+v", f)
		}
		if r := row(t, top); r.Metrics.DelayUS != 1 {
			t.Fatalf("%+v", r)
		}
		if dropped, err := top.retain([]string{"cnma-1"}); !dropped || err != nil {
			t.Fatalf("%v, %v", dropped, err)
		}
		if r := row(t, top); r.Metrics.DelayUS != 1000 {
			t.Errorf("%+v", r)
		}
		if dropped, err := top.retain([]string{"cnma-1"}); dropped || err != nil {
			t.Errorf("%v, %v", dropped, err)
		}
	})
}
