package e2e

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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/capture"
)

// TestImpairedCore takes flows over a core link that `margay lab impair` makes slow and lossy, between the XDP programs
// of the forwarders, and watches them by `margay lab capture`.
func TestImpairedCore(t *testing.T) {
	domain(t)
	name := fmt.Sprintf("impair-%d", os.Getpid())
	verb := func(t *testing.T, arguments ...string) string {
		t.Helper()
		out, complaint, err := margay(t, append([]string{"lab"}, arguments...)...)
		if err != nil {
			t.Fatalf("margay lab %s: %v: %s", strings.Join(arguments, " "), err, complaint)
		}
		return out
	}
	t.Cleanup(func() { verb(t, "down", name) })
	verb(t, "up", "example", "--name", name, "--impairable")
	l, err := lab.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const port = 51000
	connection := dialIn(t, l, netip.AddrPortFrom(clientV4, port), "192.0.2.100:443")
	if answer, err := get(t, connection, "/first"); err != nil || !fromInstance(answer, "B") {
		t.Fatalf("answered by %q, %v", answer, err)
	}

	t.Run("delay", func(t *testing.T) {
		const delay = 20 * time.Millisecond
		verb(t, "impair", name, "IF-1:core1", "--delay", delay.String())
		for i := range 5 {
			begun := time.Now()
			if _, err := get(t, connection, fmt.Sprint("/", i)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took < 2*delay {
				t.Errorf("an exchange took %s over a link of %s each way", took, delay)
			}
		}
		table := strings.Split(strings.TrimSpace(verb(t, "impair", name, "--show")), "\n")
		if len(table) != 3 || !strings.HasPrefix(table[1], "IF-1:core1") || !strings.HasPrefix(table[2], "R1:if1") || !strings.Contains(table[1], "20ms") {
			t.Errorf("--show tells\n%s", strings.Join(table, "\n"))
		}
		verb(t, "impair", name, "IF-1:core1", "--clear")
		if table := verb(t, "impair", name, "--show"); strings.Contains(table, "IF-1") {
			t.Errorf("after --clear --show tells\n%s", table)
		}
	})

	t.Run("loss, jitter and rate under a transfer", func(t *testing.T) {
		verb(t, "impair", name, "IF-1:core1", "--delay", "2ms", "--jitter", "1ms", "--loss", "2%", "--rate", "50mbit", "--seed", "11")
		const octets = 1_000_000
		request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://192.0.2.100:443/bytes/%d", octets), nil)
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return dialIn(t, l, netip.AddrPortFrom(clientV4, port+1), "192.0.2.100:443"), nil
		}}}
		defer client.CloseIdleConnections()
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || len(body) != octets {
			t.Fatalf("%d octets, %v", len(body), err)
		}
		for i, b := range body {
			if b != lab.Pattern(int64(i)) {
				t.Fatalf("octet %d is %d", i, b)
			}
		}
		all, err := l.Impairments(t.Context())
		if err != nil || len(all) != 2 || all[1].Counts.Lost == 0 || all[1].Counts.Sent < octets/1500 || all[1].Set.Seed != 11 {
			t.Errorf("%+v, %v", all, err)
		}
		verb(t, "impair", name, "--clear")
	})

	t.Run("capture", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "out.pcapng")
		watch := exec.Command(filepath.Join(shared.programs, "margay"), "lab", "capture", name, "client", "IF-1:core1", "B",
			"--flow", fmt.Sprintf("tcp 192.0.2.10:%d", port), "-w", file)
		var shown, said buffer
		watch.Stdout, watch.Stderr = &shown, &said
		if err := watch.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- watch.Wait() }()
		// It has no line before a packet passes: packets pass until it shows them at every point.
		n := 0
		eventually(t, "packets are shown at every point", func() error {
			n++
			if _, err := get(t, connection, fmt.Sprint("/captured/", n)); err != nil {
				return err
			}
			for _, want := range []string{
				"client:eth0 out tcp 192.0.2.10:51000 -> 192.0.2.100:443", "IF-1:core1  out tcp 192.0.2.10:51000 -> 198.51.100.21:443",
				"IF-1:core1  in  tcp 198.51.100.21:443 -> 192.0.2.10:51000", "B:eth0      in  tcp 192.0.2.10:51000 -> 198.51.100.21:443",
				"segments [2001:db8:0:f1::1 2001:db8:0:e2::11]", "client:eth0 in  tcp 192.0.2.100:443 -> 192.0.2.10:51000",
			} {
				if !strings.Contains(shown.String(), want) {
					return fmt.Errorf("no line %q in\n%s", want, shown.String())
				}
			}
			return nil
		})
		if err := watch.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("after ctrl-C: %v: %s", err, said.String())
			}
		case <-time.After(patience):
			watch.Process.Kill()
			t.Fatal("ctrl-C does not end it")
		}
		lines := strings.Count(shown.String(), "\n")
		if want := fmt.Sprintf("%d packets\n", lines); said.String() != want {
			t.Errorf("it says %q, want %q", said.String(), want)
		}
		checkCaptureFile(t, file, lines)
	})

	t.Run("capture ends by itself and refuses", func(t *testing.T) {
		go func() {
			for t.Context().Err() == nil {
				if _, err := fmt.Fprintf(connection, "GET /more HTTP/1.1\r\nHost: service\r\n\r\n"); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		if out := verb(t, "capture", name, "client", "--count", "5"); strings.Count(out, "\n") != 5 {
			t.Errorf("--count 5 gives\n%s", out)
		}
		if out := verb(t, "capture", name, "IF-1:core1", "--for", "200ms", "--flow", "udp 192.0.2.10"); out != "" {
			t.Errorf("a flow that is not there gives\n%s", out)
		}
		for _, c := range []struct{ place, flow, want string }{
			{"IF-1:core9", "tcp 192.0.2.10", "core9"}, {"nobody", "tcp 192.0.2.10", "it has [A B"}, {"IF-1", "sctp 192.0.2.10", "need a flow such as"},
		} {
			if _, complaint, err := margay(t, "lab", "capture", name, c.place, "--flow", c.flow); err == nil || !strings.Contains(complaint, c.want) {
				t.Errorf("%s, %s: %v, %s", c.place, c.flow, err, complaint)
			}
		}
	})
}

// dialIn opens a TCP connection from the client of a lab.
func dialIn(t *testing.T, l *lab.Lab, source netip.AddrPort, target string) (connection net.Conn) {
	t.Helper()
	n, err := l.Node("client")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Do(func() (err error) {
		connection, err = (&net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(source)}).Dial("tcp", target)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		t.Fatal(err)
	}
	return connection
}

// checkCaptureFile reads the file with a reader that is not the writer's, and with tshark where that is installed.
func checkCaptureFile(t *testing.T, path string, packets int) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	points, last := map[string]int{}, time.Time{}
	for n := 0; ; n++ {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			if n != packets {
				t.Errorf("the file has %d packets, %d were shown", n, packets)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		face, err := r.Interface(info.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		points[face.Name]++
		if info.Timestamp.Before(last) {
			t.Errorf("packet %d is from before the one before it", n)
		}
		last = info.Timestamp
		if _, err := capture.Parse(data); err != nil {
			t.Errorf("packet %d: %v", n, err)
		}
	}
	if points["client:eth0"] == 0 || points["IF-1:core1"] == 0 || points["B:eth0"] == 0 {
		t.Errorf("packets of %v", points)
	}
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		return
	}
	out, err := exec.Command(tshark, "-r", path, "-Y", "_ws.malformed", "-T", "json").Output()
	var malformed []json.RawMessage
	if err == nil {
		err = json.Unmarshal(out, &malformed)
	}
	if err != nil || len(malformed) > 0 {
		t.Errorf("tshark: %v\n%s", err, bytes.TrimSpace(out))
	}
}

// buffer is a bytes.Buffer that one goroutine fills and another reads.
type buffer struct {
	mutex sync.Mutex
	all   bytes.Buffer // guarded by mutex
}

func (b *buffer) Write(octets []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.all.Write(octets)
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.all.String()
}
