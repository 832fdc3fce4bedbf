package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/lab/namespace"
)

// noCode is the ingress that one can build from the kernel's own parts: nft translates the service address to the one
// instance, a seg6 route encapsulates, End.DX4 takes the replies in, and conntrack restores their source.
type noCode struct {
	node     *namespace.Namespace
	protocol cats.Protocol
	service  netip.AddrPort
	instance netip.AddrPort
	source   netip.Addr // outer
	segments []netip.Addr
	core     string // interface toward the network
	returns  netip.Addr
	client   netip.Addr
}

// setUp makes the node such an ingress. Addresses, neighbours, forwarding and the route to the first segment are the
// caller's.
func (n *noCode) setUp() error {
	return n.node.Do(func() error {
		rules := fmt.Sprintf("table ip bench {\n chain before {\n  type nat hook prerouting priority dstnat\n"+
			"  ip daddr %s %s dport %d dnat to %s\n }\n}\n", n.service.Addr(), n.protocol, n.service.Port(), n.instance)
		return errors.Join(
			command(rules, "nft", "-f", "-"),
			tunnelSource(n.source),
			encapsulate(n.instance.Addr(), n.segments, n.core),
			decapsulate(n.returns, n.client, n.core),
		)
	})
}

// keepFlows makes conntrack of this thread's namespace keep flows that send little.
func keepFlows() error {
	return errors.Join(writeSysctl("netfilter/nf_conntrack_udp_timeout", "3600"),
		writeSysctl("netfilter/nf_conntrack_udp_timeout_stream", "3600"))
}

// checkFlows tells whether conntrack holds exactly the flows that there are. With fewer, packets were translated as if
// each were the first of its flow, and the measurement would be of something else.
func (n *noCode) checkFlows(want int) error {
	return n.node.Do(func() error {
		have, err := readNumber("nf_conntrack_count")
		if err != nil {
			return err
		}
		if have != want {
			return fmt.Errorf("the no-code baseline is invalid: conntrack holds %d flows and there are %d", have, want)
		}
		return nil
	})
}

// command runs a program in the network namespace of this thread.
func command(input string, argv ...string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("%s is not installed; run make setup: %w", argv[0], err)
	}
	c := exec.Command(path, argv[1:]...)
	c.Stdin = strings.NewReader(input)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// tunnelSource sets the outer source of seg6 routes. Without it the kernel selects one anew for every packet, which would
// make the baseline a quarter slower than anyone would leave it.
func tunnelSource(a netip.Addr) error {
	return command("", "ip", "sr", "tunsrc", "set", a.String())
}

// encapsulate routes a host into SRv6 (RFC 8986 H.Encaps).
func encapsulate(to netip.Addr, segments []netip.Addr, iface string) error {
	encap := &netlink.SEG6Encap{Mode: nl.SEG6_IPTUN_MODE_ENCAP}
	for _, s := range slices.Backward(segments) { // the order of the routing header
		encap.Segments = append(encap.Segments, net.IP(s.AsSlice()))
	}
	return addRoute(&netlink.Route{Dst: host(to), Encap: encap}, iface)
}

// decapsulate makes the kernel end a segment and hand IPv4 inside to a neighbour (RFC 8986 End.DX4).
func decapsulate(sid, neighbour netip.Addr, iface string) error {
	encap := &netlink.SEG6LocalEncap{Action: nl.SEG6_LOCAL_ACTION_END_DX4, InAddr: neighbour.AsSlice()}
	encap.Flags[nl.SEG6_LOCAL_ACTION], encap.Flags[nl.SEG6_LOCAL_NH4] = true, true
	return addRoute(&netlink.Route{Dst: host(sid), Encap: encap}, iface)
}

// routeVia routes a host over a gateway.
func routeVia(to, gateway netip.Addr, iface string) error {
	return addRoute(&netlink.Route{Dst: host(to), Gw: gateway.AsSlice()}, iface)
}

func addRoute(r *netlink.Route, iface string) error {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", iface, err)
	}
	r.LinkIndex = link.Attrs().Index
	if err := netlink.RouteAdd(r); err != nil {
		return fmt.Errorf("route to %s: %w", r.Dst, err)
	}
	return nil
}

const netfilter = "/proc/sys/net/netfilter"

func readNumber(name string) (int, error) {
	data, err := os.ReadFile(filepath.Join(netfilter, name))
	if err != nil {
		return 0, fmt.Errorf("conntrack: %w", err)
	}
	v, err := strconv.Atoi(string(bytes.TrimSpace(data)))
	if err != nil {
		return 0, fmt.Errorf("conntrack: %s: %w", name, err)
	}
	return v, nil
}

// prepareNetfilter makes conntrack fit for the baseline: hooks where the kernel encapsulates and decapsulates, without
// which no flow is ever confirmed, and room. Both are of the whole machine. The room is given back by restore; the hooks
// cannot be taken away again.
func prepareNetfilter(flows int, note func(string, ...any)) (restore func() error, err error) {
	hooks, err := readNumber("nf_hooks_lwtunnel")
	if err != nil {
		return nil, fmt.Errorf("the no-code baseline needs conntrack and netfilter hooks in lightweight tunnels: %w", err)
	}
	if hooks == 0 {
		if err := writeSysctl("netfilter/nf_hooks_lwtunnel", "1"); err != nil {
			return nil, err
		}
		note("net.netfilter.nf_hooks_lwtunnel is now 1 on this machine, and stays so until it boots again")
	}
	var undo []func() error
	restore = func() error {
		var errs []error
		for _, f := range slices.Backward(undo) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	for _, name := range []string{"nf_conntrack_buckets", "nf_conntrack_max"} {
		have, err := readNumber(name)
		if err == nil && have < 2*flows {
			err = writeSysctl("netfilter/"+name, strconv.Itoa(2*flows))
			undo = append(undo, func() error { return writeSysctl("netfilter/"+name, strconv.Itoa(have)) })
		}
		if err != nil {
			return nil, errors.Join(err, restore())
		}
	}
	return restore, nil
}
