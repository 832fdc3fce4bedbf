package forwarder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/wire/catsreq"
	"github.com/margay-net/margay/internal/wire/v1alpha1"
)

// serve echoes TCP at an address of the server's namespace until the test ends.
func (d *domain) serve(address netip.AddrPort) {
	d.t.Helper()
	var l net.Listener
	d.in("server", func() (err error) {
		l, err = net.Listen("tcp", address.String())
		return err
	})
	var all sync.WaitGroup
	ends := make(chan struct{})
	d.root.Cleanup(func() { l.Close(); close(ends); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { io.Copy(c, c); c.Close() })
			all.Go(func() { <-ends; c.Close() })
		}
	})
}

// connect opens a connection from the client's namespace.
func (d *domain) connect(to netip.AddrPort) *net.TCPConn {
	d.t.Helper()
	var c net.Conn
	d.in("client", func() (err error) {
		c, err = (&net.Dialer{Timeout: patience}).Dial("tcp", to.String())
		return err
	})
	d.root.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// echo sends one line and waits for it to come back.
func echo(c net.Conn, text string) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(text)); err != nil {
		return err
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(c, back); err != nil {
		return err
	}
	if string(back) != text {
		return fmt.Errorf("sent %q, got %q back", text, back)
	}
	return nil
}

