package main

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// XDP actions (linux/bpf.h).
const (
	xdpDrop = 1
	xdpPass = 2
)

// window is how many packets may be under way. A veth ring holds 256, so that none is ever lost for want of room.
const window = 192

// meter holds what generator and sink have counted; they share it, so that the generator sends only what the window
// allows: a closed loop inside the kernel.
type meter struct{ Sent, Received, Target uint64 }

// loop is one generator and one sink around a system under test.
type loop struct {
	counts    *ebpf.Map
	generator *ebpf.Program
	sink      *ebpf.Program
	attached  link.Link
}

func newMeter() (*ebpf.Map, error) {
	return ebpf.NewMap(&ebpf.MapSpec{Name: "bench_meter", Type: ebpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
}

// generatorProgram writes frame into the packet and redirects it to an interface, while the window is open and the
// target is not reached; else it drops. The whole frame each time: pages come back as the last user left them.
func generatorProgram(counts *ebpf.Map, frame []byte, to int) (*ebpf.Program, error) {
	fd := counts.FD()
	code := asm.Instructions{
		asm.LoadMapValue(asm.R7, fd, 0),
		asm.LoadMem(asm.R1, asm.R7, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R7, 16, asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R2, "stop"),
		asm.LoadMem(asm.R2, asm.R7, 8, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.JGE.Imm(asm.R3, window, "stop"),
		asm.Mov.Reg(asm.R8, asm.R1),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadImm(asm.R2, 128, asm.DWord),
		asm.FnXdpAdjustHead.Call(),
		asm.JNE.Imm(asm.R0, 0, "stop"),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.LoadMem(asm.R4, asm.R6, 0, asm.Word),
		asm.LoadMem(asm.R5, asm.R6, 4, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R4),
		asm.Add.Imm(asm.R2, int32(len(frame))),
		asm.JGT.Reg(asm.R2, asm.R5, "stop"),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R7, 0, asm.R1, asm.DWord),
	}
	code = append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, code...)
	for i := 0; i < len(frame); i += 4 {
		v := int64(int32(uint32(frame[i]) | uint32(frame[i+1])<<8 | uint32(frame[i+2])<<16 | uint32(frame[i+3])<<24))
		code = append(code, asm.StoreImm(asm.R4, int16(i), v, asm.Word))
	}
	code = append(code,
		asm.LoadImm(asm.R1, int64(to), asm.DWord),
		asm.LoadImm(asm.R2, 0, asm.DWord),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.LoadImm(asm.R0, xdpDrop, asm.DWord).WithSymbol("stop"),
		asm.Return(),
	)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "bench_generate", Type: ebpf.XDP, Instructions: code, License: "Apache-2.0"})
	if err != nil {
		return nil, fmt.Errorf("generator program: %w", err)
	}
	return p, nil
}

// sinkProgram counts and drops frames of exactly length octets, and passes others.
func sinkProgram(counts *ebpf.Map, length int, tc bool) (*ebpf.Program, error) {
	code := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.LoadImm(asm.R0, xdpPass, asm.DWord),
		asm.JNE.Imm(asm.R3, int32(length), "done"),
		asm.LoadMapValue(asm.R1, counts.FD(), 0),
		asm.LoadImm(asm.R2, 1, asm.DWord),
		asm.Add.Imm(asm.R1, 8),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.LoadImm(asm.R0, xdpDrop, asm.DWord),
		asm.Return().WithSymbol("done"),
	}
	spec := &ebpf.ProgramSpec{Name: "bench_sink", Type: ebpf.XDP, Instructions: code, License: "Apache-2.0"}
	if tc {
		spec.Type = ebpf.SchedCLS
		spec.Instructions = asm.Instructions{
			asm.LoadMem(asm.R3, asm.R1, 0, asm.Word),
			asm.LoadImm(asm.R0, 0, asm.DWord),
			asm.JNE.Imm(asm.R3, int32(length), "done"),
			asm.LoadMapValue(asm.R1, counts.FD(), 0),
			asm.LoadImm(asm.R2, 1, asm.DWord),
			asm.Add.Imm(asm.R1, 8),
			asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
			asm.LoadImm(asm.R0, 2, asm.DWord),
			asm.Return().WithSymbol("done"),
		}
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("sink program: %w", err)
	}
	return p, nil
}
