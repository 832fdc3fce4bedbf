package datapath

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// wire is the far end of a node's interface: frames sent go to the program, frames that it sends are received.
type wire struct {
	socket int
	index  int
}

// wire opens the far end of an interface. A veth takes redirected frames only if its other end has a program too.
func (n *node) wire(t testing.TB, port string) *wire {
	t.Helper()
	w := &wire{socket: -1}
	n.in(t, func() error {
		l, err := netlink.LinkByName(port + "p")
		if err != nil {
			return err
		}
		w.index = l.Attrs().Index
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer program.Close()
		attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: w.index})
		if err != nil {
			return err
		}
		t.Cleanup(func() { attached.Close() })
		const all = uint16(unix.ETH_P_ALL)
		if w.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(swap16(all))); err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(w.socket) })
		if err := unix.SetsockoptInt(w.socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		timeout := unix.Timeval{Sec: 30}
		if err := unix.SetsockoptTimeval(w.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
			return err
		}
		return unix.Bind(w.socket, &unix.SockaddrLinklayer{Protocol: swap16(all), Ifindex: w.index})
	})
	return w
}

func (w *wire) send(t testing.TB, frame []byte) {
	t.Helper()
	if err := unix.Sendto(w.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: w.index, Halen: 6}); err != nil {
		t.Errorf("sending: %v", err)
	}
}

// receive gives the next frame that the program sent from an address of a node.
func (w *wire) receive(t testing.TB, from MAC) []byte {
	t.Helper()
	buffer := make([]byte, 4096)
	for {
		size, sender, err := unix.Recvfrom(w.socket, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatalf("receiving: %v", err)
		}
		s, ok := sender.(*unix.SockaddrLinklayer)
		if ok && s.Pkttype != unix.PACKET_OUTGOING && size >= 14 && MAC(buffer[6:12]) == from &&
			binary.BigEndian.Uint16(buffer[12:]) != 0x8100 && isIP(buffer[:size]) {
			return append([]byte(nil), buffer[:size]...)
		}
	}
}

// isIP leaves out what the kernel says by itself on a new interface: only unicast flows count.
func isIP(frame []byte) bool { return frame[0]&1 == 0 }

// TestWire proves on real interfaces what the other tests prove of the program: the first packet is held, released
// through the private veth, and arrives once; later packets flow by themselves, in both directions.
func TestWire(t *testing.T) {
	for _, f := range flows {
		t.Run(f.name, func(t *testing.T) {
			n := newDomain(t)
			client, core, instance, release := n.wire(t, "client0"), n.wire(t, "core0"), n.wire(t, "svc0"), n.wire(t, "rel0")
			must(t, n.SetDeliveries([]Delivery{f.delivery(deliverSID, hopInstance)}))

			first := packet{tuple: f.forward(), ttl: 64, flags: "S", payload: "1"}
			client.send(t, ethernet(n.mac["client0"], clientMAC, first.octets(t)))
			misses, err := n.ReadMisses(nil, time.Now().Add(time.Minute))
			must(t, err)
			if len(misses) != 1 {
				t.Fatalf("%d packets held, want 1", len(misses))
			}
			must(t, n.Install(f.egress(pathReturn)), n.Install(f.ingress("client-1", pathForward, hopClient)))
			release.send(t, ReleaseFrame(nil, misses[0].Interface, misses[0].Frame))
			second := packet{tuple: f.forward(), ttl: 64, flags: "A", payload: "2"}
			client.send(t, ethernet(n.mac["client0"], clientMAC, second.octets(t)))

			label := swap32(flowLabel(f.forward()))
			for i, p := range []packet{first, second} {
				p.tuple, p.ttl = f.delivered(), 63
				o := outer{ingressSource, []netip.Addr{deliverSID}, 0, 0, label, 64}
				if f.client.Addr().Is6() {
					o.hops = 63
				}
				diff(t, "on the core", core.receive(t, n.mac["core0"]),
					ethernet(coreMAC, n.mac["core0"], o.encapsulate(p.octets(t))))
				// The core brings it to the egress, which here is the same node.
				core.send(t, n.arriving(o, p.octets(t)))
				p.ttl = 62
				diff(t, "at the instance", instance.receive(t, n.mac["svc0"]), ethernet(instanceMAC, n.mac["svc0"], p.octets(t)))
				if i == 1 {
					break
				}
			}
			reply := packet{tuple: f.reverse(), ttl: 64, flags: "SA", payload: "3"}
			instance.send(t, ethernet(n.mac["svc0"], instanceMAC, reply.octets(t)))
			reply.ttl = 63
			o := outer{egressSource, []netip.Addr{returnSID}, 0, 0, swap32(flowLabel(f.reverse())), 64}
			if f.client.Addr().Is6() {
				o.hops = 63
			}
			diff(t, "on the core", core.receive(t, n.mac["core0"]),
				ethernet(coreMAC, n.mac["core0"], o.encapsulate(reply.octets(t))))
			core.send(t, n.arriving(o, reply.octets(t)))
			reply.tuple, reply.ttl = f.restored(), 62
			diff(t, "at the client", client.receive(t, n.mac["client0"]), ethernet(clientMAC, n.mac["client0"], reply.octets(t)))
			if c := n.counters(t); c.Held.Packets != 1 || dropped(c) != 0 {
				t.Errorf("held %d, dropped %d", c.Held.Packets, dropped(c))
			}
		})
	}
}

func dropped(c Counters) (total uint64) {
	for _, n := range c.Drops {
		total += n
	}
	return total
}

// TestRestartUnderTraffic closes and opens the data plane again and again while packets flow: none is lost.
func TestRestartUnderTraffic(t *testing.T) {
	n := newDomain(t)
	f := udp4
	client, core := n.wire(t, "client0"), n.wire(t, "core0")
	must(t, n.Install(f.ingress("client-1", pathForward, hopClient)))
	to, stop, sent := n.mac["client0"], make(chan struct{}), make(chan uint32)
	go func() {
		for i := uint32(0); ; i++ {
			select {
			case <-stop:
				sent <- i
				return
			case <-time.After(200 * time.Microsecond):
			}
			payload := string(binary.BigEndian.AppendUint32(nil, i))
			client.send(t, ethernet(to, clientMAC, packet{tuple: f.forward(), ttl: 64, payload: payload}.octets(t)))
		}
	}()
	for range 5 {
		must(t, n.Close())
		n.open(t, n.config())
	}
	close(stop)
	packets := <-sent
	for i := range packets {
		frame := core.receive(t, n.mac["core0"])
		if got := binary.BigEndian.Uint32(frame[len(frame)-4:]); got != i {
			t.Fatalf("packet %d came, want %d", got, i)
		}
	}
	if c := n.counters(t); dropped(c) != 0 || c.Forwarded[IngressForward].Packets != uint64(packets) {
		t.Errorf("%d packets sent; counters %+v", packets, c)
	}
	t.Logf("%d packets over 5 restarts", packets)
}
