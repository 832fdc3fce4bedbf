package impair

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// xdpPass is XDP_PASS of linux/bpf.h.
const xdpPass = 2

// diverted is the value of a program's map where frames go to a process instead of the other side.
const diverted = uint32(1)

// Join makes two interfaces of the present network namespace one wire: what comes in at one goes out at the other. It
// goes on without a process, until the interfaces are removed. Both must be up and have GRO on.
func Join(a, b string) error {
	for _, d := range []struct{ in, out string }{{a, b}, {b, a}} {
		if err := redirect(d.in, d.out); err != nil {
			return fmt.Errorf("joining %s to %s: %w", d.in, d.out, err)
		}
	}
	return nil
}

// redirect attaches a program to one interface that hands frames on to another.
func redirect(in, out string) error {
	from, err := netlink.LinkByName(in)
	if err != nil {
		return fmt.Errorf("interface %s: %w", in, err)
	}
	to, err := netlink.LinkByName(out)
	if err != nil {
		return fmt.Errorf("interface %s: %w", out, err)
	}
	divert, err := ebpf.NewMap(&ebpf.MapSpec{Name: "divert", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("map: %w", err)
	}
	defer divert.Close()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "wire", Type: ebpf.XDP, License: "Apache-2.0", Flags: unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, divert.FD(), 0),
			asm.LoadMem(asm.R1, asm.R1, 0, asm.Word),
			asm.Mov.Imm(asm.R0, xdpPass),
			asm.JNE.Imm(asm.R1, 0, "done"),
			asm.Mov.Imm(asm.R1, int32(to.Attrs().Index)),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(),
			asm.Return().WithSymbol("done"),
		},
	})
	if err != nil {
		return fmt.Errorf("program: %w", err)
	}
	defer program.Close()
	// Attached by netlink and not by a BPF link: that would end with this process.
	if err := netlink.LinkSetXdpFdWithFlags(from, program.FD(), unix.XDP_FLAGS_DRV_MODE); err != nil {
		return fmt.Errorf("attaching the program to %s: %w", in, err)
	}
	return nil
}

// openDivert gives the map by which the program of an interface in the present network namespace is told to let frames
// through to the packet sockets.
func openDivert(name string) (divert *ebpf.Map, err error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	xdp := link.Attrs().Xdp
	if xdp == nil || !xdp.Attached {
		return nil, fmt.Errorf("interface %s has no program: it is not joined to another", name)
	}
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(xdp.ProgId))
	if err != nil {
		return nil, fmt.Errorf("program of interface %s: %w", name, err)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return nil, fmt.Errorf("program of interface %s: %w", name, err)
	}
	ids, _ := info.MapIDs()
	if len(ids) != 1 {
		return nil, errors.New("the program of interface " + name + " is not that of a joined one")
	}
	if divert, err = ebpf.NewMapFromID(ids[0]); err != nil {
		return nil, fmt.Errorf("map of interface %s: %w", name, err)
	}
	return divert, nil
}

// Restore lets the frames that come in at interfaces of the present network namespace go straight on again, where the
// process that held them ended without doing so.
func Restore(names ...string) error {
	var failed []error
	for _, name := range names {
		divert, err := openDivert(name)
		if err == nil {
			err = errors.Join(divert.Put(uint32(0), uint32(0)), divert.Close())
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
