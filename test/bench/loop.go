package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

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

// Parameters of the closed loop.
const (
	// window is how many packets may be under way. A veth's ring holds 256, so that none is lost for want of room.
	window = 192
	// headroom is cut off the front of each frame before it is sent, so that even with the outer headers there is room
	// enough for XDP in front of it: without that the kernel copies every packet that comes to the sink as a socket
	// buffer, which is the baseline's case, and the instrument would slow one side only.
	headroom = 128
	// loopTime bounds one run.
	loopTime = 20 * time.Second
)

// loop sends packets into a system under test and counts what comes out of it, with never more than a window under way.
// Generator and sink are XDP programs: the generator runs on live frames, which are what a driver with XDP hands over.
type loop struct {
	counts    *ebpf.Map // counted, written by the programs
	target    *ebpf.Map // goal, read by the generator
	generator *ebpf.Program
	sink      *ebpf.Program
	attached  link.Link
	frame     []byte
}

// counted is the value of the map counts.
type counted struct{ Sent, Received uint64 }

// goal is the value of the map target: the generator stops when it has sent so many, of all flows in turn or else of one
// far from the last each time.
type goal struct{ Sent, InTurn uint64 }

// newLoop makes a loop that sends frame, that of the first of so many flows, out of one interface and counts frames of
// length octets at another, a length that no packet of the kernel's own has there. Call run in the namespace of out.
func newLoop(frame []byte, flows int, out, in *end, length int) (*loop, error) {
	l := &loop{frame: make([]byte, headroom+len(frame))}
	err := l.load(frame, flows, out, length)
	if err == nil {
		err = in.node.Do(func() (err error) {
			l.attached, err = link.AttachXDP(link.XDPOptions{Program: l.sink, Interface: in.index, Flags: link.XDPDriverMode})
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("loop from %s to %s: %w", out.name, in.name, err), l.close())
	}
	return l, nil
}

func (l *loop) load(frame []byte, flows int, out *end, length int) (err error) {
	value := func(octets uint32) *ebpf.MapSpec {
		return &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: octets, MaxEntries: 1}
	}
	if l.counts, err = ebpf.NewMap(value(16)); err != nil {
		return err
	}
	if l.target, err = ebpf.NewMap(value(16)); err != nil {
		return err
	}
	program := func(code asm.Instructions) (*ebpf.Program, error) {
		return ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: code, License: "Apache-2.0"})
	}
	if l.generator, err = program(l.generate(frame, flows, out.index)); err != nil {
		return fmt.Errorf("generator: %w", err)
	}
	if l.sink, err = program(l.receive(length)); err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	return nil
}

func (l *loop) close() error {
	var errs []error
	if l.attached != nil {
		errs = append(errs, l.attached.Close())
	}
	return errors.Join(append(errs, l.generator.Close(), l.sink.Close(), l.counts.Close(), l.target.Close())...)
}

// generate writes frame and redirects it, unless the target is reached or the window closed. It writes the whole frame
// each time, as the kernel gives pages back as their last user left them.
func (l *loop) generate(frame []byte, flows, out int) asm.Instructions {
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMapValue(asm.R7, l.counts.FD(), 0),
		asm.LoadMem(asm.R8, asm.R7, 0, asm.DWord), // sent
		asm.LoadMapValue(asm.R1, l.target.FD(), 0),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JGE.Reg(asm.R8, asm.R1, "stop"),
		asm.LoadMem(asm.R1, asm.R7, 8, asm.DWord), // received
		asm.Mov.Reg(asm.R2, asm.R8),
		asm.Sub.Reg(asm.R2, asm.R1),
		asm.JGE.Imm(asm.R2, window, "stop"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, headroom),
		asm.FnXdpAdjustHead.Call(),
		asm.JNE.Imm(asm.R0, 0, "stop"),
		asm.LoadMem(asm.R4, asm.R6, 0, asm.Word), // data
		asm.LoadMem(asm.R5, asm.R6, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R1, asm.R4),
		asm.Add.Imm(asm.R1, int32(len(frame))),
		asm.JGT.Reg(asm.R1, asm.R5, "stop"),
		asm.Add.Imm(asm.R8, 1),
		asm.StoreMem(asm.R7, 0, asm.R8, asm.DWord),
	}
	for i := 0; i < len(frame); i += 4 {
		word := int64(int32(binary.NativeEndian.Uint32(frame[i:])))
		code = append(code, asm.StoreImm(asm.R4, int16(i), word, asm.Word))
	}
	code = append(code, l.choose(flows)...)
	return append(code,
		asm.Mov.Imm(asm.R1, int32(out)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("stop"),
		asm.Return(),
	)
}

