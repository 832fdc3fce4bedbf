package catalogue

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
)

func locator(p cats.Protocol, s string) cats.Locator {
	return cats.Locator{Protocol: p, Address: netip.MustParseAddrPort(s)}
}

func address(prefix string, p cats.Protocol, port uint16) Address {
	return Address{Prefix: netip.MustParsePrefix(prefix), Protocol: p, Port: port}
}

func service(id cats.CSID, number uint32, addresses ...Address) ServiceRecord {
	return ServiceRecord{CSID: id, Number: number, Version: "1", State: Published, Addresses: addresses, BandPercent: 5,
		Tenants: []string{"default"}, Idle: time.Minute}
}

func deployment(id cats.CSID, csci cats.CSCIID, l cats.Locator, sid string) Deployment {
	return Deployment{Site: "edge-1", CSCIID: csci, CSID: id, Version: "1", State: Validated, Locator: l,
		Egress: []EgressAttachment{{Forwarder: "EF-1", SID: netip.MustParseAddr(sid)}}}
}

// sound are records without a contradiction.
func sound() Records {
	return Records{
		Services: []ServiceRecord{
			service("S1", 1, address("192.0.2.100/32", cats.TCP, 443)),
			service("S2", 2, address("192.0.2.0/24", cats.TCP, 443), address("192.0.2.100/32", cats.TCP, 80)),
			service("S6", 6, address("2001:db8:5::/64", cats.UDP, 53)),
		},
		Deployments: []Deployment{
			deployment("S1", "198.51.100.11:443", locator(cats.TCP, "198.51.100.11:443"), "2001:db8:0:e1::11"),
			deployment("S2", "198.51.100.12:443", locator(cats.TCP, "198.51.100.12:443"), "2001:db8:0:e1::12"),
			deployment("S6", "six", locator(cats.UDP, "[2001:db8:9::1]:53"), "2001:db8:0:e1::66"),
		},
		Attachments: []Attachment{{Ingress: "IF-1", Name: "client-1", Tenant: "default"}},
	}
}

