package kernel_test

import (
	"os"
	"strings"
	"testing"

	"github.com/margay-net/margay/internal/datapath/kernel"
)

func TestCheckFindsEachThingThatTheForwarderNeeds(t *testing.T) {
	t.Parallel()
	forwarder, other := newNamespace(t, "fw"), newNamespace(t, "other")
	wire(t, forwarder, "client0", nil, other, "eth0", nil)
	wire(t, forwarder, "core0", nil, other, "eth1", nil)
	good := map[string]string{
		"ipv6/conf/all/forwarding": "1", "ipv4/conf/client0/forwarding": "1", "ipv4/conf/core0/forwarding": "1",
		"ipv6/conf/client0/forwarding": "1", "ipv6/conf/core0/forwarding": "1",
		"ipv4/conf/all/rp_filter": "0", "ipv4/conf/core0/rp_filter": "0",
	}
	all := kernel.Interfaces{Attachments: []string{"client0"}, Core: []string{"core0"}}
	in(t, forwarder, func() error {
		if err := kernel.SetOffload("client0", kernel.OffloadRxVLAN, true); err != nil {
			return err
		}
		l, err := os.ReadFile("/proc/sys/net/ipv6/conf/core0/mtu")
		if err == nil && strings.TrimSpace(string(l)) != "1500" {
			t.Errorf("MTU %s, want 1500: the MTU case below needs it", l)
		}
		return err
	})
	for _, c := range []struct {
		name         string
		set          map[string]string
		unprepared   bool
		interfaces   kernel.Interfaces
		hard         bool
		where, words string
	}{
		{name: "IPv6 forwarding", set: map[string]string{"ipv6/conf/all/forwarding": "0"}, hard: true, where: "net.ipv6.conf.all.forwarding", words: "forwarding is off"},
		{name: "IPv4 forwarding", set: map[string]string{"ipv4/conf/client0/forwarding": "0"}, hard: true, where: "client0", words: "ipv4 forwarding is off"},
		{name: "IPv6 forwarding of one", set: map[string]string{"ipv6/conf/core0/forwarding": "0"}, hard: true, where: "core0", words: "ipv6 forwarding is off"},
		{name: "proxy_ndp", set: map[string]string{"ipv6/conf/client0/proxy_ndp": "0"}, unprepared: true, hard: true, where: "client0", words: "proxy_ndp is off"},
		{name: "proxy_delay", set: map[string]string{"ipv4/neigh/client0/proxy_delay": "80"}, unprepared: true, where: "client0", words: "delayed at random"},
		{name: "rp_filter", set: map[string]string{"ipv4/conf/all/rp_filter": "1"}, where: "core0", words: "rp_filter is on"},
		{name: "missing interface", interfaces: kernel.Interfaces{Core: []string{"nowhere0"}}, hard: true, where: "nowhere0", words: "no such interface"},
		{name: "no Ethernet", interfaces: kernel.Interfaces{Core: []string{"lo"}}, hard: true, where: "lo", words: "no Ethernet"},
		{name: "VLAN tags", interfaces: kernel.Interfaces{Attachments: []string{"client0"}, Tagged: []string{"client0"}}, hard: true, where: "client0", words: "takes VLAN tags off"},
		{name: "MTU", where: "core0 (1500)", words: "no room for the encapsulation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			interfaces := c.interfaces
			if interfaces.Attachments == nil && interfaces.Core == nil {
				interfaces = all
			}
			in(t, forwarder, func() error { return sysctl(good) })
			if !c.unprepared {
				in(t, forwarder, func() error { return kernel.Prepare(kernel.Interfaces{Attachments: []string{"client0"}}) })
			}
			in(t, forwarder, func() error { return sysctl(c.set) })
			in(t, forwarder, func() error {
				findings, err := kernel.Check(interfaces)
				for _, f := range findings {
					if f.Where == c.where && strings.Contains(f.What, c.words) {
						if f.Hard != c.hard || f.Remedy == "" {
							t.Errorf("finding %+v, want hard %v and a remedy", f, c.hard)
						}
						return err
					}
				}
				t.Errorf("findings %v, want one about %q at %s", findings, c.words, c.where)
				return err
			})
		})
	}
}

func TestCheckIsContentWithAPreparedForwarder(t *testing.T) {
	t.Parallel()
	forwarder, other := newNamespace(t, "fw"), newNamespace(t, "other")
	wire(t, forwarder, "client0", nil, other, "eth0", nil)
	in(t, forwarder, func() error {
		return sysctl(map[string]string{"ipv6/conf/all/forwarding": "1", "ipv4/conf/client0/forwarding": "1"})
	})
	interfaces := kernel.Interfaces{Attachments: []string{"client0"}}
	in(t, forwarder, func() error { return kernel.Prepare(interfaces) })
	eventually(t, "no findings", func() string {
		var text []string
		in(t, forwarder, func() error {
			findings, err := kernel.Check(interfaces)
			for _, f := range findings {
				text = append(text, f.String())
			}
			return err
		})
		return strings.Join(text, "; ")
	})
}

func TestOffloadsAreSetAndRead(t *testing.T) {
	t.Parallel()
	a, b := newNamespace(t, "off"), newNamespace(t, "off")
	wire(t, a, "eth0", nil, b, "eth0", nil)
	in(t, a, func() error {
		for _, o := range []kernel.Offload{kernel.OffloadTxChecksum, kernel.OffloadTSO, kernel.OffloadGSO, kernel.OffloadGRO, kernel.OffloadRxVLAN} {
			for _, on := range []bool{false, true} {
				if o == kernel.OffloadTSO && on { // needs tx checksums
					continue
				}
				if err := kernel.SetOffload("eth0", o, on); err != nil {
					return err
				}
				if got, err := kernel.GetOffload("eth0", o); err != nil || got != on {
					t.Errorf("%s: got %v, %v after setting %v", o, got, err, on)
				}
			}
		}
		if err := kernel.SetOffload("nowhere0", kernel.OffloadGRO, true); err == nil {
			t.Error("an offload of an interface that does not exist was set")
		}
		return nil
	})
}
