package cats_test

import (
	"net/netip"
	"testing"

	"github.com/margay-net/margay/cats"
)

func TestClientOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.10":           "192.0.2.10/32",
		"::ffff:192.0.2.10":    "192.0.2.10/32",
		"2001:db8:0:1::10":     "2001:db8:0:1::/64",
		"2001:db8:0:1:ffff::1": "2001:db8:0:1::/64",
		"fe80::1%eth0":         "fe80::/64",
	} {
		if got := cats.ClientOf(netip.MustParseAddr(address)); got.String() != want {
			t.Errorf("%s counts as %s, want %s", address, got, want)
		}
	}
	if got := cats.ClientOf(netip.Addr{}); got != (netip.Prefix{}) {
		t.Errorf("no address counts as %s", got)
	}
}

func TestTally(t *testing.T) {
	var tally cats.Tally[string]
	if tally.Of("a") != 0 || tally.Len() != 0 {
		t.Fatal("the zero Tally counts something")
	}
	tally.Add("a")
	tally.Add("a")
	tally.Add("b")
	tally.Remove("a")
	if tally.Of("a") != 1 || tally.Of("b") != 1 || tally.Len() != 2 {
		t.Errorf("a %d, b %d, %d keys", tally.Of("a"), tally.Of("b"), tally.Len())
	}
	tally.Remove("a")
	if tally.Of("a") != 0 || tally.Len() != 1 {
		t.Errorf("a %d, %d keys: a key without count is kept", tally.Of("a"), tally.Len())
	}
}
