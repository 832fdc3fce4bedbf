package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Sizes of the queue between the kernel and the resolver. The first is asked of the kernel; when both are full the
// kernel drops messages and says so, and the resolver reads everything anew.
const (
	monitorBuffer = 4 << 20
	monitorQueue  = 64
)

// notice is one change that the kernel announced.
type notice struct {
	kind   noticeKind
	index  int
	link   link
	neigh  neighKey
	entry  neighEntry
	failed error
}

type noticeKind uint8

const (
	noticeRoutes noticeKind = iota // routes, rules or next-hop objects changed
	noticeLink
	noticeLinkGone
	noticeNeigh
	noticeNeighGone
	noticeOverrun // messages were lost
	noticeFailed  // the socket is dead
)

// monitor reads netlink notifications and hands them to out, waiting where that is full, so that the kernel's buffer
// is the only place where messages are lost. It ends when the socket is closed, and closes out.
func monitor(socket *nl.NetlinkSocket, out chan<- notice, stop <-chan struct{}) {
	defer close(out)
	send := func(n notice) bool {
		select {
		case out <- n:
			return true
		case <-stop:
			return false
		}
	}
	for {
		messages, _, err := socket.Receive()
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case errors.Is(err, unix.ENOBUFS):
			if !send(notice{kind: noticeOverrun}) {
				return
			}
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			send(notice{kind: noticeFailed, failed: fmt.Errorf("netlink notifications: %w", err)})
			return
		}
		for _, m := range messages {
			if n, ok := parseNotice(m); ok && !send(n) {
				return
			}
		}
	}
}

func subscribe() (*nl.NetlinkSocket, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return nil, fmt.Errorf("netlink notifications: %w", err)
	}
	if s.SetReceiveBufferSize(monitorBuffer, true) != nil {
		// Without CAP_NET_ADMIN in the initial namespace the kernel's own limit holds; overruns are handled anyway.
		if err := s.SetReceiveBufferSize(monitorBuffer, false); err != nil {
			s.Close()
			return nil, fmt.Errorf("netlink receive buffer: %w", err)
		}
	}
	return s, nil
}

func parseNotice(m syscall.NetlinkMessage) (notice, bool) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return parseLink(m)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return parseNeigh(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg || nl.DeserializeRtMsg(m.Data).Flags&unix.RTM_F_CLONED != 0 {
			return notice{}, false
		}
		return notice{kind: noticeRoutes}, true
	case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return notice{kind: noticeRoutes}, true
	}
	return notice{}, false
}

func parseLink(m syscall.NetlinkMessage) (notice, bool) {
	// Bridge ports are announced with family AF_BRIDGE too; only the device itself matters.
	if len(m.Data) < unix.SizeofIfInfomsg || nl.DeserializeIfInfomsg(m.Data).Family != unix.AF_UNSPEC {
		return notice{}, false
	}
	header := unix.NlMsghdr(m.Header)
	l, err := netlink.LinkDeserialize(&header, m.Data)
	if err != nil {
		return notice{kind: noticeOverrun}, true // not understood: read everything anew rather than miss a change
	}
	if m.Header.Type == unix.RTM_DELLINK {
		return notice{kind: noticeLinkGone, index: l.Attrs().Index}, true
	}
	return notice{kind: noticeLink, index: l.Attrs().Index, link: linkOf(l)}, true
}

func parseNeigh(m syscall.NetlinkMessage) (notice, bool) {
	if len(m.Data) < unix.SizeofNdMsg {
		return notice{}, false
	}
	n, err := netlink.NeighDeserialize(m.Data)
	if err != nil {
		return notice{kind: noticeOverrun}, true
	}
	key, entry, ok := neighOf(n)
	if !ok {
		return notice{}, false
	}
	if m.Header.Type == unix.RTM_DELNEIGH {
		return notice{kind: noticeNeighGone, neigh: key}, true
	}
	return notice{kind: noticeNeigh, neigh: key, entry: entry}, true
}

// link is what the resolver knows of an interface.
type link struct {
	name string
	mac  MAC
	mtu  int
	up   bool
}

func linkOf(l netlink.Link) link {
	a := l.Attrs()
	out := link{name: a.Name, mtu: a.MTU, up: a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_RUNNING != 0}
	copy(out.mac[:], a.HardwareAddr)
	return out
}

type neighKey struct {
	index int
	addr  netip.Addr
}

// neighEntry is the kernel's entry of a neighbour.
type neighEntry struct {
	state int // NUD_…
	mac   MAC
}

// valid tells whether the kernel itself would send to the MAC now.
func (e neighEntry) valid() bool {
	return e.state&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY|netlink.NUD_PROBE|netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0
}

func neighOf(n *netlink.Neigh) (neighKey, neighEntry, bool) {
	if n.Family != unix.AF_INET && n.Family != unix.AF_INET6 || n.Flags&netlink.NTF_PROXY != 0 {
		return neighKey{}, neighEntry{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return neighKey{}, neighEntry{}, false
	}
	e := neighEntry{state: n.State}
	if copy(e.mac[:], n.HardwareAddr) != len(e.mac) {
		e.state = netlink.NUD_FAILED // no Ethernet address: nothing that a frame could be sent to
	}
	return neighKey{n.LinkIndex, addr.Unmap()}, e, true
}
