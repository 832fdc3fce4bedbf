package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/testenv"
)

// refuse opens with a configuration that must be refused, and checks what the error says.
func (n *node) refuse(t testing.TB, config Config, says ...string) {
	t.Helper()
	var refused error
	n.in(t, func() error {
		d, err := Open(config)
		if err == nil {
			d.Close()
		}
		refused = err
		return nil
	})
	if refused == nil {
		t.Errorf("no error; want one that says %q", says)
		return
	}
	for _, s := range says {
		if !strings.Contains(refused.Error(), s) {
			t.Errorf("error %v\nwant one that says %q", refused, s)
		}
	}
}

// TestRestart proves that the data plane runs while no process holds it, and is taken over as it is.
func TestRestart(t *testing.T) {
	n := newDomain(t)
	f := tcp4
	must(t, n.Install(f.ingress("client-1", pathForward, hopClient)))
	entries, err := n.Entries()
	must(t, err)
	before := n.attachedProgram(t, "client0")
	must(t, n.Close())
	if now := n.attachedProgram(t, "client0"); now != before || now == 0 {
		t.Errorf("after Close program %d runs, before %d", now, before)
	}
	n.open(t, n.config())
	if now := n.attachedProgram(t, "client0"); now == before || now == 0 {
		t.Errorf("after Open program %d runs, want a new one", now)
	}
	n.expectEntries(t, entries)
	frame := ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 9}.octets(t))
	if a, _ := n.run(t, "client0", frame); a != xdpRedirect {
		t.Errorf("after a restart: %s", actionName(a))
	}
	for _, pin := range []string{"program", "bindings", "link_client0"} {
		if _, err := os.Stat(filepath.Join(n.pins, pin)); err != nil {
			t.Error(err)
		}
	}
}

// attachedProgram gives the id of the XDP program of an interface; 0: none.
func (n *node) attachedProgram(t testing.TB, name string) (id uint32) {
	t.Helper()
	n.in(t, func() error {
		l, err := netlink.LinkByName(name)
		if err == nil && l.Attrs().Xdp != nil {
			id = l.Attrs().Xdp.ProgId
		}
		return err
	})
	return id
}

func TestUnload(t *testing.T) {
	n := newNode(t)
	must(t, Unload(n.pins)) // while the process still has everything open
	for _, p := range nodePorts {
		if id := n.attachedProgram(t, p.Name); id != 0 {
			t.Errorf("program %d still runs on %s", id, p.Name)
		}
	}
	if _, err := os.Stat(n.pins); !os.IsNotExist(err) {
		t.Errorf("the pin directory is still there: %v", err)
	}
	must(t, Unload(n.pins))
	if err := Unload(t.TempDir()); err == nil || !strings.Contains(err.Error(), "BPF file system") {
		t.Errorf("unloading an ordinary directory: %v", err)
	}
}

func TestOpenRefusals(t *testing.T) {
	n := newNode(t)
	ran := n.attachedProgram(t, "client0")
	for name, c := range map[string]struct {
		change func(*Config)
		says   []string
	}{
		"missing interfaces, all at once": {func(c *Config) {
			c.Ports = append(slices.Clone(nodePorts), Port{"nosuch0", RoleCore}, Port{"nosuch1", RoleCore})
		}, []string{"nosuch0", "nosuch1"}},
		"an interface twice":         {func(c *Config) { c.Ports = append(slices.Clone(nodePorts), nodePorts[0]) }, []string{"client0", "twice"}},
		"another capacity":           {func(c *Config) { c.Bindings = 64 }, []string{n.pins, "bindings", "128", "unload"}},
		"pins elsewhere":             {func(c *Config) { c.PinDir = t.TempDir() }, []string{"BPF file system"}},
		"a relative pin directory":   {func(c *Config) { c.PinDir = "margay" }, []string{`"margay"`, "absolute"}},
		"a dot in the pin directory": {func(c *Config) { c.PinDir = n.pins + ".1" }, []string{n.pins + ".1", "dots"}},
		"someone else's program":     {func(c *Config) { c.PinDir = pinDir(t) }, []string{"any0", "another XDP program"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := n.config()
			if strings.HasPrefix(name, "someone") {
				config.Ports = slices.Clone(nodePorts)
				slices.Reverse(config.Ports)
			}
			c.change(&config)
			n.refuse(t, config, c.says...)
			if now := n.attachedProgram(t, "client0"); now != ran {
				t.Errorf("program %d runs, before %d", now, ran)
			}
			if config.PinDir != n.pins {
				if files, _ := os.ReadDir(config.PinDir); len(files) != 0 {
					t.Errorf("%d files were left in %s", len(files), config.PinDir)
				}
			}
		})
	}
	t.Run("another layout", func(t *testing.T) {
		must(t, n.maps.State.Put(uint32(0), &programIncarnation{Layout: cats.LayoutVersion + 1}))
		n.refuse(t, n.config(), n.pins, fmt.Sprint("layout ", cats.LayoutVersion+1), fmt.Sprint("needs ", cats.LayoutVersion))
	})
}

