package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/datapath/kernel"
	"github.com/margay-net/margay/internal/lab/namespace"
)

// buildNetwork makes namespaces, wires, addresses and routes. What it made before an error, Down removes.
func (l *Lab) buildNetwork() error {
	for i := range l.topology.Nodes {
		n := &l.topology.Nodes[i]
		ns, err := namespace.New(l.layout.namespace(n.Name))
		if err != nil {
			return err
		}
		l.nodes[n.Name] = &Node{lab: l, Name: string(n.Name), Role: n.Role, namespace: ns}
		if err := ns.Do(func() error { return prepareNode(n) }); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	if err := l.buildMiddle(); err != nil {
		return err
	}
	for i := range l.topology.Links {
		if err := l.wire(i); err != nil {
			return err
		}
	}
	if err := l.wireManagement(); err != nil {
		return err
	}
	for i := range l.topology.Nodes {
		n := &l.topology.Nodes[i]
		if err := l.nodes[n.Name].Do(func() error { return l.topology.addRoutes(n) }); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// prepareNode sets what holds for every interface that the namespace gets later.
func prepareNode(n *NodeSpec) error {
	settings := map[string]string{
		"ipv6/conf/default/accept_dad": "0", // addresses work at once
		"ipv6/conf/default/accept_ra":  "0",
		"ipv6/conf/all/accept_ra":      "0",
		"ipv4/conf/default/rp_filter":  "0",
		"ipv4/conf/all/rp_filter":      "0",
		"ipv4/ping_group_range":        "0 2147483647", // anybody may ping
	}
	if n.Role.core() {
		for _, k := range []string{"ipv4/conf/all/forwarding", "ipv4/conf/default/forwarding", "ipv6/conf/all/forwarding",
			"ipv6/conf/default/forwarding", "ipv6/conf/all/seg6_enabled", "ipv6/conf/default/seg6_enabled"} {
			settings[k] = "1"
		}
	}
	for k, v := range settings {
		if err := writeSysctl(k, v); err != nil {
			return err
		}
	}
	return setUp("lo")
}

func writeSysctl(key, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl net/%s=%s: %w", key, value, err)
	}
	return nil
}

func setUp(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// wire makes the veth pair of a link, or the two of one that can be impaired.
func (l *Lab) wire(i int) error {
	link := &l.topology.Links[i]
	mtu := l.topology.MTU.Access
	if l.topology.node(link.A.Node).Role.core() && l.topology.node(link.B.Node).Role.core() {
		mtu = l.topology.MTU.Core
	}
	a, b := l.nodes[link.A.Node], l.nodes[link.B.Node]
	what := fmt.Sprintf("link %s (%s) to %s (%s)", link.A.Node, link.A.Interface, link.B.Node, link.B.Interface)
	build := l.makePair
	if link.Impairable {
		build = func(a *Node, _ string, b *Node, _ string, mtu int) error { return l.makeMiddle(i, a, b, mtu) }
	}
	if err := build(a, link.A.Interface, b, link.B.Interface, mtu); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, e := range []End{link.A, link.B} {
		if err := l.nodes[e.Node].Do(func() error { return bringUp(e.Interface, e.Addresses, true) }); err != nil {
			return fmt.Errorf("%s: node %s: %w", what, e.Node, err)
		}
	}
	if link.Impairable {
		if err := l.joinMiddle(i); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// bringUp gives an interface its addresses and turns it up. On a data link every packet must be on the wire as the
// program that sent it made it: no partial checksums, no segments for a device to cut, and none put together.
func bringUp(name string, addrs []InterfaceAddress, data bool) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	for _, p := range addrs {
		a := &netlink.Addr{IPNet: ipNet(p.Prefix)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return fmt.Errorf("interface %s: address %s: %w", name, p, err)
		}
	}
	if data {
		if err := plainPackets(link); err != nil {
			return err
		}
	}
	if err := setUp(name); err != nil || !data {
		return err
	}
	// Only while the interface is up does veth tell its peer that redirected frames are taken here.
	return kernel.SetOffload(name, kernel.OffloadGRO, true)
}

// plainPackets turns offloads off. GRO alone will be on: it gives a veth end the receive loop without which frames that
// XDP redirects to it are lost; a size limit of one octet keeps it from joining any.
func plainPackets(link netlink.Link) error {
	name := link.Attrs().Name
	for _, o := range []kernel.Offload{kernel.OffloadTSO, kernel.OffloadGSO, kernel.OffloadTxChecksum, kernel.OffloadGRO} {
		if err := kernel.SetOffload(name, o, false); err != nil {
			return err
		}
	}
	for _, set := range []func(netlink.Link, int) error{netlink.LinkSetGROMaxSize, netlink.LinkSetGROIPv4MaxSize} {
		if err := set(link, 1); err != nil {
			return fmt.Errorf("interface %s: GRO size limit: %w", name, err)
		}
	}
	return nil
}

// wireManagement joins every node with a management address to a bridge in the management node.
func (l *Lab) wireManagement() error {
	hub := l.nodes[l.topology.role(Management)[0].Name]
	if err := hub.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "br0"
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return fmt.Errorf("bridge: %w", err)
		}
		return setUp("br0")
	}); err != nil {
		return fmt.Errorf("management network: %w", err)
	}
	for i := range l.topology.Nodes {
		n := &l.topology.Nodes[i]
		if !n.Management.IsValid() {
			continue
		}
		if err := l.joinManagement(hub, n, "port"+strconv.Itoa(i)); err != nil {
			return fmt.Errorf("management network: node %s: %w", n.Name, err)
		}
	}
	return nil
}

func (l *Lab) joinManagement(hub *Node, n *NodeSpec, port string) error {
	node := l.nodes[n.Name]
	if err := hub.Do(func() error {
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex = port, bridge.Attrs().Index
		if err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: managementInterface, PeerNamespace: netlink.NsFd(node.namespace.Fd()),
		}); err != nil {
			return err
		}
		return setUp(port)
	}); err != nil {
		return err
	}
	return node.Do(func() error {
		return bringUp(managementInterface, []InterfaceAddress{{netip.PrefixFrom(n.Management, l.topology.Management.Bits())}}, false)
	})
}

