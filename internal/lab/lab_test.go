package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/testenv"
)

// ping sends echo requests from the present namespace until one is answered, 30 s at most.
func ping(to string) error {
	target := netip.MustParseAddr(to)
	network, listen, protocol := "udp4", "0.0.0.0", 1
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if target.Is6() {
		network, listen, protocol, request, reply = "udp6", "::", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	c, err := icmp.ListenPacket(network, listen)
	if err != nil {
		return err
	}
	defer c.Close()
	buffer := make([]byte, 1500)
	last := errors.New("no answer")
	for i := range 60 {
		m := icmp.Message{Type: request, Body: &icmp.Echo{ID: 1, Seq: i, Data: []byte("margay")}}
		wire, err := m.Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(wire, &net.UDPAddr{IP: target.AsSlice()}); err != nil {
			last = err
			time.Sleep(500 * time.Millisecond)
			continue
		}
		if err := c.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			return err
		}
		n, _, err := c.ReadFrom(buffer)
		if err != nil {
			continue
		}
		if m, err := icmp.ParseMessage(protocol, buffer[:n]); err == nil && m.Type == reply {
			return nil
		}
	}
	return fmt.Errorf("ping %s: %w", to, last)
}

func TestNetworkReachesGatewaysAndManagement(t *testing.T) {
	l := up(t, lab.NetworkAlone)
	for _, c := range []struct{ node, to string }{
		{"client", "192.0.2.1"}, {"client", "2001:db8:c::1"}, {"A", "198.51.100.1"}, {"B", "2001:db8:b::1"},
		{"IF-1", "2001:db8:0:e2::1"}, {"EF-1", "2001:db8:0:1::1"}, // over a router, by the static routes
		{"IF-1", "10.255.0.10"}, {"B", "10.255.0.22"},
	} {
		t.Run(c.node+" to "+c.to, func(t *testing.T) { in(t, l, c.node, func() error { return ping(c.to) }) })
	}
}

// TestRoutersAreSRv6Endpoints sends over each router by a kernel encapsulation on IF-1, and counts at that router.
func TestRoutersAreSRv6Endpoints(t *testing.T) {
	l := up(t, lab.NetworkAlone)
	for _, c := range []struct{ router, sid, out string }{{"R1", "2001:db8:0:f1::1", "ef2"}, {"R2", "2001:db8:0:f2::1", "ef2"}} {
		t.Run(c.router, func(t *testing.T) {
			in(t, l, "IF-1", func() error {
				return steer("2001:db8:0:e2::1", "core1", c.sid, "2001:db8:0:e2::1")
			})
			before := sent(t, l, c.router, c.out)
			in(t, l, "IF-1", func() error { return ping("2001:db8:0:e2::1") })
			if after := sent(t, l, c.router, c.out); after == before {
				t.Errorf("nothing left %s over %s: %d packets before and after", c.router, c.out, after)
			}
		})
	}
}

// steer makes the kernel encapsulate what goes to an address with a segment list.
func steer(to, iface string, segments ...string) error {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return err
	}
	encap := netlink.SEG6Encap{Mode: nl.SEG6_IPTUN_MODE_ENCAP}
	for i := len(segments) - 1; i >= 0; i-- { // an SRH lists them backwards
		encap.Segments = append(encap.Segments, net.ParseIP(segments[i]))
	}
	return netlink.RouteReplace(&netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: &net.IPNet{IP: net.ParseIP(to), Mask: net.CIDRMask(128, 128)}, Encap: &encap,
		Src: net.ParseIP("2001:db8:0:1::1"),
	})
}

func sent(t *testing.T, l *lab.Lab, node, iface string) (packets uint64) {
	t.Helper()
	in(t, l, node, func() error {
		link, err := netlink.LinkByName(iface)
		if err == nil {
			packets = link.Attrs().Statistics.TxPackets
		}
		return err
	})
	return packets
}

