package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interfaces names the interfaces of a forwarder by their role; one interface may have several.
type Interfaces struct {
	Attachments []string // toward clients
	Tagged      []string // those of Attachments with a VLAN attachment on them
	Instances   []string // toward service instances
	Core        []string // toward the network
}

// Finding is one thing in the system that does not fit the forwarder.
type Finding struct {
	Hard   bool   // the forwarder cannot do its work: it refuses to start
	Where  string // interface or setting
	What   string // what is wrong and what follows from it
	Remedy string // what to do about it
}

// String gives one line for a person.
func (f Finding) String() string { return fmt.Sprintf("%s: %s; %s", f.Where, f.What, f.Remedy) }

// Prepare sets what is the forwarder's own business at its attachments: proxy_ndp, and the delay before proxied answers
// (up to 0.8 s by default), which would be added to a client's first packet. Neither has an effect on anything but
// answers for service addresses. Forwarding, reverse path filters, MTUs and offloads belong to the operator, as they
// change what the host does for other traffic: Check tells about them.
func Prepare(interfaces Interfaces) error {
	for _, name := range interfaces.Attachments {
		settings := []setting{
			{sysctlNeigh("ipv4", name, "proxy_delay"), "0"},
			{sysctlNeigh("ipv6", name, "proxy_delay"), "0"},
			{sysctlV6(name, "proxy_ndp"), "1"},
		}
		if err := apply(settings); err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
	}
	return nil
}

// Check looks at everything that the forwarder depends on outside its own process, and gives what does not fit. It
// fails only if it cannot look. Call it after Prepare.
func Check(interfaces Interfaces) ([]Finding, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("check: netlink: %w", err)
	}
	defer h.Close()
	c := &checker{handle: h, links: map[string]netlink.Link{}}
	c.kernel()
	c.devices(interfaces)
	c.forwarding(interfaces)
	c.proxy(interfaces.Attachments)
	c.reversePath(append(slices.Clone(interfaces.Core), interfaces.Instances...))
	c.tags(interfaces.Tagged)
	c.mtu(interfaces)
	if c.err != nil {
		return nil, fmt.Errorf("check: %w", c.err)
	}
	return c.findings, nil
}

// checker gathers findings; the first error that kept it from looking ends up in err.
type checker struct {
	handle   *netlink.Handle
	links    map[string]netlink.Link // only those that exist
	findings []Finding
	err      error
}

func (c *checker) find(hard bool, where, what, remedy string) {
	f := Finding{Hard: hard, Where: where, What: what, Remedy: remedy}
	if !slices.Contains(c.findings, f) {
		c.findings = append(c.findings, f)
	}
}

func (c *checker) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *checker) sysctl(path string) string {
	v, err := readSysctl(path)
	if err != nil {
		c.fail(err)
	}
	return v
}

func (c *checker) kernel() {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		c.fail(fmt.Errorf("kernel release: %w", err))
		return
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		c.fail(fmt.Errorf("kernel release %q: %w", release, err))
		return
	}
	if major < 6 || major == 6 && minor < 1 {
		c.find(true, "kernel", "Linux "+release+" lacks what the data plane needs", "use Linux 6.1 or newer")
	}
}

// devices checks that every interface exists, carries Ethernet and is up.
func (c *checker) devices(interfaces Interfaces) {
	for _, name := range slices.Concat(interfaces.Attachments, interfaces.Instances, interfaces.Core) {
		l, err := c.handle.LinkByName(name)
		var missing netlink.LinkNotFoundError
		switch {
		case errors.As(err, &missing):
			c.find(true, name, "there is no such interface in this network namespace", "correct the name in the configuration (`ip link` lists them)")
			continue
		case err != nil:
			c.fail(fmt.Errorf("interface %s: %w", name, err))
			continue
		}
		c.links[name] = l
		a := l.Attrs()
		switch {
		case a.EncapType != "ether":
			c.find(true, name, "it is no Ethernet interface ("+a.EncapType+")", "use an Ethernet interface")
		case a.RawFlags&unix.IFF_UP == 0:
			c.find(false, name, "it is down, so nothing passes", "ip link set "+name+" up")
		case a.RawFlags&unix.IFF_RUNNING == 0:
			c.find(false, name, "it has no carrier, so nothing passes", "look at the cable or at the other end")
		}
	}
}

