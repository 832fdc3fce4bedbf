package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/lab/capture"
	"github.com/margay-net/margay/internal/lab/namespace"
)

// Addresses of the example (CP section 14) that both ingresses use.
var (
	ingressSource = netip.MustParseAddr("2001:db8:0:1::1")
	returnSID     = netip.MustParseAddr("2001:db8:0:1::100")
	egressSource  = netip.MustParseAddr("2001:db8:0:e2::1")
	segments      = []netip.Addr{netip.MustParseAddr("2001:db8:0:f1::1"), netip.MustParseAddr("2001:db8:0:e2::12")}
	firstRouter   = netip.MustParseAddr("2001:db8:1:1::2")
	client        = netip.MustParseAddrPort("192.0.2.10:40000")
	service       = netip.MustParseAddrPort("192.0.2.100:5000")
	instance      = netip.MustParseAddrPort("198.51.100.21:5000")
	clients       = netip.MustParsePrefix("10.0.0.0/8")
)

// What a packet has on it behind the ingress, octets: IPv6 header and a segment routing header with two segments.
const outerOctets = 40 + 8 + 2*16

// ingress is one system under test, between a generator and a sink.
type ingress struct {
	name           string
	in, out        *end // its own interfaces
	before, behind *end // the generator's and the sink's
	flows          int
	added          int // octets that it adds to a frame
}

func instruments(s *stage) (generator, sink *namespace.Namespace, err error) {
	if generator, err = s.node("generator"); err != nil {
		return nil, nil, err
	}
	sink, err = s.node("sink")
	return generator, sink, err
}

// newIngress makes the node of a system, and wires it up.
func newIngress(s *stage, name, short string, generator, sink *namespace.Namespace) (*ingress, error) {
	node, err := s.node(short)
	if err != nil {
		return nil, err
	}
	i := &ingress{name: name}
	if i.before, i.in, err = wire(generator, short, node, "client0"); err != nil {
		return nil, err
	}
	if i.out, i.behind, err = wire(node, "core0", sink, short); err != nil {
		return nil, err
	}
	return i, nil
}

// tableOf gives the number of bindings that the table is made for.
func tableOf(flows int) uint32 { return max(65536, uint32(flows)) }

// linesOf is how many lines of 64 octets Margay's table has for so many bindings: two entries of each, and twice as many
// lines.
func linesOf(bindings uint32) uint32 { return 4 * bindings }

// newMargay makes an ingress of Margay's data plane with both halves' entries of so many bindings.
func newMargay(s *stage, flows int, generator, sink *namespace.Namespace) (*ingress, func() error, error) {
	i, err := newIngress(s, "Margay", "margay", generator, sink)
	if err != nil {
		return nil, nil, err
	}
	i.flows, i.added = flows, outerOctets
	pins := fmt.Sprintf("/sys/fs/bpf/margay/bench%d", os.Getpid())
	unload := func() error { return i.in.node.Do(func() error { return datapath.Unload(pins) }) }
	err = i.in.node.Do(func() error {
		d, err := datapath.Open(datapath.Config{PinDir: pins, Bindings: tableOf(flows), Ports: []datapath.Port{
			{Name: i.in.name, Role: datapath.RoleClient}, {Name: i.out.name, Role: datapath.RoleCore},
		}})
		if err != nil {
			return err
		}
		return errors.Join(i.bind(d), d.Close()) // what is pinned goes on without this handle
	})
	if err != nil {
		return nil, nil, errors.Join(err, unload())
	}
	return i, unload, nil
}

// bind installs the ingress's halves of all bindings.
func (i *ingress) bind(d *datapath.Datapath) error {
	const toCore, toClient, path = 1, 2, 1
	err := errors.Join(
		d.SetAttachments([]datapath.Attachment{{
			Name: "client-1", Interface: i.in.name, Prefixes: []netip.Prefix{clients},
		}}),
		d.SetServices([]cats.ServiceRule{{
			Number: 1, CSID: "S", Prefix: netip.PrefixFrom(service.Addr(), 32), Protocol: cats.UDP, Port: service.Port(),
		}}),
		d.SetReturnSID(returnSID),
		d.PutNextHop(toCore, datapath.NextHop{Interface: i.out.index, Source: i.out.mac, Target: i.behind.mac, MTU: 1500}),
		d.PutNextHop(toClient, datapath.NextHop{Interface: i.in.index, Source: i.in.mac, Target: i.before.mac, MTU: 1500}),
		d.PutPath(path, datapath.Path{Kind: cats.PathSRv6, Source: ingressSource, Segments: segments, NextHop: toCore}),
	)
	for n := 0; n < i.flows && err == nil; n++ {
		from, transaction := clientOf(n), cats.Transaction{0: 1}
		binary.BigEndian.PutUint32(transaction[12:], uint32(n))
		err = d.Install([]datapath.Entry{{
			Key: datapath.Key{
				Kind: datapath.IngressForward, Attachment: datapath.AttachmentID("client-1"), Tuple: datagram{from, service}.tuple(),
			},
			Transaction: transaction, Service: 1, Version: 1, Rewrite: instance, Path: path,
		}, {
			Key:         datapath.Key{Kind: datapath.IngressReverse, Tuple: datagram{instance, from}.tuple()},
			Transaction: transaction, Service: 1, Version: 1, Rewrite: service, NextHop: toClient,
		}})
	}
	return err
}