func get(l *lab.Lab, node, url string) (status int, body []byte, err error) {
	n, err := l.Node(node)
	if err != nil {
		return 0, nil, err
	}
	// The dialler runs inside the node; the connection then is the node's whoever uses it.
	client := http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = n.Do(func() (err error) {
				c, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	}}
	response, err := client.Get(url)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

func TestServicesAnswerAtTheirInstances(t *testing.T) {
	l := up(t, lab.ServicesAlone)
	for _, c := range []struct{ node, url, instance string }{
		{"EF-1", "http://198.51.100.11:443/hello", "A"}, {"EF-2", "http://[2001:db8:b::21]:443/hello", "B"},
	} {
		_, body, err := get(l, c.node, c.url)
		if err != nil {
			t.Fatal(err)
		}
		var g lab.Greeting
		if err := json.Unmarshal(body, &g); err != nil || g.Instance != c.instance || g.Path != "/hello" || g.Remote == "" || !strings.Contains(c.url, g.Local) {
			t.Errorf("%s: %s, %v", c.url, body, err)
		}
	}
	_, body, err := get(l, "EF-1", "http://198.51.100.11:443/bytes/100000")
	if err != nil || len(body) != 100000 {
		t.Fatalf("%d octets, %v", len(body), err)
	}
	for i, b := range body {
		if b != lab.Pattern(int64(i)) {
			t.Fatalf("octet %d is %d", i, b)
		}
	}
	if _, stream, err := get(l, "EF-1", "http://198.51.100.11:443/stream?octets=5000&chunk=999&interval=1ms"); err != nil || !bytes.Equal(stream, body[:5000]) {
		t.Errorf("stream: %d octets, %v", len(stream), err)
	}
	if status, _, err := get(l, "EF-1", "http://198.51.100.11:443/stream?octets=-1"); err != nil || status != http.StatusBadRequest {
		t.Errorf("a bad request: status %d, %v", status, err)
	}
	in(t, l, "EF-2", func() error {
		c, err := net.Dial("udp", "198.51.100.21:5000")
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("ping")); err != nil {
			return err
		}
		answer := make([]byte, 100)
		c.SetReadDeadline(time.Now().Add(60 * time.Second))
		n, err := c.Read(answer)
		if string(answer[:n]) != "B ping" {
			t.Errorf("datagram answered by %q", answer[:n])
		}
		return err
	})
}

