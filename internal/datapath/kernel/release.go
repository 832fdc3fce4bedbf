package kernel

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ReleaseMTU is the default MTU of the release pair. It is the most for which veth accepts a native XDP program that
// does not declare multi-buffer support (one page less headroom, skb_shared_info and Ethernet header, rounded down); it
// fits clients of 1500 octets with ample room. With jumbo clients the program must be loaded as xdp.frags, and the MTU
// of the pair set to theirs plus 64.
const ReleaseMTU = 3500

// maxInterfaceName is the longest interface name that the kernel takes, octets.
const maxInterfaceName = unix.IFNAMSIZ - 1

// ReleaseConfig names the private veth pair through which held packets come back into the XDP program.
type ReleaseConfig struct {
	Send    string // end that frames are written to, 1..15 octets; unique in the network namespace
	Program string // end that carries the XDP program, 1..15 octets; unique in the network namespace
	MTU     int    // of both ends, octets; 0 is ReleaseMTU
}

// Release is an open release pair with a raw sender on its send end.
type Release struct {
	ProgramIndex int // interface index of the end that carries the XDP program; stable while the pair exists
	SendIndex    int // interface index of the end that frames are written to
	address      net.HardwareAddr
	sender       *sender
}

// OpenRelease makes the pair, or takes over the one that an earlier run of the agent left: pinned XDP links hang on its
// interface indexes, so it is never made anew while it is whole. Anything else under these names is an error.
func OpenRelease(c ReleaseConfig) (*Release, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("release pair: netlink: %w", err)
	}
	defer h.Close()
	send, program, err := findPair(h, c)
	if err != nil {
		return nil, err
	}
	made := send == nil
	if made {
		if send, program, err = makePair(h, c); err != nil {
			return nil, err
		}
	}
	r := &Release{ProgramIndex: program.Attrs().Index, SendIndex: send.Attrs().Index, address: program.Attrs().HardwareAddr}
	if err = setUpPair(h, c, send, program); err == nil {
		r.sender, err = newSender(r.SendIndex)
	}
	if err != nil && made {
		err = errors.Join(err, h.LinkDel(send))
	}
	if err != nil {
		return nil, fmt.Errorf("release pair %s, %s: %w", c.Send, c.Program, err)
	}
	return r, nil
}

// Send writes Ethernet frames to the send end, in order; the XDP program receives them on the other. It addresses them to
// that end: veth looks at the target before the program runs, and what was not addressed to it then is never forwarded
// by the kernel, whatever the program makes of it. Every frame is tried; the error tells how many were not sent and why
// the first was not. It is not safe for concurrent use.
func (r *Release) Send(frames [][]byte) error {
	for _, f := range frames {
		copy(f, r.address)
	}
	return r.sender.send(frames)
}

// Close releases the sender. The pair stays, with its XDP program, until RemoveRelease.
func (r *Release) Close() error { return r.sender.close() }

// RemoveRelease deletes the pair; it is no error if it does not exist.
func RemoveRelease(c ReleaseConfig) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("release pair: netlink: %w", err)
	}
	defer h.Close()
	send, _, err := findPair(h, c)
	if err != nil || send == nil {
		return err
	}
	if err := h.LinkDel(send); err != nil { // both ends go
		return fmt.Errorf("release pair %s, %s: %w", c.Send, c.Program, err)
	}
	return nil
}

func (c *ReleaseConfig) validate() error {
	for _, name := range []string{c.Send, c.Program} {
		if name == "" || len(name) > maxInterfaceName || name != filepath.Base(name) || name == "." || name == ".." {
			return fmt.Errorf("release pair: interface name %q: need 1 to %d octets without a slash", name, maxInterfaceName)
		}
	}
	if c.Send == c.Program {
		return fmt.Errorf("release pair: both ends are named %q", c.Send)
	}
	if c.MTU == 0 {
		c.MTU = ReleaseMTU
	}
	if c.MTU < 1280 || c.MTU > 65535 {
		return fmt.Errorf("release pair: MTU %d: need 1280 to 65535 octets", c.MTU)
	}
	return nil
}

// findPair gives the existing pair, or nil if neither end exists.
func findPair(h *netlink.Handle, c ReleaseConfig) (send, program netlink.Link, err error) {
	var missing netlink.LinkNotFoundError
	send, err = h.LinkByName(c.Send)
	if err != nil && !errors.As(err, &missing) {
		return nil, nil, fmt.Errorf("release pair: %s: %w", c.Send, err)
	}
	hasSend := err == nil
	program, err = h.LinkByName(c.Program)
	if err != nil && !errors.As(err, &missing) {
		return nil, nil, fmt.Errorf("release pair: %s: %w", c.Program, err)
	}
	hasProgram := err == nil
	switch {
	case !hasSend && !hasProgram:
		return nil, nil, nil
	case !hasSend || !hasProgram:
		return nil, nil, fmt.Errorf("release pair: only one of %s and %s exists, and it is not this forwarder's; choose other names or remove it",
			c.Send, c.Program)
	case send.Type() != "veth" || send.Attrs().ParentIndex != program.Attrs().Index || program.Attrs().ParentIndex != send.Attrs().Index:
		return nil, nil, fmt.Errorf("release pair: %s and %s exist but are not the two ends of one veth pair; choose other names or remove them",
			c.Send, c.Program)
	}
	return send, program, nil
}

func makePair(h *netlink.Handle, c ReleaseConfig) (send, program netlink.Link, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = c.Send, c.MTU
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: c.Program, PeerMTU: uint32(c.MTU)}); err != nil {
		return nil, nil, fmt.Errorf("release pair %s, %s: %w", c.Send, c.Program, err)
	}
	send, program, err = findPair(h, c)
	if err == nil && send == nil {
		err = fmt.Errorf("release pair %s, %s: vanished while it was made", c.Send, c.Program)
	}
	return send, program, err
}

// setUpPair brings both ends into the state that they need, from whatever they are in.
func setUpPair(h *netlink.Handle, c ReleaseConfig, send, program netlink.Link) error {
	// The kernel must not talk on its own here: whatever enters one end is a packet of the XDP program at the other. IPv6
	// stays on at the program end, where host routes for service addresses point (see Proxy), but has no address there.
	settings := []setting{
		{sysctlV6(c.Send, "disable_ipv6"), "1"},
		{sysctlV6(c.Program, "addr_gen_mode"), "1"},
		{sysctlV6(c.Program, "accept_ra"), "0"},
		{sysctlV6(c.Program, "router_solicitations"), "0"},
	}
	if err := apply(settings); err != nil {
		return err
	}
	for _, l := range []netlink.Link{send, program} {
		if l.Attrs().MTU != c.MTU {
			if err := h.LinkSetMTU(l, c.MTU); err != nil {
				return fmt.Errorf("MTU %d on %s: %w", c.MTU, l.Attrs().Name, err)
			}
		}
		if l.Attrs().RawFlags&unix.IFF_NOARP == 0 {
			if err := h.LinkSetARPOff(l); err != nil {
				return fmt.Errorf("ARP off on %s: %w", l.Attrs().Name, err)
			}
		}
	}
	for _, l := range []netlink.Link{program, send} { // so that nothing is sent before the receiver listens
		if err := h.LinkSetUp(l); err != nil {
			return fmt.Errorf("bring %s up: %w", l.Attrs().Name, err)
		}
	}
	return nil
}