func TestForwarder(t *testing.T) {
	d := newDomain(t)
	d.serve(netip.AddrPortFrom(serverIP.Addr(), 443))
	d.serve(netip.AddrPortFrom(server6.Addr(), 443))

	var established *net.TCPConn
	d.run("CP-8.4-1 a new flow is decided once and reaches the instance", func(t *testing.T) {
		for i, to := range []netip.AddrPort{service4, service6} {
			c := d.connect(to)
			for range 20 {
				if err := echo(c, "hello"); err != nil {
					t.Fatal(err)
				}
			}
			if n := d.cps.count(func() int { return len(d.cps.requests) }); n != i+1 {
				t.Fatalf("%d requests for %d flows", n, i+1)
			}
			if i == 0 {
				established = c
			}
		}
		if got := drops(d.counters("IF-1")) + drops(d.counters("EF-1")); got != "{}{}" {
			t.Fatalf("drops %s", got)
		}
		for _, name := range []string{"IF-1", "EF-1"} {
			treated := map[string]uint64{}
			for _, p := range d.counters(name).Packets {
				treated[p.Kind] = p.Packets
			}
			// The first packets may find neighbours that the kernel still asks for; none after that.
			if all := treated["forward"] + treated["restore"] + treated["deliver"] + treated["return"]; all < 80 || treated["unresolved"] > 8 {
				t.Fatalf("%s: %v", name, treated)
			}
		}
		r := d.counters("IF-1")
		if r.ServiceRequests != 2 || r.Released != 2 || r.Held != 2 || r.Bindings != 2 || r.Capacity != 65536 {
			t.Fatalf("counters %+v", r)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	d.run("CP-9-5 deliveries are acknowledged", func(t *testing.T) {
		d.eventually("acknowledged", func() string {
			if n := d.cps.count(func() int { return len(d.cps.acks["EF-1"]) }); n != 2 {
				return fmt.Sprintf("%d deliveries", n)
			}
			return ""
		})
	})
	d.run("CP-11-1 a refused flow reaches nobody and is counted by its reason", func(t *testing.T) {
		before := d.cps.count(func() int { return len(d.cps.requests) })
		d.in("client", func() error {
			c, err := net.Dial("udp", refusedAP.String())
			if err != nil {
				return err
			}
			defer c.Close()
			for range 5 { // the first is refused, the others are held down in the data plane
				if _, err := c.Write([]byte("x")); err != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		})
		d.eventually("dropped", func() string {
			if got := drops(d.counters("IF-1")); got != `{"REASON_NO_CANDIDATE":5}` {
				return got
			}
			return ""
		})
		if n := d.cps.count(func() int { return len(d.cps.requests) }); n != before+1 {
			t.Fatalf("%d requests, want one", n-before)
		}
	})
	d.run("CP-10-4 killed and started again, it takes over without a packet lost", func(t *testing.T) {
		for _, name := range []string{"IF-1", "EF-1"} {
			before := drops(d.counters(name))
			d.eventually("counters are written", func() string { time.Sleep(1100 * time.Millisecond); return "" })
			stop, stopped := make(chan struct{}), make(chan error, 1)
			go func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						stopped <- nil
						return
					default:
					}
					if err := echo(established, fmt.Sprintf("%s %d;", name, n)); err != nil {
						stopped <- err
						return
					}
				}
			}()
			resent := retransmits(t, established)
			d.kill(name)
			time.Sleep(300 * time.Millisecond)
			d.start(name)
			d.awaitReady(name)
			time.Sleep(300 * time.Millisecond)
			close(stop)
			if err := <-stopped; err != nil {
				t.Fatalf("%s: the connection did not outlive it: %v", name, err)
			}
			if n := retransmits(t, established); n != resent {
				t.Errorf("%s: %d segments were sent again", name, n-resent)
			}
			if after := drops(d.counters(name)); after != before {
				t.Errorf("%s: drop counters moved from %s to %s", name, before, after)
			}
			hellos := d.cps.count(func() int { return len(d.cps.hellos[name]) })
			if last := d.cps.hellos[name][hellos-1]; len(last.Bindings) != 2 || last.Obeyed(0).Term != 1 {
				t.Errorf("%s: hello with %d bindings, highest epoch %s", name, len(last.Bindings), last.Obeyed(0))
			}
		}
	})
	d.run("CP-10-4 CP-11-5 established flows outlive the C-PS, whose failure is not the data plane's", func(t *testing.T) {
		d.cps.stop()
		d.eventually("only the C-PS is missed", func() string {
			code, body, err := d.http("IF-1", "readyz")
			if err != nil || code == http.StatusOK || !strings.Contains(body, "ok data-plane") || !strings.Contains(body, "not ready cps") {
				return fmt.Sprint(code, body, err)
			}
			return ""
		})
		for n := range 50 {
			if err := echo(established, fmt.Sprint(n)); err != nil {
				t.Fatal(err)
			}
		}
		d.cps.silent = true
		d.cps.start()
		d.eventually("the provision of this session is missed", func() string {
			code, body, err := d.http("IF-1", "readyz")
			if err != nil || code == http.StatusOK || !strings.Contains(body, "ok cps") || !strings.Contains(body, "not ready provision: the C-PS has not provisioned in this session") {
				return fmt.Sprint(code, body, err)
			}
			return ""
		})
		if err := echo(established, "not provisioned"); err != nil {
			t.Fatal(err)
		}
		d.cps.speak()
		d.awaitReady("IF-1")
		d.awaitReady("EF-1")
		c := d.connect(service4)
		if err := echo(c, "again"); err != nil {
			t.Fatal(err)
		}
	})
	d.run("CP-6-7 announced metadata goes with its flow", func(t *testing.T) { d.announced(t) })
	d.run("roles may call what is theirs", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := d.dial("IF-1", trust.Client, "phone").GetCounters(ctx, &pb.GetCountersRequest{})
		if status.Code(err) != codes.PermissionDenied {
			t.Fatalf("error %v", err)
		}
	})
	d.run("names that are not configured are refused and audited, and clients announce for themselves alone", func(t *testing.T) { d.rostered(t) })
	d.run("an operator sees bindings and pending flows", func(t *testing.T) { d.listed(t) })
	d.run("reload is all or nothing", func(t *testing.T) { d.reloaded(t) })
	d.run("a path without next hop is reported, and its return", func(t *testing.T) { d.pathStatus(t) })
	d.run("a stopped agent leaves its flows, and refuses to share its state", func(t *testing.T) {
		second := exec.Command(d.binary, "--config", d.path("IF-1.yaml"))
		var out strings.Builder
		second.Stderr = &out
		if err := d.spaces["IF-1"].Do(second.Run); err == nil {
			t.Fatal("a second agent started beside the first")
		}
		if err := d.daemons["IF-1"].Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := d.daemons["IF-1"].Wait(); err != nil {
			t.Fatalf("it did not stop in order: %v", err)
		}
		if err := echo(established, "nobody there"); err != nil {
			t.Fatal(err)
		}
		d.start("IF-1")
		d.awaitReady("IF-1")
	})
	d.run("packets that waited beyond their deadline for an agent are dropped and counted", func(t *testing.T) { d.stale(t) })
	d.run("CP-11-5 an interface that is gone is a failure of the data plane alone, and comes back", func(t *testing.T) { d.replugged(t) })
	d.run("CP-10-4 bindings that the data plane lost are put back from the journal", func(t *testing.T) {
		d.kill("IF-1")
		d.in("IF-1", func() error { return datapath.Unload(d.pins("IF-1")) })
		d.start("IF-1")
		d.awaitReady("IF-1")
		if err := echo(established, "restored"); err != nil {
			t.Fatal(err)
		}
	})
	d.run("a finished flow is released at both", func(t *testing.T) {
		before := d.counters("IF-1").Bindings
		established.Close()
		d.eventually("released", func() string {
			in, out := d.counters("IF-1").Bindings, d.counters("EF-1").Bindings
			if in != before-1 || out != in {
				return fmt.Sprintf("%d bindings at IF-1 and %d at EF-1, there were %d", in, out, before)
			}
			return ""
		})
	})
}

