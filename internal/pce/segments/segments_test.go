package segments

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-net/margay/cats"
)

func TestSRv6(t *testing.T) {
	sid := func(s string) netip.Addr { return netip.MustParseAddr("2001:db8::" + s) }
	end := sid("e1:11")
	ingress, r1, r2, egress := cats.Node{Name: "IF-1"}, cats.Node{Name: "R1", SID: sid("1")}, cats.Node{Name: "R2", SID: sid("2")}, cats.Node{Name: "EF-1", SID: sid("e")}
	for _, c := range []struct {
		name string
		path []cats.Node
		want []netip.Addr
	}{
		{"one node", []cats.Node{ingress}, []netip.Addr{end}},
		{"one link", []cats.Node{ingress, egress}, []netip.Addr{end}},
		{"one transit node", []cats.Node{ingress, r1, egress}, []netip.Addr{sid("1"), end}},
		{"two transit nodes", []cats.Node{ingress, r2, r1, egress}, []netip.Addr{sid("2"), sid("1"), end}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := SRv6(c.path, end, 3)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("segments %v, %v; want %v", got, err, c.want)
			}
			if n := Count(len(c.path) - 1); n != len(c.want) {
				t.Errorf("counted %d segments, want %d", n, len(c.want))
			}
			if got, err := SRv6(c.path, end, len(c.want)); err != nil {
				t.Errorf("as many segments as the headend can push: %v, %v", got, err)
			}
		})
	}
	t.Run("CP-8.3-1 a list longer than the headend can push is refused", func(t *testing.T) {
		got, err := SRv6([]cats.Node{ingress, r2, r1, egress}, end, 2)
		if got != nil || !errors.Is(err, cats.ReasonCapabilityMismatch) || !strings.Contains(err.Error(), "3 segments are more than the 2 that headend IF-1 can push") {
			t.Errorf("segments %v, error %v", got, err)
		}
	})
	t.Run("transit node without SID", func(t *testing.T) {
		got, err := SRv6([]cats.Node{ingress, r1, {Name: "R3"}, egress}, end, 9)
		if got != nil || !errors.Is(err, cats.ReasonNoPath) || !strings.Contains(err.Error(), "transit node R3 has no SID") {
			t.Errorf("segments %v, error %v", got, err)
		}
	})
}

func TestMost(t *testing.T) {
	if n, err := Most("IF-1", cats.Capabilities{Encapsulations: cats.EncapSRv6 | cats.EncapVXLAN, MaxSegments: 10}); n != 10 || err != nil {
		t.Errorf("%d, %v; want 10", n, err)
	}
	for name, c := range map[string]cats.Capabilities{
		"does not encapsulate in SRv6": {Encapsulations: cats.EncapVXLAN | cats.EncapIPIP, MaxSegments: 10},
		"can push no SRv6 segment":     {Encapsulations: cats.EncapSRv6},
	} {
		t.Run("CP-8.3-1 headend "+name, func(t *testing.T) {
			if _, err := Most("IF-1", c); !errors.Is(err, cats.ReasonCapabilityMismatch) || !strings.Contains(err.Error(), "headend IF-1 "+name) {
				t.Errorf("error %v", err)
			}
		})
	}
}
