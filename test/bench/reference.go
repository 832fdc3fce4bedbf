package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/margay-net/margay/internal/lab/namespace"
)

// reference is an XDP program that does less than an ingress must, between the same interfaces.
type reference struct {
	*ingress
	program  *ebpf.Program
	maps     []*ebpf.Map
	attached link.Link
}

// newRedirect makes a reference that redirects every frame and does nothing else.
func newRedirect(s *stage, generator, sink *namespace.Namespace) (*reference, error) {
	return newReference(s, "a redirect", "redirect", generator, sink, func(r *reference) (asm.Instructions, error) {
		return redirectTo(r.out.index), nil
	})
}

// newProbe makes a reference that does what any ingress with a table of so many lines of 64 octets must: it checks the
// headers, looks the service up by address, port and protocol in a hash map of one entry, reads a line of the table at
// random, checks what is in it, and redirects.
func newProbe(s *stage, lines uint32, generator, sink *namespace.Namespace) (*reference, error) {
	return newReference(s, "a probe", "probe", generator, sink, func(r *reference) (asm.Instructions, error) {
		services, err := r.newMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 4, MaxEntries: 1024})
		if err != nil {
			return nil, err
		}
		table, err := r.newMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: lines, Flags: mappable})
		if err != nil {
			return nil, err
		}
		key := append(service.Addr().AsSlice(), 0, 0, protocolUDP, 0)
		binary.BigEndian.PutUint16(key[4:], service.Port())
		if err := services.Put(key, uint32(1)); err != nil {
			return nil, err
		}
		return probe(services, table, lines, r.out.index), nil
	})
}

const (
	mappable    = 1 << 10 // BPF_F_MMAPABLE, which the table of the ingress has too
	protocolUDP = 17
)

func newReference(s *stage, name, short string, generator, sink *namespace.Namespace,
	code func(*reference) (asm.Instructions, error)) (*reference, error) {
	i, err := newIngress(s, name, short, generator, sink)
	if err != nil {
		return nil, err
	}
	r := &reference{ingress: i}
	instructions, err := code(r)
	if err == nil {
		r.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: instructions, License: "Apache-2.0"})
	}
	if err == nil {
		err = i.in.node.Do(func() (err error) {
			r.attached, err = link.AttachXDP(link.XDPOptions{Program: r.program, Interface: i.in.index, Flags: link.XDPDriverMode})
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), r.close())
	}
	return r, nil
}

func (r *reference) newMap(spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec)
	if err == nil {
		r.maps = append(r.maps, m)
	}
	return m, err
}

func (r *reference) close() error {
	var errs []error
	if r.attached != nil {
		errs = append(errs, r.attached.Close())
	}
	for _, m := range r.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(append(errs, r.program.Close())...)
}

func redirectTo(index int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(index)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
	}
}

// probe is the program of newProbe. What it does not expect it passes.
func probe(services, table *ebpf.Map, lines uint32, out int) asm.Instructions {
	const serviceKey, place = -8, -16 // on the stack
	code := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 14+20+8),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
		asm.JNE.Imm(asm.R4, 0x0008, "pass"), // IPv4, as it lies in memory
		asm.LoadMem(asm.R4, asm.R2, 14, asm.Byte),
		asm.JNE.Imm(asm.R4, 0x45, "pass"),
		asm.LoadMem(asm.R4, asm.R2, 23, asm.Byte),
		asm.JNE.Imm(asm.R4, protocolUDP, "pass"),
		asm.StoreMem(asm.RFP, serviceKey+6, asm.R4, asm.Half),
		asm.LoadMem(asm.R4, asm.R2, 30, asm.Word),
		asm.StoreMem(asm.RFP, serviceKey, asm.R4, asm.Word),
		asm.LoadMem(asm.R4, asm.R2, 36, asm.Half),
		asm.StoreMem(asm.RFP, serviceKey+4, asm.R4, asm.Half),
		asm.LoadMapPtr(asm.R1, services.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, serviceKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.FnGetPrandomU32.Call(),
		asm.LoadImm(asm.R1, int64(lines), asm.DWord),
		asm.Mul.Reg(asm.R0, asm.R1),
		asm.RSh.Imm(asm.R0, 32),
		asm.StoreMem(asm.RFP, place, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, table.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, place),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.JNE.Imm(asm.R1, 0, "pass"),
	}
	code = append(code, redirectTo(out)...)
	return append(code, asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"), asm.Return())
}
