package lab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/lab/capture"
)

// Points gives where to capture for places "NODE:INTERFACE", or "NODE" for all interfaces of its links; a node without
// links has its interface in the management network. A point that is named twice is there once. On a wire between two
// forwarders only what their kernels send or take is seen.
func (l *Lab) Points(places ...string) ([]capture.Point, error) {
	var all []capture.Point
	for _, place := range places {
		name, device, one := strings.Cut(place, ":")
		n, err := l.Node(name)
		if err != nil {
			return nil, err
		}
		devices := []string{device}
		if !one {
			devices = l.devices(n)
		}
		for _, d := range devices {
			if d == "" {
				return nil, fmt.Errorf("%q: need NODE:INTERFACE or NODE; node %s has %v", place, name, l.devices(n))
			}
			at := l.point(n, d)
			if !slices.ContainsFunc(all, func(p capture.Point) bool { return p.Name == at.Name }) {
				all = append(all, at)
			}
		}
	}
	return all, nil
}

// point gives where to capture what passes an interface. The data plane of a forwarder takes frames and sends them
// without showing them to packet sockets, so that its interfaces are watched from the other end of the wire.
func (l *Lab) point(n *Node, device string) capture.Point {
	p := capture.Point{Name: n.Name + ":" + device, Interface: device, Enter: n.Do}
	if n.Role != Forwarder {
		return p
	}
	for _, e := range l.topology.ends(config.Name(n.Name)) {
		if far := l.nodes[e.there.Node]; e.here.Interface == device && far.Role != Forwarder {
			p.Interface, p.Enter, p.Far = e.there.Interface, far.Do, true
		}
	}
	return p
}

// devices names the interfaces of a node's links.
func (l *Lab) devices(n *Node) (all []string) {
	for _, e := range l.topology.ends(config.Name(n.Name)) {
		all = append(all, e.here.Interface)
	}
	if n.Name == string(middleNode) {
		for _, link := range l.state.Impairable {
			a, b := middleInterfaces(link)
			all = append(all, a, b)
		}
	}
	if len(all) == 0 {
		all = []string{managementInterface}
	}
	return all
}