// addRoutes gives a node what it needs to reach the others: hosts a default route over their forwarder, core nodes a
// route to the prefix of each other one, routers their End SID.
func (t *Topology) addRoutes(n *NodeSpec) error {
	switch n.Role {
	case Client, Instance:
		return t.addDefaults(n)
	case Forwarder, Router:
		if n.Source.IsValid() {
			if err := bringUp("lo", []InterfaceAddress{{netip.PrefixFrom(n.Source, 128)}}, false); err != nil {
				return err
			}
		}
		if n.Role == Router {
			if err := addEnd(n.SID, t.ends(n.Name)[0].here.Interface); err != nil {
				return err
			}
		}
		return t.addCoreRoutes(n)
	}
	return nil
}

func (t *Topology) addDefaults(n *NodeSpec) error {
	for _, v6 := range []bool{false, true} {
		for _, e := range t.ends(n.Name) {
			gw, ok := e.there.gateway(v6)
			if !ok {
				continue
			}
			everything := netip.MustParsePrefix("0.0.0.0/0")
			if v6 {
				everything = netip.MustParsePrefix("::/0")
			}
			if err := addRoute(everything, gw, e.here.Interface, netip.Addr{}); err != nil {
				return err
			}
			break // a host with several links uses the first of the file
		}
	}
	return nil
}

func (t *Topology) addCoreRoutes(n *NodeSpec) error {
	hops := firstHops(t.coreEdges(), n.Name)
	for i := range t.Nodes {
		to := &t.Nodes[i]
		h, ok := hops[to.Name]
		if !ok || to.Name == n.Name {
			continue
		}
		gw, _ := h.edge.in.gateway(true)
		// The addresses of links are not routed beyond them: what a forwarder itself sends carries its source address.
		if err := addRoute(to.Prefix, gw, h.edge.out.Interface, n.Source); err != nil {
			return err
		}
	}
	return nil
}

// addRoute adds a route with a preferred source, unless that is the zero Addr.
func addRoute(to netip.Prefix, gw netip.Addr, iface string, source netip.Addr) error {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", iface, err)
	}
	route := netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Gw: gw.AsSlice()}
	if source.IsValid() {
		route.Src = source.AsSlice()
	}
	if err := netlink.RouteAdd(&route); err != nil {
		return fmt.Errorf("route to %s via %s: %w", to, gw, err)
	}
	return nil
}

// addEnd makes the kernel an SRv6 endpoint (RFC 8986 End) for a SID.
func addEnd(sid netip.Addr, iface string) error {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", iface, err)
	}
	end := netlink.SEG6LocalEncap{Action: nl.SEG6_LOCAL_ACTION_END}
	end.Flags[nl.SEG6_LOCAL_ACTION] = true
	err = netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(sid, 128)), Encap: &end})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("SRv6 endpoint %s: this kernel has no seg6local; it needs CONFIG_IPV6_SEG6_LWTUNNEL: %w", sid, err)
	}
	if err != nil {
		return fmt.Errorf("SRv6 endpoint %s: %w", sid, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
