package kernel

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// proxyTable reads and writes the kernel's table of proxy neighbours with the protocol attribute, by which entries of
// this forwarder are known; the library's own functions do not carry it.
type proxyTable struct {
	sockets map[int]*nl.SocketHandle
}

func newProxyTable() (*proxyTable, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &proxyTable{sockets: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}}, nil
}

func (t *proxyTable) close() { t.sockets[unix.NETLINK_ROUTE].Close() }

func (t *proxyTable) add(key neighKey) error {
	return t.write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_EXCL, key)
}

func (t *proxyTable) remove(key neighKey) error { return t.write(unix.RTM_DELNEIGH, 0, key) }

func (t *proxyTable) write(message, flags int, key neighKey) error {
	req := t.request(message, flags|unix.NLM_F_ACK)
	req.AddData(&netlink.Ndmsg{
		Family: family(key.addr), Index: uint32(key.index), State: netlink.NUD_PERMANENT, Flags: netlink.NTF_PROXY,
	})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, key.addr.AsSlice()))
	req.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{Protocol}))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// list calls visit for every proxy entry of a family.
func (t *proxyTable) list(family int, visit func(key neighKey, protocol uint8)) error {
	messages, err := dump(func() ([][]byte, error) {
		req := t.request(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		req.AddData(&netlink.Ndmsg{Family: uint8(family), Flags: netlink.NTF_PROXY})
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	})
	if err != nil {
		return err
	}
	for _, m := range messages {
		key, protocol, err := parseProxy(m)
		if err != nil {
			return err
		}
		visit(key, protocol)
	}
	return nil
}

func parseProxy(m []byte) (key neighKey, protocol uint8, err error) {
	if len(m) < unix.SizeofNdMsg {
		return key, 0, errors.New("short neighbour message")
	}
	key.index = int(binary.NativeEndian.Uint32(m[4:]))
	attrs, err := nl.ParseRouteAttr(m[unix.SizeofNdMsg:])
	if err != nil {
		return key, 0, err
	}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == netlink.NDA_DST:
			addr, ok := netip.AddrFromSlice(a.Value)
			if !ok {
				return key, 0, errors.New("neighbour message with a malformed address")
			}
			key.addr = addr
		case a.Attr.Type == netlink.NDA_PROTOCOL && len(a.Value) > 0:
			protocol = a.Value[0]
		}
	}
	return key, protocol, nil
}

func (t *proxyTable) request(message, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(message, flags)
	req.Sockets = t.sockets
	return req
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
