package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
	"encoding/binary"
	"encoding/hex"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/lab/namespace"
)

func must(err error) { if err != nil { panic(err) } }

func sh(s string) { 
	for _, l := range strings.Split(strings.TrimSpace(s), "\n") {
		l = strings.TrimSpace(l)
		if l == "" { continue }
		out, err := exec.Command("sh", "-c", l).CombinedOutput()
		if err != nil { fmt.Fprintln(os.Stderr, l, err, string(out)); os.Exit(1) }
	}
}

func frame(dst, src net6, size int) []byte {
	b := append(append([]byte{}, dst[:]...), src[:]...)
	b = append(b, 8, 0)
	n := size - 14
	ip := make([]byte, n)
	ip[0] = 0x45
	binary.BigEndian.PutUint16(ip[2:], uint16(n))
	ip[8] = 64; ip[9] = 17
	copy(ip[12:], []byte{192,0,2,10}); copy(ip[16:], []byte{192,0,2,100})
	var s uint32
	for i := 0; i < 20; i += 2 { s += uint32(binary.BigEndian.Uint16(ip[i:])) }
	for s > 0xffff { s = s&0xffff + s>>16 }
	binary.BigEndian.PutUint16(ip[10:], ^uint16(s))
	binary.BigEndian.PutUint16(ip[20:], 40000)
	binary.BigEndian.PutUint16(ip[22:], 5000)
	binary.BigEndian.PutUint16(ip[24:], uint16(n-20))
	return append(b, ip...)
}
type net6 = [6]byte

func mac(ns *namespace.Namespace, name string) (m net6, idx int) {
	must(ns.Do(func() error { l, err := netlink.LinkByName(name); must(err); copy(m[:], l.Attrs().HardwareAddr); idx = l.Attrs().Index; return nil }))
	return
}