// TestLostJournal: what the data plane has and nobody answers for is taken out; it fails closed.
func TestLostJournal(t *testing.T) {
	d := newDomain(t)
	d.serve(netip.AddrPortFrom(serverIP.Addr(), 443))
	c := d.connect(service4)
	if err := echo(c, "hello"); err != nil {
		t.Fatal(err)
	}
	d.kill("IF-1")
	if err := os.RemoveAll(d.path("state-IF-1")); err != nil {
		t.Fatal(err)
	}
	d.start("IF-1")
	d.awaitReady("IF-1")
	if r := d.counters("IF-1"); r.Bindings != 0 {
		t.Fatalf("%d bindings", r.Bindings)
	}
	if _, err := c.Write([]byte("nobody hears this")); err != nil {
		t.Fatal(err)
	}
	d.eventually("dropped as no-binding", func() string {
		if got := drops(d.counters("IF-1")); !strings.Contains(got, "REASON_NO_BINDING") {
			return got
		}
		return ""
	})
	if err := echo(d.connect(service4), "a new flow is served"); err != nil {
		t.Fatal(err)
	}
}

// TestUnload: it takes out what is there, says so, and asks for nothing that is gone already.
func TestUnload(t *testing.T) {
	d := newDomain(t)
	d.serve(netip.AddrPortFrom(serverIP.Addr(), 443))
	if err := echo(d.connect(service4), "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.unloads("IF-1"); err == nil || !strings.Contains(err.Error(), "another forwarder has it open") {
		t.Errorf("beside its agent: %v", err)
	}
	d.kill("IF-1")
	says := func(words ...string) {
		t.Helper()
		said, err := d.unloads("IF-1")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range words {
			if !strings.Contains(said, w+"\n") && !strings.Contains(said, w+" ") {
				t.Errorf("it does not say %q:\n%s", w, said)
			}
		}
	}
	d.in("IF-1", func() error { // as a reboot does
		l, err := netlink.LinkByName(releaseNames("IF-1").Send)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	says("nothing to remove: routes of service addresses", "removed: proxy entries of service addresses (2)", "pinned programs, links and maps in "+d.pins("IF-1"),
		"nothing to remove: private interfaces", "removed: records of bindings")
	says("nothing to remove: proxy entries of service addresses", "nothing to remove: pinned programs, links and maps",
		"nothing to remove: private interfaces", "nothing to remove: records of bindings")
	d.start("IF-1")
	d.awaitReady("IF-1")
	d.kill("IF-1")
	says("removed: routes of service addresses (2)", "removed: proxy entries of service addresses (2)", "removed: private interfaces", "nothing to remove: records of bindings")
}

// retransmits gives how many segments the client had to send again.
func retransmits(t *testing.T, c *net.TCPConn) uint32 {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var total uint32
	var failure error
	if err := raw.Control(func(fd uintptr) { total, failure = totalRetransmits(int(fd)) }); err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	return total
}

func (d *domain) announced(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body, err := catsreq.EncodeBody(&catsreq.Request{
		Identity:    catsreq.Identity{Kind: catsreq.KindName, Name: "S1"},
		Constraints: cats.Constraints{Hard: cats.Bounds{MaxDelayUS: cats.Some(uint32(20000))}}, Generation: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	source := netip.AddrPortFrom(clientIP.Addr(), 51000)
	client := d.dial("IF-1", trust.Client, "phone")
	r, err := client.Announce(ctx, &pb.AnnounceRequest{
		Tuple: v1alpha1.EncodeTuple(cats.Tuple{Protocol: cats.TCP, Source: source, Target: service4}), Body: body,
	})
	if err != nil || r.CsId != "S1" || r.ValidMs != 10000 {
		t.Fatalf("%+v: %v", r, err)
	}
	var c net.Conn
	d.in("client", func() (err error) {
		c, err = (&net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(source)}).Dial("tcp", service4.String())
		return err
	})
	defer c.Close()
	if err := echo(c, "announced"); err != nil {
		t.Fatal(err)
	}
	last := d.cps.count(func() int { return len(d.cps.requests) - 1 })
	if q := d.cps.requests[last]; q.CSID != "S1" || q.Constraints.Hard.MaxDelayUS != cats.Some(uint32(20000)) || q.RequestGeneration != cats.Some(uint16(1)) {
		t.Fatalf("request %+v", q)
	}
	// Another service at this address: refused, with the reason.
	body, _ = catsreq.EncodeBody(&catsreq.Request{Identity: catsreq.Identity{Kind: catsreq.KindName, Name: "S2"}})
	_, err = client.Announce(ctx, &pb.AnnounceRequest{
		Tuple: v1alpha1.EncodeTuple(cats.Tuple{Protocol: cats.TCP, Source: source, Target: service4}), Body: body,
	})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "identity-conflict") {
		t.Fatalf("error %v", err)
	}
	if _, err = client.Announce(ctx, &pb.AnnounceRequest{Body: body}); status.Code(err) != codes.InvalidArgument {
		t.Fatalf("error %v", err)
	}
}

// announce announces S1 for a flow to its IPv4 address.
func (d *domain) announce(role trust.Role, name string, source netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body, err := catsreq.EncodeBody(&catsreq.Request{Identity: catsreq.Identity{Kind: catsreq.KindName, Name: "S1"}})
	if err != nil {
		return err
	}
	_, err = d.dial("IF-1", role, name).Announce(ctx, &pb.AnnounceRequest{
		Tuple: v1alpha1.EncodeTuple(cats.Tuple{Protocol: cats.TCP, Source: source, Target: service4}), Body: body,
	})
	return err
}

// audited waits for an audit record of IF-1 with all the words.
func (d *domain) audited(words ...string) {
	d.t.Helper()
	d.eventually("audit record", func() string {
		text, err := os.ReadFile(d.path("IF-1.audit"))
		if err != nil {
			return err.Error()
		}
	lines:
		for _, line := range strings.Split(string(text), "\n") {
			for _, w := range words {
				if !strings.Contains(line, w) {
					continue lines
				}
			}
			return ""
		}
		return fmt.Sprintf("none has all of %q:\n%s", words, text)
	})
}

func (d *domain) rostered(t *testing.T) {
	own, other := netip.AddrPortFrom(clientIP.Addr(), 51500), netip.MustParseAddrPort("192.0.2.11:51500")
	err := d.announce(trust.Client, "stranger", own)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "refused our certificate") {
		t.Errorf("an unknown client: %v", err)
	}
	d.audited(`"event":"channel-refused"`, "/client/stranger", `"reason":"unauthorized"`)
	if err := d.announce(trust.Client, "phone", own); err != nil {
		t.Errorf("a client for itself: %v", err)
	}
	err = d.announce(trust.Client, "phone", other)
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "unauthorized: the source 192.0.2.11 is in no prefix of client phone") {
		t.Errorf("a client for another: %v", err)
	}
	d.audited(`"event":"announce-refused"`, "/client/phone", `"reason":"unauthorized"`, "192.0.2.11")
	if err := d.announce(trust.Operator, "admin", other); err != nil {
		t.Errorf("an operator for a client: %v", err)
	}
}