// TestPorts proves that the program follows interfaces that come, go and come back.
func TestPorts(t *testing.T) {
	n, whole := newNode(t), t
	t.Run("one that came back is attached again", func(t *testing.T) {
		n.in(t, func() error {
			l, err := netlink.LinkByName("svc0")
			if err != nil {
				return err
			}
			if err := netlink.LinkDel(l); err != nil {
				return err
			}
			return addVeth("svc0", "svc0p")
		})
		if id := n.attachedProgram(t, "svc0"); id != 0 {
			t.Fatalf("program %d runs on an interface that just came", id)
		}
		n.in(t, func() error { return n.SetPorts(nodePorts) })
		if id := n.attachedProgram(t, "svc0"); id == 0 {
			t.Error("the program does not run")
		}
		places, err := n.readPorts()
		must(t, err)
		ports := 0
		for _, p := range places {
			if p.Ifindex != 0 {
				ports++
			}
		}
		if ports != len(nodePorts) {
			t.Errorf("%d ports, want %d", ports, len(nodePorts))
		}
	})
	t.Run("one that came back while nobody looked is attached at Open", func(t *testing.T) {
		must(t, n.Close())
		n.in(t, func() error {
			l, err := netlink.LinkByName("core0")
			if err != nil {
				return err
			}
			if err := netlink.LinkDel(l); err != nil {
				return err
			}
			return addVeth("core0", "core0p")
		})
		n.open(whole, n.config())
		if id := n.attachedProgram(t, "core0"); id == 0 {
			t.Error("the program does not run")
		}
	})
	t.Run("one that is no port any more is detached", func(t *testing.T) {
		n.in(t, func() error { return n.SetPorts(nodePorts[:2]) })
		for i, p := range nodePorts {
			if runs := n.attachedProgram(t, p.Name) != 0; runs != (i < 2) {
				t.Errorf("%s: runs %t", p.Name, runs)
			}
		}
		if got := n.Ports(); len(got) != 2 || got[0].Name != "client0" || got[0].Mode != ModeNative || got[1].Role != RoleCore {
			t.Errorf("ports %+v", got)
		}
	})
	t.Run("one whose driver has no XDP runs it in generic mode", func(t *testing.T) {
		n.in(t, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(lo); err != nil {
				return err
			}
			return n.SetPorts([]Port{{"lo", RoleCore}})
		})
		if got := n.Ports(); len(got) != 1 || got[0].Mode != ModeGeneric || got[0].Index != 1 {
			t.Errorf("ports %+v", got)
		}
	})
}

// TestSharedPins proves that two forwarders never take over one another's interfaces, which may have the same index.
func TestSharedPins(t *testing.T) {
	testenv.RequireRoot(t)
	a := newNode(t)
	b := &node{pins: a.pins, threads: newThread(t)}
	b.in(t, func() error {
		for _, p := range nodePorts {
			if err := addVeth(p.Name, p.Name+"p"); err != nil {
				return err
			}
		}
		return nil
	})
	b.refuse(t, a.config(), "another network namespace", a.pins)
}

// TestReducedPrivileges proves that everything after Open works with the capabilities that a forwarder keeps.
func TestReducedPrivileges(t *testing.T) {
	n := newDomain(t)
	n.in(t, func() error { // the thread ends with the test, and its capabilities with it
		keep := uint64(1)<<unix.CAP_BPF | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		data := [2]unix.CapUserData{
			{Permitted: uint32(keep), Effective: uint32(keep)},
			{Permitted: uint32(keep >> 32), Effective: uint32(keep >> 32)},
		}
		if err := unix.Capset(&header, &data[0]); err != nil {
			return err
		}
		entries := tcp4.ingress("client-1", pathForward, hopClient)
		_, read := n.ReadMisses(nil, time.Now())
		_, counted := n.Counters()
		_, dumped := n.Entries()
		return errors.Join(read, counted, dumped,
			n.Install(entries), n.Install(entries), n.SetDraining(entries[0].Key, transaction, true),
			n.PutPath(40, Path{Kind: cats.PathNative}), n.HoldDown(entries[0].Key, cats.ReasonTimeout, 1),
			n.SetServices(nil), n.SetAttachments(nil), n.SetDeliveries(nil), n.SetDomainBlock(domain), n.RaiseEpoch(1, cats.Epoch{Term: 1}),
			n.SetPorts(nodePorts[1:]), n.SetPorts(nodePorts))
	})
}