func main() {
	p := fmt.Sprintf("mgbp%d-", os.Getpid())
	names := []string{"gen", "a", "b", "sink"}
	ns := map[string]*namespace.Namespace{}
	for _, n := range names { x, err := namespace.New(p+n); must(err); ns[n] = x; defer namespace.Remove(p+n) }
	pin := fmt.Sprintf("/sys/fs/bpf/margay/bench%d", os.Getpid())
	defer func() { datapath.Unload(pin) }()
	N := func(s string) { sh(strings.ReplaceAll(s, "%", p)) }
	sinkMode := os.Args[1] // xdp | tc
	for _, x := range []string{"a", "b"} {
		N(`ip -n %gen link add gen`+x+` type veth peer name client0 netns %`+x+`
		ip -n %`+x+` link add core0 type veth peer name sink`+x+` netns %sink
		ip netns exec %`+x+` sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.default.seg6_enabled=1 net.ipv4.conf.all.rp_filter=0 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.core0.accept_dad=0 net.ipv6.conf.core0.seg6_enabled=1
		ip -n %`+x+` addr add 192.0.2.1/24 dev client0
		ip -n %`+x+` addr add 2001:db8:1:1::1/64 dev core0 nodad
		ip -n %`+x+` link set client0 up
		ip -n %`+x+` link set core0 up
		ip -n %gen link set gen`+x+` up
		ip -n %sink link set sink`+x+` up
		ip netns exec %`+x+` ethtool -K client0 gro on
		ip netns exec %sink ethtool -K sink`+x+` gro on`)
	}
	N(`ip -n %gen link add genh type veth peer name sinkh netns %sink
	ip -n %gen link set genh up
	ip -n %sink link set sinkh up
	ip netns exec %sink ethtool -K sinkh gro on`)
	must(os.WriteFile("/proc/sys/net/netfilter/nf_hooks_lwtunnel", []byte("1"), 0))
	sm, _ := mac(ns["sink"], "sinkb")
	N(`ip -n %b -6 route add 2001:db8:0:f1::/64 via 2001:db8:1:1::2 dev core0
	ip -n %b -6 neigh add 2001:db8:1:1::2 lladdr `+fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", sm[0],sm[1],sm[2],sm[3],sm[4],sm[5])+` dev core0 nud permanent
	ip -n %b route add 198.51.100.21/32 encap seg6 mode encap segs 2001:db8:0:f1::1,2001:db8:0:e2::12 dev core0
	ip netns exec %b ip sr tunsrc set 2001:db8:1:1::1
	ip netns exec %b nft 'add table ip nat'
	ip netns exec %b nft 'add chain ip nat pre { type nat hook prerouting priority dstnat; }'
	ip netns exec %b nft 'add rule ip nat pre ip daddr 192.0.2.100 udp dport 5000 dnat to 198.51.100.21:5000'`)
	// A
	var d *datapath.Datapath
	must(ns["a"].Do(func() (err error) {
		d, err = datapath.Open(datapath.Config{PinDir: pin, Ports: []datapath.Port{{"client0", datapath.RoleClient}, {"core0", datapath.RoleCore}}})
		if err != nil { return err }
		return d.SetAttachments([]datapath.Attachment{{Name: "client-1", Interface: "client0", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}})
	}))
	defer d.Close()
	am, _ := mac(ns["a"], "client0")
	cm, ci := mac(ns["a"], "core0")
	sa, _ := mac(ns["sink"], "sinka")
	must(d.PutNextHop(1, datapath.NextHop{Interface: ci, Source: cm, Target: sa, MTU: 1500}))
	must(d.PutPath(1, datapath.Path{Kind: cats.PathSRv6, Source: netip.MustParseAddr("2001:db8:0:1::1"), Segments: []netip.Addr{netip.MustParseAddr("2001:db8:0:f1::1"), netip.MustParseAddr("2001:db8:0:e2::12")}, NextHop: 1}))
	must(d.Install([]datapath.Entry{{Key: datapath.Key{Kind: datapath.IngressForward, Attachment: datapath.AttachmentID("client-1"), Tuple: cats.Tuple{Protocol: cats.UDP, Source: netip.MustParseAddrPort("192.0.2.10:40000"), Target: netip.MustParseAddrPort("192.0.2.100:5000")}},
		Transaction: cats.Transaction{1}, Service: 1, Version: 1, Rewrite: netip.MustParseAddrPort("198.51.100.21:5000"), Path: 1}}))

	bm, _ := mac(ns["b"], "client0")
	const size = 60
	type sut struct { name string; m *ebpf.Map; g, s *ebpf.Program; af *afgen; vals []float64 }
	var suts []*sut
	build := func(name, gen, sink string, dst net6, out int, mode string, af bool) {
		m, err := newMeter(); must(err)
		gm, gi := mac(ns["gen"], gen)
		g, err := generatorProgram(m, frame(dst, gm, size), gi); must(err)
		s, err := sinkProgram(m, out, mode == "tc"); must(err)
		must(ns["sink"].Do(func() error {
			l, err := netlink.LinkByName(sink); must(err)
			if mode == "tc" { _, err = link.AttachTCX(link.TCXOptions{Program: s, Attach: ebpf.AttachTCXIngress, Interface: l.Attrs().Index}) } else {
			_, err = link.AttachXDP(link.XDPOptions{Program: s, Interface: l.Attrs().Index, Flags: link.XDPDriverMode}) }
			return err
		}))
		u := &sut{name: name, m: m, g: g, s: s}
		if af { u.af = newAF(ns["gen"], gi, frame(dst, gm, size)) }
		suts = append(suts, u)
	}
	af := len(os.Args) > 2 && os.Args[2] == "af"
	hm, _ := mac(ns["sink"], "sinkh")
	build("harness", "genh", "sinkh", hm, 60, sinkMode, af)
	build("margay", "gena", "sinka", am, 140, sinkMode, af)
	build("nocode", "genb", "sinkb", bm, 140, sinkMode, af)
	const count = 100000
	runtime.LockOSThread()
	var set unix.CPUSet; set.Set(1); must(unix.SchedSetaffinity(0, &set))
	must(unix.Setns(ns["gen"].Fd(), unix.CLONE_NEWNET))
	for round := 0; round < 40; round++ {
		for _, s := range suts {
			t0 := time.Now()
			var v meter
			must(s.m.Lookup(uint32(0), &v))
			v.Target = v.Sent + count
			start := v
			must(s.m.Put(uint32(0), &v))
			calls := 0
			for v.Received < start.Received+count {
				if s.af != nil {
					s.af.send()
					w := s.af.sent
					for { must(s.m.Lookup(uint32(0), &v)); if v.Received >= w { break }; if time.Since(t0) > 3*time.Second { break }; unix.Syscall(unix.SYS_SCHED_YIELD,0,0,0) }
				} else {
					_, err := s.g.Run(&ebpf.RunOptions{Data: make([]byte, size+128), Repeat: uint32(start.Target-v.Sent)+64, Flags: 2})
					must(err)
					must(s.m.Lookup(uint32(0), &v))
				}
				calls++
				if time.Since(t0) > 3*time.Second { fmt.Println("stuck", s.name, v, start); break }
			}
			s.vals = append(s.vals, float64(time.Since(t0).Nanoseconds())/count)
			if round == 0 { fmt.Println(s.name, "calls", calls, v) }
		}
	}
	for _, s := range suts {
		slices.Sort(s.vals)
		fmt.Printf("%-8s median %.0f ns  min %.0f max %.0f\n", s.name, s.vals[len(s.vals)/2], s.vals[0], s.vals[len(s.vals)-1])
	}
	sh("ip netns exec "+p+"b cat /proc/sys/net/netfilter/nf_conntrack_count >&2")
	out, _ := exec.Command("ip", "netns", "exec", p+"b", "cat", "/proc/sys/net/netfilter/nf_conntrack_count").CombinedOutput()
	fmt.Println("conntrack", string(out))
	c, _ := d.Counters(); fmt.Println(c.Forwarded, c.Passed)
	_ = hex.Dump
}

type afgen struct { fd int; hdrs []mmsg; iov []unix.Iovec; frame []byte; sent uint64 }
type mmsg struct { h unix.Msghdr; n uint32; _ [4]byte }
func newAF(n *namespace.Namespace, idx int, f []byte) *afgen {
	a := &afgen{frame: f}
	must(n.Do(func() (err error) {
		a.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); must(err)
		must(unix.SetsockoptInt(a.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
		return unix.Bind(a.fd, &unix.SockaddrLinklayer{Ifindex: idx})
	}))
	a.hdrs = make([]mmsg, window); a.iov = make([]unix.Iovec, window)
	for i := range a.hdrs { a.iov[i].Base = &f[0]; a.iov[i].SetLen(len(f)); a.hdrs[i].h.Iov = &a.iov[i]; a.hdrs[i].h.Iovlen = 1 }
	return a
}