func (d *domain) listed(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	operator := d.dial("IF-1", trust.Operator, "admin")
	list := func() string {
		var all []*pb.HeldHalf
		request := &pb.ListHeldBindingsRequest{Limit: 1}
		for {
			r, err := operator.ListHeldBindings(ctx, request)
			if err != nil {
				return err.Error()
			}
			all = append(all, r.Bindings...)
			if !r.More {
				break
			}
			request.After = r.Bindings[len(r.Bindings)-1].Binding.Transaction
		}
		if len(all) < 2 {
			return fmt.Sprintf("%d bindings", len(all))
		}
		for _, b := range all {
			if b.Half != pb.Half_HALF_INGRESS || b.IdleForMs == nil || b.Forward.GetPackets() == 0 || b.Reverse.GetPackets() == 0 {
				return fmt.Sprintf("binding %+v", b)
			}
		}
		return ""
	}
	d.eventually("bindings with what they counted", list)
	if r, err := operator.ListPendingFlows(ctx, &pb.ListPendingFlowsRequest{}); err != nil || len(r.Flows) != 0 {
		t.Fatalf("%+v: %v", r, err)
	}
	if _, err := operator.ListHeldBindings(ctx, &pb.ListHeldBindingsRequest{After: []byte("x")}); status.Code(err) != codes.InvalidArgument {
		t.Fatalf("error %v", err)
	}
}