// choose makes the frame at R4, number R8, one of another flow: see clientOf. The identification takes up what the source
// adds to the checksum.
func (l *loop) choose(flows int) asm.Instructions {
	const identification, source, sourcePort = 14 + 4, 14 + 12, 14 + 20
	return asm.Instructions{
		asm.LoadMapValue(asm.R1, l.target.FD(), 8),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R8),
		asm.JNE.Imm(asm.R1, 0, "in turn"),
		asm.LoadImm(asm.R1, 2654435769, asm.DWord), // 2^32 over the golden ratio
		asm.Mul.Reg(asm.R2, asm.R1),
		asm.LSh.Imm(asm.R2, 32),
		asm.RSh.Imm(asm.R2, 32),
		asm.Mul.Imm(asm.R2, int32(flows)),
		asm.RSh.Imm(asm.R2, 32),
		asm.Ja.Label("chosen"),
		asm.Mod.Imm(asm.R2, int32(flows)).WithSymbol("in turn"),
		asm.Mov.Reg(asm.R3, asm.R2).WithSymbol("chosen"),
		asm.RSh.Imm(asm.R3, 16),
		asm.Add.Imm(asm.R3, int32(firstClient.Port())),
		asm.HostTo(asm.BE, asm.R3, asm.Half),
		asm.StoreMem(asm.R4, sourcePort, asm.R3, asm.Half),
		asm.StoreMem(asm.R4, source+2, asm.R2, asm.Half),
		asm.Xor.Imm(asm.R2, 0xffff),
		asm.StoreMem(asm.R4, identification, asm.R2, asm.Half),
	}
}

// receive counts and drops frames of length octets, and passes all others.
func (l *loop) receive(length int) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.Mov.Imm(asm.R0, xdpPass),
		asm.JNE.Imm(asm.R3, int32(length), "done"),
		asm.LoadMapValue(asm.R1, l.counts.FD(), 8),
		asm.Mov.Imm(asm.R2, 1),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, xdpDrop),
		asm.Return().WithSymbol("done"),
	}
}

// run sends n packets and waits until all have come out; one that does not is an error.
func (l *loop) run(n uint64) (time.Duration, error) { return l.send(n, false) }

// runInTurn sends one packet of each flow.
func (l *loop) runInTurn(flows uint64) error {
	_, err := l.send(flows, true)
	return err
}

func (l *loop) send(n uint64, inTurn bool) (time.Duration, error) {
	now, err := l.count()
	if err != nil {
		return 0, err
	}
	if now.Sent != now.Received {
		return 0, fmt.Errorf("%d of %d packets were lost before", now.Sent-now.Received, now.Sent)
	}
	target := now.Sent + n
	g := goal{Sent: target}
	if inTurn {
		g.InTurn = 1
	}
	if err := l.target.Put(uint32(0), g); err != nil {
		return 0, err
	}
	for start := time.Now(); ; {
		if err := l.generateUpTo(target - now.Sent); err != nil {
			return 0, err
		}
		if now, err = l.count(); err != nil {
			return 0, err
		}
		took := time.Since(start)
		if now.Received >= target {
			return took, nil
		}
		if took > loopTime {
			return 0, fmt.Errorf("of %d packets sent, %d never came out", now.Sent, now.Sent-now.Received)
		}
	}
}

// generateUpTo runs the generator n times, and once at least: when all is sent, that lets what is under way go on.
func (l *loop) generateUpTo(n uint64) error {
	_, err := l.generator.Run(&ebpf.RunOptions{Data: l.frame, Repeat: uint32(max(1, n)), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
	if err != nil {
		return fmt.Errorf("generator: %w", err)
	}
	return nil
}

func (l *loop) count() (c counted, err error) {
	if err := l.counts.Lookup(uint32(0), &c); err != nil {
		return c, fmt.Errorf("counts of the loop: %w", err)
	}
	return c, nil
}