func TestProcessesAreStartedStoppedAndKilled(t *testing.T) {
	l := up(t, lab.ServicesAlone)
	const name = "service-A"
	first, err := l.Daemon(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context(), name); err == nil {
		t.Error("a running daemon was started again")
	}
	if err := l.Kill(name, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, _, err := get(l, "EF-1", "http://198.51.100.11:443/"); err == nil {
		t.Error("a killed service answers")
	}
	if err := l.Kill(name, syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("killing a dead daemon: %v", err)
	}
	if err := l.Start(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	second, _ := l.Daemon(name)
	if err := l.Restart(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	third, _ := l.Daemon(name)
	if first.PID == second.PID || second.PID == third.PID {
		t.Errorf("pids %d, %d, %d", first.PID, second.PID, third.PID)
	}
	if _, _, err := get(l, "EF-1", "http://198.51.100.11:443/"); err != nil {
		t.Error(err)
	}
	if _, err := l.Daemon("nobody"); err == nil || !strings.Contains(err.Error(), "service-A") {
		t.Errorf("unknown daemon: %v", err)
	}
}

// A process may end after it was ready, while Up waits for others.
func TestUpFailsIfAProcessEndsMeanwhile(t *testing.T) {
	testenv.RequireRoot(t)
	t.Setenv("LAB_TEST_LEAVE", "A")
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		t.Fatal(err)
	}
	name := uniqueName()
	l, err := lab.Up(t.Context(), lab.Options{Topology: topology, Name: name, Extent: lab.ServicesAlone, Programs: programs(t)})
	if err == nil {
		l.Down()
		t.Fatal("Up succeeded though a service has left")
	}
	for _, want := range []string{"service-A on node A ended", "told to leave"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	nothingLeft(t, name)
}

func TestUpRemovesEverythingAfterItsOwnFailure(t *testing.T) {
	testenv.RequireRoot(t)
	t.Setenv("LAB_TEST_FAIL", "B")
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		t.Fatal(err)
	}
	name := uniqueName()
	l, err := lab.Up(t.Context(), lab.Options{Topology: topology, Name: name, Extent: lab.ServicesAlone, Programs: programs(t)})
	if err == nil {
		l.Down()
		t.Fatal("Up succeeded though a service failed")
	}
	for _, want := range []string{"service-B on node B ended while it started", "told to fail"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	nothingLeft(t, name)
}

func TestUpRefusesBeforeAnythingIsBuilt(t *testing.T) {
	l := up(t, lab.NetworkAlone)
	empty := t.TempDir()
	for _, c := range []struct {
		o    lab.Options
		want string
	}{
		{lab.Options{Topology: l.Topology(), Name: l.Name(), Extent: lab.NetworkAlone}, "is up already"},
		{lab.Options{Topology: l.Topology(), Name: "a/b", Extent: lab.NetworkAlone}, "need 1 to 32"},
		{lab.Options{Topology: l.Topology(), Name: "..", Extent: lab.NetworkAlone}, "need 1 to 32"},
		{lab.Options{Topology: l.Topology(), Name: uniqueName(), Programs: empty}, "the program margay is not in " + empty},
		{lab.Options{}, "no topology"},
	} {
		if _, err := lab.Up(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	in(t, l, "client", func() error { return ping("192.0.2.1") }) // the lab that was up is unharmed
}

func TestLabsLiveSideBySideAndAreListed(t *testing.T) {
	one, two := up(t, lab.ServicesAlone), up(t, lab.NetworkAlone)
	all, err := lab.List()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]lab.Summary{}
	for _, s := range all {
		found[s.Name] = s
	}
	if s := found[one.Name()]; s.Daemons != 2 || s.Running != 2 || s.Topology != "example" {
		t.Errorf("%+v", s)
	}
	if s := found[two.Name()]; s.Name != two.Name() || s.Daemons != 0 {
		t.Errorf("%+v", s)
	}
	again, err := lab.Open(one.Name())
	if err != nil {
		t.Fatal(err)
	}
	in(t, again, "client", func() error { return ping("192.0.2.1") })
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestDownOfAHalfDestroyedLab(t *testing.T) {
	testenv.RequireRoot(t)
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		t.Fatal(err)
	}
	name := uniqueName()
	l, err := lab.Up(t.Context(), lab.Options{Topology: topology, Name: name, Extent: lab.ServicesAlone, Programs: programs(t)})
	if err != nil {
		t.Fatal(err)
	}
	pin := filepath.Join("/sys/fs/bpf/margay", name+"-IF-1")
	pinnable := os.MkdirAll(pin, 0o700) == nil // where no BPF file system is mounted there is nothing to remove
	if err := namespace.Remove("mgy-" + name + "-R1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Open(name); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("Open of a damaged lab: %v", err)
	}
	d := l.Daemons()[0]
	if err := lab.Down(name, nil); err != nil {
		t.Error(err)
	}
	if pinnable {
		if _, err := os.Stat(pin); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("pins stay: %v", err)
		}
	}
	if err := syscall.Kill(d.PID, 0); err == nil && !isZombie(d.PID) {
		t.Errorf("process %d still runs", d.PID)
	}
	l.Collect()
	nothingLeft(t, name)
	if err := lab.Down(name, nil); err == nil || !strings.Contains(err.Error(), "is not up") {
		t.Errorf("a second Down: %v", err)
	}
}

// Without its state file a lab is still known by its names, which may begin as another's.
func TestDownWithoutStateFileSparesOtherLabs(t *testing.T) {
	other := up(t, lab.NetworkAlone)
	name, _, _ := strings.Cut(other.Name(), "-")
	stray := "mgy-" + name + "-stray"
	n, err := namespace.New(stray)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Remove(stray) })
	n.Close()
	if err := lab.Down(name, nil); err != nil {
		t.Error(err)
	}
	if _, err := namespace.Open(stray); err == nil {
		t.Error("the stray namespace is still there")
	}
	in(t, other, "client", func() error { return ping("192.0.2.1") })
}

func TestUpRefusesNamespacesOfOthersAndLeavesThem(t *testing.T) {
	testenv.RequireRoot(t)
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		t.Fatal(err)
	}
	name := uniqueName()
	theirs := "mgy-" + name + "-R1"
	n, err := namespace.New(theirs)
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	t.Cleanup(func() { namespace.Remove(theirs) })
	if _, err := lab.Up(t.Context(), lab.Options{Topology: topology, Name: name, Extent: lab.NetworkAlone}); err == nil || !strings.Contains(err.Error(), theirs+" exists already") {
		t.Errorf("%v, want it refused", err)
	}
	again, err := namespace.Open(theirs)
	if err != nil {
		t.Fatalf("it is gone: %v", err)
	}
	again.Close()
	if err := namespace.Remove(theirs); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, name)
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestExecRunsInsideANode(t *testing.T) {
	l := up(t, lab.NetworkAlone)
	script := filepath.Join(t.TempDir(), "out")
	for _, c := range []struct {
		argv []string
		code int
	}{
		{[]string{"sh", "-c", "ip -o address show dev eth0 > " + script + "; echo $MARGAY_CONFIG >> " + script}, 0},
		{[]string{"sh", "-c", "exit 7"}, 7},
	} {
		code, err := lab.Exec(l.Name(), "client", c.argv)
		if err != nil || code != c.code {
			t.Errorf("%v: %d, %v", c.argv, code, err)
		}
	}
	out, err := os.ReadFile(script)
	if err != nil || !strings.Contains(string(out), "192.0.2.10/24") || !strings.Contains(string(out), l.ClientConfig("client")) {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := lab.Exec(l.Name(), "client", []string{"no-such-program"}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("unknown program: %v", err)
	}
	if _, err := lab.Exec(l.Name(), "nobody", []string{"true"}); err == nil || !strings.Contains(err.Error(), "it has [A B") {
		t.Errorf("unknown node: %v", err)
	}
	if _, err := lab.Exec("nolab", "client", []string{"true"}); err == nil || !strings.Contains(err.Error(), "is not up") {
		t.Errorf("unknown lab: %v", err)
	}
}