// forwarding checks what the kernel needs to answer for service addresses and to take over packets whose next hop is not
// resolved yet.
func (c *checker) forwarding(interfaces Interfaces) {
	if c.sysctl("ipv6/conf/all/forwarding") == "0" {
		c.find(true, "net.ipv6.conf.all.forwarding", "IPv6 forwarding is off: neighbour solicitations for service addresses are not answered, and packets with an unresolved next hop are lost",
			"sysctl -w net.ipv6.conf.all.forwarding=1")
	}
	for _, name := range slices.Concat(interfaces.Attachments, interfaces.Instances, interfaces.Core) {
		if c.links[name] == nil {
			continue
		}
		for _, f := range []struct{ path, family string }{{sysctlV4(name, "forwarding"), "ipv4"}, {sysctlV6(name, "forwarding"), "ipv6"}} {
			if c.sysctl(f.path) == "0" {
				c.find(true, name, f.family+" forwarding is off: the kernel neither answers for service addresses here nor forwards packets with an unresolved next hop",
					fmt.Sprintf("sysctl -w net/%s/conf/%s/forwarding=1", f.family, name))
			}
		}
	}
}

func (c *checker) proxy(attachments []string) {
	for _, name := range attachments {
		if c.links[name] == nil {
			continue
		}
		if c.sysctl("ipv6/conf/all/proxy_ndp") == "0" && c.sysctl(sysctlV6(name, "proxy_ndp")) == "0" {
			c.find(true, name, "proxy_ndp is off: neighbour solicitations for service addresses are not answered",
				fmt.Sprintf("sysctl -w net/ipv6/conf/%s/proxy_ndp=1", name))
		}
		for _, f := range []string{"ipv4", "ipv6"} {
			if c.sysctl(sysctlNeigh(f, name, "proxy_delay")) != "0" {
				c.find(false, name, "answers for "+f+" service addresses are delayed at random (proxy_delay), which clients see on their first packet",
					fmt.Sprintf("sysctl -w net/%s/neigh/%s/proxy_delay=0", f, name))
			}
		}
	}
}

// reversePath warns of filters that drop a decapsulated packet which the kernel is to deliver: its source is a client,
// behind another interface.
func (c *checker) reversePath(names []string) {
	all := c.sysctl("ipv4/conf/all/rp_filter")
	for _, name := range names {
		if c.links[name] == nil || max(all, c.sysctl(sysctlV4(name, "rp_filter"))) == "0" {
			continue
		}
		c.find(false, name, "rp_filter is on: packets of clients whose next hop is not resolved yet are lost here",
			fmt.Sprintf("sysctl -w net.ipv4.conf.all.rp_filter=0 net/ipv4/conf/%s/rp_filter=0", name))
	}
}

func (c *checker) tags(names []string) {
	for _, name := range names {
		if c.links[name] == nil {
			continue
		}
		on, err := GetOffload(name, OffloadRxVLAN)
		switch {
		case err != nil && !errors.Is(err, unix.EOPNOTSUPP):
			c.fail(err)
		case on:
			c.find(true, name, "the device takes VLAN tags off before XDP sees them, so its VLAN attachments match nothing",
				"ethtool -K "+name+" rx-vlan-offload off")
		}
	}
}

// encapsulation is what two segments add to a packet: IPv6 header and SRH, octets.
const encapsulation = 40 + 8 + 2*16

func (c *checker) mtu(interfaces Interfaces) {
	largest, at := 0, ""
	for _, name := range slices.Concat(interfaces.Attachments, interfaces.Instances) {
		if l := c.links[name]; l != nil && l.Attrs().MTU > largest {
			largest, at = l.Attrs().MTU, name
		}
	}
	var narrow []string
	for _, name := range interfaces.Core {
		if l := c.links[name]; l != nil && l.Attrs().MTU < largest+encapsulation {
			narrow = append(narrow, fmt.Sprintf("%s (%d)", name, l.Attrs().MTU))
		}
	}
	if len(narrow) > 0 {
		c.find(false, strings.Join(narrow, ", "), fmt.Sprintf("the MTU leaves no room for the encapsulation of packets from %s (%d): those of full size are refused as too big", at, largest),
			fmt.Sprintf("raise the MTU of the core to at least %d, or lower the clients'", largest+encapsulation))
	}
}
