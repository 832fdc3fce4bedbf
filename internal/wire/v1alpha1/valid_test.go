package v1alpha1

import (
	"net/netip"
	"time"

	"github.com/margay-net/margay/cats"
)

// The values of CP section 14 that the tests start from.

func validKey() cats.FlowKey {
	return cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: cats.Tuple{
		Protocol: cats.TCP,
		Source:   netip.MustParseAddrPort("192.0.2.10:51000"),
		Target:   netip.MustParseAddrPort("192.0.2.100:443"),
	}}
}

func validPath(segments ...string) cats.Path {
	p := cats.Path{Kind: cats.PathSRv6, Nodes: []string{"IF-1", "R1", "EF-2"}, Generation: 7, DelayUS: 1500}
	for _, s := range segments {
		p.Segments = append(p.Segments, netip.MustParseAddr(s))
	}
	return p
}

func validBinding(i int) *cats.Binding {
	key := validKey()
	locator := cats.Locator{Protocol: cats.TCP, Address: netip.MustParseAddrPort("198.51.100.21:443")}
	return &cats.Binding{
		Transaction: numbered(i), Shard: 1, Epoch: cats.Epoch{Term: 2, Counter: 3}, Version: 1, Match: key, CSID: "S1",
		ServiceNumber: 1, CSCIID: "198.51.100.21:443", Locator: locator,
		Attachment: netip.MustParseAddr("2001:db8:0:e2::21"), Ingress: "IF-1", Egress: "EF-2",
		Path: validPath("2001:db8:0:f1::1", "2001:db8:0:e2::21"),
		Reverse: cats.Reverse{
			Service: cats.Tuple{Protocol: cats.TCP, Source: locator.Address, Target: key.Tuple.Source},
			Client:  key.Tuple.Reverse(),
			Restore: key.Tuple.Target,
			Path:    validPath("2001:db8:0:f1::1", "2001:db8:0:1::100"),
		},
		Idle: 2 * time.Hour, Slots: 1, PolicyVersion: "latency-1", Decided: sent,
	}
}

func validHello() *cats.ForwarderHello {
	return &cats.ForwarderHello{
		Name: "EF-1", BootID: "boot-1", LayoutVersion: 1,
		Capabilities: cats.Capabilities{Encapsulations: cats.EncapNone | cats.EncapSRv6, MaxSegments: 10},
		ReturnSID:    netip.MustParseAddr("2001:db8:0:1::100"),
		Attachments:  []cats.ClientAttachment{{Name: "client-1", Tenant: "default", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:c::/64")}}},
		Highest:      []cats.ShardEpoch{{Shard: 1, Epoch: cats.Epoch{Term: 2, Counter: 3}}},
	}
}

func validRequest(i int) *cats.ServiceRequest {
	return &cats.ServiceRequest{
		Transaction: numbered(i), CSID: "S1", Key: validKey(), Ingress: "IF-1", Remaining: 2 * time.Second,
		Constraints:       cats.Constraints{Hard: cats.Bounds{MaxDelayUS: cats.Some[uint32](20_000)}},
		RequestGeneration: cats.Some[uint16](1),
	}
}

func validPathRequest() *cats.PathRequest {
	return &cats.PathRequest{
		Transaction: numbered(0), Headend: "IF-1", Endpoint: netip.MustParseAddr("2001:db8:0:e2::21"), Egress: "EF-2",
		Attachment: "198.51.100.21:443", Domain: "example.margay", Deadline: sent,
		Capabilities: cats.Capabilities{Encapsulations: cats.EncapSRv6, MaxSegments: 10},
	}
}

func validPathReply() *cats.PathReply {
	p := validPath("2001:db8:0:f1::1", "2001:db8:0:e2::21")
	return &cats.PathReply{
		Transaction: numbered(0), Kind: p.Kind, Segments: p.Segments, Nodes: p.Nodes,
		Endpoint: netip.MustParseAddr("2001:db8:0:e2::21"), Egress: "EF-2",
	}
}

func validReport() *cats.SCIReport {
	return &cats.SCIReport{
		CSCIID: "198.51.100.21:443", Site: "edge-2", Epoch: 1, Sequence: 1, Timestamp: sent.Wall(), Interval: 5 * time.Second,
		Services: []cats.ServiceReport{{CSID: "S1", Health: cats.Healthy}, {CSID: "S2", Health: cats.Degraded}},
	}
}

func validHeader(kind cats.UpdateKind) cats.UpdateHeader {
	return cats.UpdateHeader{
		Source: "csma-1", Site: "edge-1", Epoch: 1, Sequence: 1, Timestamp: sent.Wall(), Kind: kind, TTL: 150 * time.Second,
	}
}

func validMetricUpdate() *cats.MetricUpdate {
	return &cats.MetricUpdate{UpdateHeader: validHeader(cats.UpdateFull), Records: []cats.Record{
		{CSID: "S1", CSCIID: "198.51.100.11:443", Health: cats.Healthy, Metrics: cats.Metrics{GAS: 10}},
		{CSID: "S1", CSCIID: "198.51.100.21:443", Health: cats.Healthy, Metrics: cats.Metrics{GAS: 20}},
	}}
}

func validNetworkUpdate() *cats.NetworkUpdate {
	return &cats.NetworkUpdate{
		UpdateHeader: validHeader(cats.UpdateFull),
		Nodes:        []cats.Node{{Name: "IF-1"}, {Name: "R1", SID: netip.MustParseAddr("2001:db8:0:f1::1")}},
		Links:        []cats.Link{{From: "IF-1", To: "R1", DelayUS: 500}},
		Paths:        []cats.NetworkPath{{Headend: "IF-1", Egress: "EF-1", Reachable: true}},
	}
}

func validProvision() *cats.Provision {
	return &cats.Provision{
		Generation: 1,
		Services: []cats.ServiceRule{{
			Number: 1, CSID: "S1", Prefix: netip.MustParsePrefix("192.0.2.100/32"), Protocol: cats.TCP, Port: 443,
		}},
		Deliveries: []cats.Delivery{{
			CSCIID: "198.51.100.21:443", SID: netip.MustParseAddr("2001:db8:0:e2::21"),
			Locator: cats.Locator{Protocol: cats.TCP, Address: netip.MustParseAddrPort("198.51.100.21:443")},
		}},
	}
}