// newNoCode makes an ingress of the kernel's parts.
func newNoCode(s *stage, flows int, generator, sink *namespace.Namespace) (*ingress, *noCode, error) {
	i, err := newIngress(s, "the no-code baseline", "nocode", generator, sink)
	if err != nil {
		return nil, nil, err
	}
	i.flows, i.added = flows, outerOctets
	node := i.in.node
	n := &noCode{
		node: node, protocol: cats.UDP, service: service, instance: instance, source: ingressSource, segments: segments, core: i.out.name,
		returns: returnSID, client: firstClient.Addr(),
	}
	err = errors.Join(
		node.Do(func() error { return forwarding(i.out.name) }),
		i.in.address(netip.MustParsePrefix("10.0.0.1/8")),
		i.out.address(netip.MustParsePrefix("2001:db8:1:1::1/64")),
		i.in.neighbour(firstClient.Addr(), i.before.mac),
		i.out.neighbour(firstRouter, i.behind.mac),
		node.Do(func() error { return routeVia(segments[0], firstRouter, i.out.name) }),
		n.setUp(),
		node.Do(keepFlows),
	)
	return i, n, err
}

// forwarding lets the kernel forward, and take SRv6 in on an interface.
func forwarding(core string) error {
	for _, s := range []struct{ key, value string }{
		{"ipv4/ip_forward", "1"}, {"ipv6/conf/all/forwarding", "1"}, {"ipv4/conf/all/rp_filter", "0"},
		{"ipv6/conf/all/seg6_enabled", "1"}, {"ipv6/conf/" + core + "/seg6_enabled", "1"},
	} {
		if err := writeSysctl(s.key, s.value); err != nil {
			return err
		}
	}
	return nil
}

// check sends one packet each way through the ingress and reads what comes out, from the wire.
func (i *ingress) check() error {
	forward, err := datagram{firstClient, service}.frame(i.in.mac, i.before.mac)
	if err != nil {
		return err
	}
	got, err := exchange(i.before, forward, i.behind, datagram{firstClient, instance}.tuple())
	if err != nil {
		return fmt.Errorf("a packet to %s: %w", service, err)
	}
	if got.Outer == nil || !slices.Equal(got.Outer.Path(), segments) || got.Outer.Source != ingressSource {
		return fmt.Errorf("a packet to %s comes out as %s, not over %v from %s", service, got, segments, ingressSource)
	}
	reply, err := datagram{instance, firstClient}.encapsulated(i.out.mac, i.behind.mac, egressSource, returnSID)
	if err != nil {
		return err
	}
	if _, err := exchange(i.behind, reply, i.before, datagram{service, firstClient}.tuple()); err != nil {
		return fmt.Errorf("a reply from %s: %w", instance, err)
	}
	return nil
}

// exchange sends a frame out of one interface and gives the packet of a tuple that then comes in at another.
func exchange(from *end, frame []byte, at *end, want cats.Tuple) (packet *capture.Packet, err error) {
	var c *capture.Capture
	if err := at.node.Do(func() (err error) { c, err = capture.Open(at.name); return err }); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := from.inject(frame); err != nil {
		return nil, err
	}
	err = await(fmt.Sprintf("no packet %s on %s", want, at.name), func() bool {
		for _, p := range c.Packets() {
			if !p.Outgoing && p.Tuple == want {
				packet = &p
			}
		}
		return packet != nil
	})
	if err == nil && packet.Checksums != nil {
		err = fmt.Errorf("%s: %w", packet, packet.Checksums)
	}
	return packet, err
}

// loop makes the generator and sink around the system.
func (i *ingress) loop() (*loop, error) {
	frame, err := datagram{firstClient, service}.unsummed(i.in.mac, i.before.mac)
	if err != nil {
		return nil, err
	}
	return newLoop(frame, i.flows, i.before, i.behind, smallest+i.added)
}
