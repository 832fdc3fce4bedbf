package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// linkPrefix begins the names of pinned links; the interface name follows.
const linkPrefix = "link_"

// attached is a port with its link.
type attached struct {
	PortStatus
	link link.Link
}

// foundInterface is a Port whose interface exists.
type foundInterface struct {
	Port
	index int
	mac   MAC
}

// SetPorts attaches the program to exactly these interfaces: as Open does, at any time; call it also when an interface
// came back or changed its address.
func (d *Datapath) SetPorts(ports []Port) error {
	interfaces, err := findInterfaces(ports)
	if err != nil {
		return err
	}
	return d.attach(interfaces)
}

// Ports tells where the program is attached, and how, by name.
func (d *Datapath) Ports() []PortStatus {
	var all []PortStatus
	for _, a := range d.ports {
		all = append(all, a.PortStatus)
	}
	slices.SortFunc(all, func(a, b PortStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// findInterfaces looks every port up in the network namespace of this thread; all that are missing are told at once.
func findInterfaces(ports []Port) ([]foundInterface, error) {
	var found []foundInterface
	var errs []error
	seen := make(map[string]bool)
	for _, p := range ports {
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("interface %s is given twice", p.Name))
			continue
		}
		seen[p.Name] = true
		l, err := netlink.LinkByName(p.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("interface %s: %w: make it, or correct the configuration", p.Name, err))
			continue
		}
		f := foundInterface{Port: p, index: l.Attrs().Index}
		copy(f.mac[:], l.Attrs().HardwareAddr)
		found = append(found, f)
	}
	return found, errors.Join(errs...)
}

// attach makes the program run on exactly these interfaces. Roles come first, so that the program knows a port before
// its first packet.
func (d *Datapath) attach(interfaces []foundInterface) error {
	want := make(map[uint32]programPort)
	for _, f := range interfaces {
		want[uint32(f.index)] = programPort{Ifindex: uint32(f.index), Role: uint32(f.Role), Mac: f.mac}
	}
	if err := d.putPorts(want); err != nil {
		return err
	}
	keep := make(map[string]bool)
	for _, f := range interfaces {
		keep[linkPin(f.Name)] = true
		if err := d.attachOne(f); err != nil {
			return fmt.Errorf("interface %s: %w", f.Name, err)
		}
	}
	if err := d.detachOthers(keep); err != nil {
		return err
	}
	return d.dropPorts(want)
}

// attachOne puts the program on an interface: into the pinned link where that still holds the interface, else a new one.
func (d *Datapath) attachOne(f foundInterface) error {
	pin := filepath.Join(d.config.PinDir, linkPin(f.Name))
	if old := d.ports[f.Name]; old != nil {
		old.link.Close()
		delete(d.ports, f.Name)
	}
	l, err := d.takeOver(pin, f.index)
	if err != nil {
		return err
	}
	if l == nil {
		if l, err = d.attachNew(pin, f.index); err != nil {
			return err
		}
	}
	mode, err := attachMode(f.index, d.program)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	d.ports[f.Name] = &attached{PortStatus{Port: f.Port, Index: f.index, Mode: mode}, l}
	return nil
}

// takeOver updates the pinned link, if there is one and its interface is the one of index, which no packet notices. A
// link whose interface is gone is removed.
func (d *Datapath) takeOver(pin string, index int) (link.Link, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pinned link %s: %w", pin, err)
	}
	info, err := l.Info()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pinned link %s: %w", pin, err), l.Close())
	}
	if x := info.XDP(); x != nil && int(x.Ifindex) == index {
		err := l.Update(d.program)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, unix.ENOLINK) { // the interface went away just now, and another has its index
			return nil, errors.Join(fmt.Errorf("replacing the program: %w", err), l.Close())
		}
	}
	return nil, errors.Join(l.Close(), detach(pin))
}

// attachNew attaches and pins: in the driver, or generic where the driver has no XDP.
func (d *Datapath) attachNew(pin string, index int) (link.Link, error) {
	options := link.XDPOptions{Program: d.program, Interface: index, Flags: link.XDPDriverMode}
	l, err := link.AttachXDP(options)
	if errors.Is(err, unix.EOPNOTSUPP) {
		options.Flags = link.XDPGenericMode
		l, err = link.AttachXDP(options)
	}
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("another XDP program runs there: remove it, for example with `ip link set dev NAME xdp "+
			"off`: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("attaching: %w", err)
	}
	if err := l.Pin(pin); err != nil {
		return nil, errors.Join(fmt.Errorf("pinning the link: %w", err), l.Close())
	}
	return l, nil
}

// detachOthers ends every pinned link that is not to be kept.
func (d *Datapath) detachOthers(keep map[string]bool) error {
	files, err := os.ReadDir(d.config.PinDir)
	if err != nil {
		return fmt.Errorf("reading pins: %w", err)
	}
	var errs []error
	for _, f := range files {
		if strings.HasPrefix(f.Name(), linkPrefix) && !keep[f.Name()] {
			errs = append(errs, detach(filepath.Join(d.config.PinDir, f.Name())))
		}
	}
	for name, a := range d.ports {
		if !keep[linkPin(name)] {
			errs = append(errs, a.link.Close())
			delete(d.ports, name)
		}
	}
	return errors.Join(errs...)
}

// linkPin is the file name of an interface's link. A BPF file system takes no dots, an interface name no colons.
func linkPin(name string) string { return linkPrefix + strings.ReplaceAll(name, ".", ":") }

// attachMode asks the kernel how program runs on the interface of index: a pinned link does not say, and it might hold
// an interface of another network namespace.
func attachMode(index int, program *ebpf.Program) (Mode, error) {
	info, err := program.Info()
	if err != nil {
		return 0, fmt.Errorf("reading the program: %w", err)
	}
	id, _ := info.ID()
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return 0, fmt.Errorf("reading the XDP mode: %w", err)
	}
	x := l.Attrs().Xdp
	if x == nil || x.ProgId != uint32(id) {
		return 0, errors.New("the pinned link holds an interface of another network namespace: give every forwarder " +
			"a pin directory of its own, or unload that one")
	}
	if x.AttachMode == nl.XDP_ATTACHED_SKB {
		return ModeGeneric, nil
	}
	return ModeNative, nil
}