func TestResolve(t *testing.T) {
	c, err := New(sound())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		protocol cats.Protocol
		target   string
		want     cats.CSID
	}{
		{"CP-6-5 an address alone names one service", cats.TCP, "192.0.2.100:443", "S1"},
		{"CP-6-5 CP-8.2-2 a prefix is an interception point, the longest wins", cats.TCP, "192.0.2.101:443", "S2"},
		{"CP-6-5 CP-8.2-2 an address of two services is an interception point that the mapping's port resolves", cats.TCP, "192.0.2.100:80", "S2"},
		{"CP-8.2-2 another port names none", cats.TCP, "192.0.2.101:80", ""},
		{"CP-8.2-2 another protocol names none", cats.UDP, "192.0.2.100:443", ""},
		{"CP-8.2-2 an address outside every service names none", cats.TCP, "203.0.113.1:443", ""},
		{"an IPv6 address", cats.UDP, "[2001:db8:5::7]:53", "S6"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got cats.CSID
			if s := c.Resolve(test.protocol, netip.MustParseAddrPort(test.target)); s != nil {
				got = s.CSID
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	t.Run("a DRAFT is not intercepted, a DEPRECATED service is", func(t *testing.T) {
		r := sound()
		r.Services[0].State, r.Services[1].State = Draft, Deprecated
		c, err := New(r)
		if err != nil {
			t.Fatal(err)
		}
		if s := c.Resolve(cats.TCP, netip.MustParseAddrPort("192.0.2.100:443")); s == nil || s.CSID != "S2" {
			t.Errorf("resolved %v, want the deprecated S2", s)
		}
		if len(c.Rules()) != 3 {
			t.Errorf("rules %v, want those of S2 and S6", c.Rules())
		}
	})
}

func TestDeliveries(t *testing.T) {
	r := sound()
	r.Deployments[1].State = Revoked
	c, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("CP-9-5 each deployment has a delivery rule at its egress, unless it is REVOKED", func(t *testing.T) {
		got := c.Deliveries("EF-1")
		if len(got) != 2 || got[0].CSCIID != "198.51.100.11:443" || got[1].CSCIID != "six" {
			t.Errorf("deliveries %v", got)
		}
		if got := c.Deliveries("EF-2"); got != nil {
			t.Errorf("deliveries of another egress %v", got)
		}
	})
}

func TestContradictions(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Records)
		want   []string // all in one error
	}{
		{"equal address keys", func(r *Records) { r.Services[1].Addresses[0] = r.Services[0].Addresses[0] },
			[]string{"service S2: address tcp 192.0.2.100/32:443 already belongs to service S1"}},
		{"a number used twice", func(r *Records) { r.Services[1].Number = 1 }, []string{"service S2: number 1 already belongs to S1"}},
		{"a CS-ID used twice", func(r *Records) { r.Services[1].CSID = "S1" }, []string{"service S1: given twice"}},
		{"a locator of another family", func(r *Records) { r.Deployments[0].Locator = locator(cats.TCP, "[2001:db8::1]:443") },
			[]string{"deployment 198.51.100.11:443 of S1: locator tcp [2001:db8::1]:443 and service address tcp 192.0.2.100/32:443 are of different address families"}},
		{"a locator of another protocol", func(r *Records) { r.Deployments[0].Locator.Protocol = cats.UDP }, []string{"different protocols"}},
		{"an unknown service", func(r *Records) { r.Deployments[0].CSID = "S9" }, []string{"the catalogue has no service S9"}},
		{"a SID used twice", func(r *Records) { r.Deployments[1].Egress[0].SID = r.Deployments[0].Egress[0].SID },
			[]string{"SID 2001:db8:0:e1::11 is already the attachment of 198.51.100.11:443 at EF-1"}},
		{"two SIDs for one attachment", func(r *Records) {
			d := deployment("S2", "198.51.100.11:443", locator(cats.TCP, "198.51.100.11:443"), "2001:db8::bad")
			r.Deployments = append(r.Deployments, d)
		}, []string{"SID 2001:db8::bad, but another service gives this attachment 2001:db8:0:e1::11"}},
		{"an instance at two locators", func(r *Records) { r.Deployments[1].CSCIID = "198.51.100.11:443" }, []string{"but another service has the same instance"}},
		{"one service twice on one locator", func(r *Records) {
			d := deployment("S1", "again", r.Deployments[0].Locator, "2001:db8::1")
			r.Deployments = append(r.Deployments, d)
		}, []string{"already belongs to 198.51.100.11:443 of the same service"}},
		{"gas_mode remaining", func(r *Records) { r.Services[0].GASMode = Remaining }, []string{"service S1: gas_mode remaining is not supported yet"}},
		{"VALIDATED without egress", func(r *Records) { r.Deployments[0].Egress = nil }, []string{"VALIDATED without an egress attachment"}},
		{"an IPv4 SID", func(r *Records) { r.Deployments[0].Egress[0].SID = netip.MustParseAddr("192.0.2.1") }, []string{"is not an IPv6 address"}},
		{"an attachment twice", func(r *Records) { r.Attachments = append(r.Attachments, r.Attachments[0]) }, []string{"attachment client-1 at IF-1: given twice"}},
		{"host bits in a prefix", func(r *Records) { r.Services[1].Addresses[0].Prefix = netip.MustParsePrefix("192.0.2.7/24") }, []string{"write 192.0.2.0/24"}},
		{"every mistake at once", func(r *Records) { r.Services[0].Number, r.Services[1].Idle, r.Deployments[2].CSID = 0, 0, "S9" },
			[]string{"number must be above 0", "idle must be above 0", "no service S9"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := sound()
			test.change(&r)
			c, err := New(r)
			if err == nil {
				t.Fatalf("accepted: %v", c.Records())
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q", err, want)
				}
			}
		})
	}
	t.Run("two services on one locator and port are warned of", func(t *testing.T) {
		r := sound()
		r.Deployments = append(r.Deployments, deployment("S2", "198.51.100.11:443", r.Deployments[0].Locator, "2001:db8:0:e1::11"))
		c, err := New(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Warnings()) != 1 || !strings.Contains(c.Warnings()[0], "tuple-in-use") {
			t.Errorf("warnings %q", c.Warnings())
		}
		if got := c.Deliveries("EF-1"); len(got) != 3 {
			t.Errorf("a shared instance has %v, want one rule", got)
		}
	})
}

func TestSuccession(t *testing.T) {
	before, err := New(sound())
	if err != nil {
		t.Fatal(err)
	}
	r := sound()
	r.Services[0].CSID, r.Deployments[0].CSID = "S7", "S7"
	after, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := after.CheckSuccession(before); err == nil || !strings.Contains(err.Error(), "service S7: number 1 belonged to S1") {
		t.Errorf("%v", err)
	}
	if err := before.CheckSuccession(before); err != nil {
		t.Error(err)
	}
	if err := before.CheckSuccession(nil); err != nil {
		t.Error(err)
	}
}