func (d *domain) reloaded(t *testing.T) {
	reload := func(configuration, says string) {
		t.Helper()
		log, _ := os.ReadFile(d.path("IF-1.log"))
		d.write("IF-1.yaml", configuration)
		if err := d.daemons["IF-1"].Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		d.eventually("reload", func() string {
			now, _ := os.ReadFile(d.path("IF-1.log"))
			if fresh := string(now[len(log):]); !strings.Contains(fresh, says) {
				return "the log does not say so: " + fresh
			}
			return ""
		})
	}
	good := d.configuration("IF-1", "")
	reload(strings.Replace(good, "core: [core1]", "core: [core1, nothere]", 1), "nothere")
	if err := echo(d.connect(service4), "as before"); err != nil {
		t.Fatal(err)
	}
	reload(strings.Replace(good, "192.0.2.0/24", "192.0.2.128/25", 1), "configuration applied")
	before := drops(d.counters("IF-1"))
	d.in("client", func() error {
		c, err := (&net.Dialer{Timeout: 300 * time.Millisecond}).Dial("tcp", service4.String())
		if err == nil {
			c.Close()
			return errors.New("a client outside every attachment was served")
		}
		return nil
	})
	if after := drops(d.counters("IF-1")); after == before || !strings.Contains(after, "UNAUTHORIZED") {
		t.Fatalf("drops before %s, after %s", before, after)
	}
	reload(strings.Replace(good, "name: phone", "name: stranger", 1), "configuration applied")
	own := netip.AddrPortFrom(clientIP.Addr(), 51501)
	if err := d.announce(trust.Client, "stranger", own); err != nil {
		t.Errorf("a client that a reload admitted: %v", err)
	}
	if err := d.announce(trust.Client, "phone", own); status.Code(err) != codes.Unavailable {
		t.Errorf("a client that a reload took out: %v", err)
	}
	reload(good, "configuration applied")
	if err := echo(d.connect(service4), "again"); err != nil {
		t.Fatal(err)
	}
}

