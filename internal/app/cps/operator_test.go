package cps

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/cps/catalogue"
)

func TestClientOfAPrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"192.0.2.0/24": "192.0.2.10", "192.0.2.0/29": "192.0.2.6", "192.0.2.4/31": "192.0.2.4", "192.0.2.7/32": "192.0.2.7",
		"2001:db8:c::/64": "2001:db8:c::a", "255.255.255.252/30": "255.255.255.254", "2001:db8::1/128": "2001:db8::1",
	} {
		if got := hostOf(netip.MustParsePrefix(prefix)); got.String() != want {
			t.Errorf("%s: %s, want %s", prefix, got, want)
		}
	}
	all := []cats.ClientAttachment{{Name: "a", Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8:c::/64"), netip.MustParsePrefix("192.0.2.0/24")}},
		{Name: "open", Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}, {Name: "bare"}}
	target := netip.MustParseAddr("198.51.100.1")
	if got, err := clientOf("IF-1", "a", all, target); err != nil || got != netip.MustParseAddrPort("192.0.2.10:49152") {
		t.Errorf("%s, %v", got, err)
	}
	for _, name := range []string{"open", "bare"} {
		if _, err := clientOf("IF-1", name, all, target); err == nil || !strings.Contains(err.Error(), "attachment "+name+" at IF-1 takes clients of every address: name a source") {
			t.Errorf("%v", err)
		}
	}
	if got, err := clientOf("IF-1", "c", all, target); err != nil || got.IsValid() {
		t.Errorf("%s, %v", got, err)
	}
}

func TestIdentityOf(t *testing.T) {
	c, err := catalogue.New(catalogue.Records{Services: []catalogue.ServiceRecord{
		{CSID: "S1", Number: 7, Version: "1", State: catalogue.Published, Tenants: []string{"default"}, Idle: time.Hour},
		{CSID: "9", Number: 8, Version: "1", State: catalogue.Published, Tenants: []string{"default"}, Idle: time.Hour},
		{CSID: "S3", Number: 9, Version: "1", State: catalogue.Published, Tenants: []string{"default"}, Idle: time.Hour},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]cats.CSID{"S1": "S1", "7": "S1", "8": "9", "9": "9", "0": "0", "5": "5", "": "", "+7": "+7"} {
		if got := identityOf(name, c); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
