package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/margay-net/margay/cats"
)

// Datapath is the data plane of one forwarder.
type Datapath struct {
	config      Config
	program     *ebpf.Program // margay
	maps        programMaps
	table       *table
	ring        *ringbuf.Reader
	record      ringbuf.Record // reused by ReadMisses
	ports       map[string]*attached
	soles       map[uint32]sole // by interface index
	incarnation [16]byte
}

// Open takes over the pinned data plane in config.PinDir, or makes it, and attaches the program to every port. A port
// that no longer is in config is detached; one whose interface vanished and came back is attached again. It fails, and
// leaves what ran before running, if an interface is missing or the pins have another layout or capacity. It needs
// CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON (without which the verifier allows no packet access at a variable offset) and,
// where no BPF file system is mounted, CAP_SYS_ADMIN; everything after Open needs CAP_BPF and CAP_NET_ADMIN alone.
func Open(config Config) (*Datapath, error) {
	config = config.withDefaults()
	interfaces, err := findInterfaces(config.Ports)
	if err != nil {
		return nil, err
	}
	fresh, err := makePinDir(config.PinDir)
	if err != nil {
		return nil, err
	}
	d, err := load(config)
	if err == nil {
		err = d.start(interfaces)
	}
	if err != nil {
		if d != nil {
			d.Close()
		}
		if fresh { // nothing ran before: leave nothing half made
			err = errors.Join(err, Unload(config.PinDir))
		}
		return nil, fmt.Errorf("data plane in %s: %w", config.PinDir, err)
	}
	return d, nil
}

func (c Config) withDefaults() Config {
	set := func(v *uint32, to uint32) {
		if *v == 0 {
			*v = to
		}
	}
	set(&c.Bindings, 65536)
	set(&c.Paths, 4096)
	set(&c.NextHops, 65536)
	set(&c.RingOctets, 8<<20)
	return c
}

// load makes or reuses the maps and loads the programs.
func load(config Config) (*Datapath, error) {
	spec, err := loadProgram()
	if err != nil {
		return nil, err
	}
	if err := checkBindings(config.Bindings); err != nil {
		return nil, err
	}
	state, err := findState(config)
	if err != nil {
		return nil, err
	}
	if err := spec.Variables["table"].Set(programTableParameters{Secret: state.Secret, Homes: homeCount(config.Bindings)}); err != nil {
		return nil, fmt.Errorf("constants of the program: %w", err)
	}
	spec.Maps[programMapBindings].MaxEntries = placeCount(config.Bindings)
	spec.Maps[programMapRecords].MaxEntries = recordCount(config.Bindings)
	spec.Maps[programMapTouched].MaxEntries = touchedWords(config.Bindings)
	spec.Maps[programMapPaths].MaxEntries = config.Paths
	spec.Maps[programMapNextHops].MaxEntries = config.NextHops
	spec.Maps[programMapMisses].MaxEntries = config.RingOctets

	var objects struct {
		programPrograms
		programMaps
	}
	options := &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: config.PinDir}}
	if err := spec.LoadAndAssign(&objects, options); err != nil {
		if errors.Is(err, ebpf.ErrMapIncompatible) {
			return nil, fmt.Errorf("the pinned maps were made for another configuration: restore its capacities, "+
				"or unload the data plane, which ends its flows: %w", err)
		}
		return nil, fmt.Errorf("loading the program: %w", err)
	}
	d := &Datapath{config: config, program: objects.Margay, maps: objects.programMaps, ports: make(map[string]*attached)}
	d.table, err = openTable(&d.maps, config.Bindings, state)
	if err == nil {
		err = d.identify(state)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// start finishes Open once the maps and programs are there.
func (d *Datapath) start(interfaces []foundInterface) error {
	ring, err := ringbuf.NewReader(d.maps.Misses)
	if err != nil {
		return fmt.Errorf("ring buffer of held packets: %w", err)
	}
	d.ring = ring
	pin := filepath.Join(d.config.PinDir, "program")
	if err := os.Remove(pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replacing the pinned program: %w", err)
	}
	if err := d.program.Pin(pin); err != nil {
		return fmt.Errorf("pinning the program: %w", err)
	}
	return d.attach(interfaces)
}

// findState gives what the pinned maps say of themselves, before another of them is touched; a new one where there are
// none. Another layout or capacity is refused.
func findState(config Config) (*programIncarnation, error) {
	fresh := &programIncarnation{Bindings: config.Bindings, Secret: drawSecrets()}
	rand.Read(fresh.Id[:]) // never fails
	pin := filepath.Join(config.PinDir, programMapState)
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pinned map %s: %w", pin, err)
	}
	defer m.Close()
	octets, err := m.LookupBytes(uint32(0))
	if err != nil {
		return nil, fmt.Errorf("pinned map %s: %w", pin, err)
	}
	var found programIncarnation
	layout := binary.NativeEndian.Uint32(octets) // first in every version
	if layout == 0 && len(octets) == int(unsafe.Sizeof(found)) {
		return fresh, nil // whoever made it came no further
	}
	if layout != cats.LayoutVersion {
		return nil, fmt.Errorf("the pinned maps have layout %d and this program needs %d: unload the data plane with the "+
			"program that made it, which ends its flows", layout, cats.LayoutVersion)
	}
	if err := m.Lookup(uint32(0), &found); err != nil {
		return nil, fmt.Errorf("pinned map %s: %w", pin, err)
	}
	if found.Bindings != config.Bindings {
		return nil, fmt.Errorf("the pinned tables were made for %d bindings and the configuration has %d: restore that "+
			"capacity, or unload the data plane, which ends its flows", found.Bindings, config.Bindings)
	}
	return &found, nil
}

// identify takes over the incarnation of the pinned maps, or gives new ones theirs.
func (d *Datapath) identify(state *programIncarnation) error {
	if state.Layout == 0 {
		state.Layout = cats.LayoutVersion
		if err := d.maps.State.Put(uint32(0), state); err != nil {
			return fmt.Errorf("writing map state: %w", err)
		}
	}
	d.incarnation = state.Id
	return nil
}

// Incarnation is a random number drawn when the pinned maps were made: bindings of another incarnation are gone.
func (d *Datapath) Incarnation() [16]byte { return d.incarnation }

// Close lets go of the data plane, which runs on as it is: everything stays pinned and attached. It ends ReadMisses.
func (d *Datapath) Close() error {
	var errs []error
	if d.ring != nil {
		errs = append(errs, d.ring.Close())
	}
	for _, a := range d.ports {
		errs = append(errs, a.link.Close())
	}
	if d.table != nil {
		errs = append(errs, d.table.close())
	}
	errs = append(errs, d.program.Close(), d.maps.Close())
	return errors.Join(errs...)
}

// Unload detaches the program from every interface and removes all pins in pinDir, so that established flows end there.
// It is no error if there are none.
func Unload(pinDir string) error {
	files, err := os.ReadDir(pinDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading pins: %w", err)
	}
	if err := requireBPFFS(pinDir); err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		if strings.HasPrefix(f.Name(), linkPrefix) {
			errs = append(errs, detach(filepath.Join(pinDir, f.Name())))
			continue
		}
		errs = append(errs, os.Remove(filepath.Join(pinDir, f.Name())))
	}
	return errors.Join(append(errs, os.Remove(pinDir))...)
}

// detach ends a pinned link, also where another process holds it open.
func detach(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return fmt.Errorf("pinned link %s: %w", pin, err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		return fmt.Errorf("pinned link %s: %w", pin, err)
	}
	if err := l.Unpin(); err != nil {
		return fmt.Errorf("pinned link %s: %w", pin, err)
	}
	return nil
}