// stale sends a new flow's packet while no agent runs, and starts one after the packet's deadline.
func (d *domain) stale(t *testing.T) {
	expired := func() uint64 {
		for _, c := range d.counters("IF-1").Drops {
			if c.Reason == pb.Reason_REASON_HELD_EXPIRED {
				return c.Packets
			}
		}
		return 0
	}
	dropped, asked := expired(), d.cps.count(func() int { return len(d.cps.requests) })
	d.kill("IF-1")
	d.in("client", func() error {
		c, err := net.Dial("udp", refusedAP.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("is anybody there?"))
		return err
	})
	time.Sleep(2100 * time.Millisecond) // the deadline is 2 s
	d.start("IF-1")
	d.awaitReady("IF-1")
	d.eventually("dropped", func() string {
		if now := expired(); now != dropped+1 {
			return fmt.Sprintf("%d packets are held-expired, there were %d", now, dropped)
		}
		return ""
	})
	if now := d.cps.count(func() int { return len(d.cps.requests) }); now != asked {
		t.Errorf("%d requests for it", now-asked)
	}
}

func (d *domain) replugged(t *testing.T) {
	d.in("IF-1", func() error {
		l, err := netlink.LinkByName("client0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	d.eventually("not ready", func() string {
		code, body, err := d.http("IF-1", "readyz")
		if err != nil || code == http.StatusOK || !strings.Contains(body, "not ready data-plane: there is no interface client0") || !strings.Contains(body, "ok cps") {
			return fmt.Sprint(code, body, err)
		}
		return ""
	})
	d.wireClient()
	d.awaitReady("IF-1")
	if err := echo(d.connect(service4), "back"); err != nil {
		t.Fatal(err)
	}
}

func (d *domain) pathStatus(t *testing.T) {
	move := func(up bool) {
		d.in("EF-1", func() error {
			l, err := netlink.LinkByName("core1")
			if err != nil {
				return err
			}
			if up {
				return netlink.LinkSetUp(l)
			}
			return netlink.LinkSetDown(l)
		})
	}
	reported := func(up bool) func() string {
		return func() string {
			d.cps.mutex.Lock()
			defer d.cps.mutex.Unlock()
			all := d.cps.statuses["IF-1"]
			if last := all[len(all)-1]; last.PathUp != up {
				return fmt.Sprintf("the last status says %v: %s", last.PathUp, last.Detail)
			}
			return ""
		}
	}
	move(false)
	d.eventually("path down", reported(false))
	move(true)
	d.in("EF-1", func() error { // what the link lost when it went down
		l, err := netlink.LinkByName("core1")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr("2001:db8:1::2/64")
		if err != nil {
			return err
		}
		return netlink.AddrReplace(l, a)
	})
	d.routeAgain("EF-1", "2001:db8:0:1::/64", "2001:db8:1::1")
	d.routeAgain("IF-1", "2001:db8:0:e1::/64", "2001:db8:1::2")
	d.eventually("path up", reported(true))
}

func (d *domain) routeAgain(role, prefix, via string) {
	d.in(role, func() error {
		_, to, err := net.ParseCIDR(prefix)
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{Dst: to, Gw: net.ParseIP(via)})
	})
}
