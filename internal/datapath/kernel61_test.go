package datapath

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// What the programs use of the kernel, with the release that brought it (for the helpers, to programs of these types).
// Nothing may be above 6.1, the oldest kernel that a forwarder starts on.
var (
	helpers = map[asm.BuiltinFunc]string{
		asm.FnMapLookupElem:    "3.19",
		asm.FnXdpAdjustHead:    "4.10",
		asm.FnRedirect:         "4.14",
		asm.FnXdpAdjustTail:    "4.18",
		asm.FnRingbufReserve:   "5.8",
		asm.FnRingbufSubmit:    "5.8",
		asm.FnRingbufDiscard:   "5.8",
		asm.FnKtimeGetCoarseNs: "5.11",
		asm.FnXdpGetBuffLen:    "5.18",
		asm.FnXdpLoadBytes:     "5.18",
	}
	mapTypes = map[ebpf.MapType]string{
		ebpf.Hash: "3.19", ebpf.Array: "3.19", ebpf.PerCPUArray: "4.6", ebpf.LRUHash: "4.10", ebpf.LPMTrie: "4.11",
		ebpf.RingBuf: "5.8",
	}
	programTypes = map[ebpf.ProgramType]string{ebpf.XDP: "4.8"}
	mapFlags     = map[uint32]string{0: "3.19", unix.BPF_F_NO_PREALLOC: "4.6", unix.BPF_F_RDONLY_PROG: "5.2", unix.BPF_F_MMAPABLE: "5.5"}
)

// TestOldestKernel proves that the programs ask nothing of the kernel that 6.1 does not have.
func TestOldestKernel(t *testing.T) {
	for _, table := range []map[string]string{names(helpers), names(mapTypes), names(programTypes), flagNames()} {
		for name, since := range table {
			var major, minor int
			if _, err := fmt.Sscanf(since, "%d.%d", &major, &minor); err != nil || major > 6 || major == 6 && minor > 1 {
				t.Errorf("%s came with Linux %s", name, since)
			}
		}
	}
	spec, err := loadProgram()
	must(t, err)
	for name, m := range spec.Maps {
		if mapTypes[m.Type] == "" || mapFlags[m.Flags] == "" {
			t.Errorf("map %s is a %s with flags %x, which is not in the list", name, m.Type, m.Flags)
		}
	}
	used := make(map[asm.BuiltinFunc]bool)
	for name, p := range spec.Programs {
		if programTypes[p.Type] == "" {
			t.Errorf("program %s is %s, which is not in the list", name, p.Type)
		}
		for _, i := range p.Instructions {
			if i.IsKfuncCall() {
				t.Errorf("program %s calls a function of the kernel that no release promises: %v", name, i)
			}
			if i.IsBuiltinCall() {
				used[asm.BuiltinFunc(i.Constant)] = true
			}
		}
	}
	for helper := range used {
		if helpers[helper] == "" {
			t.Errorf("helper %s is used, which is not in the list", helper)
		}
	}
	if len(used) != len(helpers) {
		t.Errorf("%d helpers are used, %d in the list", len(used), len(helpers))
	}
}

func names[K interface {
	comparable
	fmt.Stringer
}](table map[K]string) map[string]string {
	all := make(map[string]string)
	for k, since := range table {
		all[k.String()] = since
	}
	return all
}

func flagNames() map[string]string {
	all := make(map[string]string)
	for flags, since := range mapFlags {
		all[fmt.Sprintf("map flags %#x", flags)] = since
	}
	return all
}

// TestInstructionSet proves of every instruction that 6.1 knows it: those of version 4 (signed division, sign extension,
// byte swaps without condition, long jumps) came with 6.6.
func TestInstructionSet(t *testing.T) {
	object, err := elf.NewFile(bytes.NewReader(_ProgramBytes))
	must(t, err)
	seen := 0
	for _, section := range object.Sections {
		if section.Type != elf.SHT_PROGBITS || section.Flags&elf.SHF_EXECINSTR == 0 {
			continue
		}
		code, err := section.Data()
		must(t, err)
		for at := 0; at+8 <= len(code); at += 8 {
			seen++
			if why := newerThan61(code[at : at+8]); why != "" {
				t.Errorf("section %s, octet %d: % x: %s", section.Name, at, code[at:at+8], why)
			}
			if code[at] == 0x18 { // the second half of a 64-bit load is no instruction
				at += 8
			}
		}
	}
	if seen < 1000 {
		t.Errorf("only %d instructions were looked at", seen)
	}
	for what, instruction := range map[string][8]byte{
		"sign-extending move": {0xbf, 0x21, 8}, "signed division": {0x3f, 0x21, 1}, "sign-extending load": {0x99, 0x21},
		"byte swap": {0xd7, 0x01, 0, 0, 16}, "long jump": {0x06}, "conditional pseudo-jump": {0xe5},
		"load-acquire": {0xdb, 0x21, 0, 0, 0, 1},
	} {
		if newerThan61(instruction[:]) == "" {
			t.Errorf("%s is taken for an instruction of 6.1", what)
		}
	}
}

// newerThan61 tells what is new in an instruction (kernel documentation, BPF instruction set); empty: nothing.
func newerThan61(instruction []byte) string {
	code := instruction[0]
	offset, constant := binary.LittleEndian.Uint16(instruction[2:]), binary.LittleEndian.Uint32(instruction[4:])
	class, operation, mode := code&7, code&0xf0, code&0xe0
	const load, loadRegister, store, storeRegister, alu32, jump, jump32, alu64 = 0, 1, 2, 3, 4, 5, 6, 7
	switch class {
	case load:
		if code != 0x18 {
			return "a load of a kind that is not used"
		}
	case loadRegister, store:
		if mode != 0x60 {
			return "a load or store that is not plain"
		}
	case storeRegister:
		if mode != 0x60 && (mode != 0xc0 || constant > 0xff) {
			return "an atomic operation of a newer kind"
		}
	case alu32, alu64:
		if offset != 0 || operation > 0xd0 || code == 0xd7 {
			return "arithmetic of version 4"
		}
	case jump:
		if operation > 0xd0 {
			return "a jump of a newer kind"
		}
	case jump32:
		if operation == 0 || operation == 0x80 || operation > 0xd0 {
			return "a jump of version 4"
		}
	}
	return ""
}
