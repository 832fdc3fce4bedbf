package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/capture"
)

var slotLimit = regexp.MustCompile(`max_slots: *\d+`)

// setSlots changes an SCI agent's administrative maximum in its configuration and reloads it.
func setSlots(t *testing.T, agent string, slots int) {
	t.Helper()
	d, err := shared.lab.Daemon(agent)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(d.Config)
	if err != nil {
		t.Fatal(err)
	}
	if !slotLimit.Match(old) {
		t.Fatalf("%s has no max_slots:\n%s", d.Config, old)
	}
	changed := slotLimit.ReplaceAll(old, []byte(fmt.Sprintf("max_slots: %d", slots)))
	if err := os.WriteFile(d.Config, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := shared.lab.Kill(agent, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// gas gives what the CST has for an instance.
func gas(t *testing.T, service, csci string) *uint32 {
	t.Helper()
	answer := askCPS(t, &api.ListInstancesRequest{CsId: service}, api.OperatorServiceClient.ListInstances)
	for _, i := range answer.GetInstances() {
		if i.GetCsciId() == csci && i.GetReport() != nil {
			v := i.GetReport().GetMetrics().GetGas()
			return &v
		}
	}
	return nil
}

func TestSelectionFollowsMetrics(t *testing.T) {
	domain(t)
	eligible(t, "S1", 2)
	established, err := dial(t, "client", "tcp", clientV4, 53001, "192.0.2.100:443")
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := get(t, established, "/before"); err != nil || !fromInstance(answer, "B") {
		t.Fatalf("before: %q, %v", answer, err)
	}
	setSlots(t, "sci-b-s1", 0)
	t.Cleanup(func() {
		setSlots(t, "sci-b-s1", 100)
		eligible(t, "S1", 2)
	})
	eventually(t, "GAS 0 of B in the CST", func() error {
		if g := gas(t, "S1", "198.51.100.21:443"); g == nil || *g != 0 {
			return fmt.Errorf("GAS %v", g)
		}
		return nil
	})
	t.Run("CP-5-2 GAS 0 takes no new flow", func(t *testing.T) {
		fresh, err := dial(t, "client", "tcp", clientV4, 53002, "192.0.2.100:443")
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := get(t, fresh, "/fresh"); err != nil || !fromInstance(answer, "A") {
			t.Errorf("the first flow after the change: %q, %v; want A", answer, err)
		}
	})
	t.Run("CP-8.5-3 an established flow stays where it is", func(t *testing.T) {
		for i := range 5 {
			if answer, err := get(t, established, "/after"); err != nil || !fromInstance(answer, "B") {
				t.Fatalf("request %d after the change: %q, %v; want B", i, answer, err)
			}
		}
	})
}

// transfer is a long download with a known pattern, checked as it comes.
type transfer struct {
	octets atomic.Int64
	done   chan error
}

const transferOctets = 28_000_000

func startTransfer(t *testing.T, connection net.Conn) *transfer {
	t.Helper()
	request := fmt.Sprintf("GET /stream?octets=%d&chunk=40000&interval=20ms HTTP/1.0\r\n\r\n", transferOctets)
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	x := &transfer{done: make(chan error, 1)}
	go func() { x.done <- x.read(connection) }()
	return x
}

func (x *transfer) read(connection net.Conn) error {
	buffer := make([]byte, 1<<16)
	var head []byte
	inBody := false
	for {
		if err := connection.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		n, err := connection.Read(buffer)
		data := buffer[:n]
		if !inBody {
			head = append(head, data...)
			_, body, found := strings.Cut(string(head), "\r\n\r\n")
			data = nil
			if found {
				inBody, data = true, []byte(body)
			}
		}
		for _, octet := range data {
			if at := x.octets.Load(); octet != lab.Pattern(at) {
				return fmt.Errorf("octet %d is %#02x, want %#02x", at, octet, lab.Pattern(at))
			}
			x.octets.Add(1)
		}
		if err == io.EOF && x.octets.Load() == transferOctets {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d octets: %w", x.octets.Load(), err)
		}
	}
}

// goesOn waits until the transfer has moved by that many octets more.
func (x *transfer) goesOn(t *testing.T, octets int64) {
	t.Helper()
	from := x.octets.Load()
	eventually(t, "the transfer", func() error {
		select {
		case err := <-x.done:
			t.Fatalf("the transfer ended early: %v", err)
		default:
		}
		if moved := x.octets.Load() - from; moved < octets {
			return fmt.Errorf("moved by %d octets", moved)
		}
		return nil
	})
}

// TestRestarts kills the C-PS and then each forwarder's agent under an established TCP transfer.
func TestRestarts(t *testing.T) {
	domain(t)
	eligible(t, "S1", 2)
	atB := record(t, "B", "eth0")
	connection, err := dial(t, "client", "tcp", clientV4, 54001, "192.0.2.100:443")
	if err != nil {
		t.Fatal(err)
	}
	transfer := startTransfer(t, connection)
	transfer.goesOn(t, 100_000)
	before := count(t)
	for _, victim := range []string{"cps-1", "IF-1", "EF-2", "EF-1"} {
		if err := shared.lab.Kill(victim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		transfer.goesOn(t, 200_000)
		if err := shared.lab.Start(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
		transfer.goesOn(t, 200_000)
	}
	if err := <-transfer.done; err != nil {
		t.Fatal(err)
	}
	t.Run("CP-10-4 a restart restores destination, reverse tuple, path and epoch", func(t *testing.T) {
		checkSequence(t, atB, cats.Tuple{Protocol: cats.TCP, Source: netip.AddrPortFrom(clientV4, 54001), Target: netip.MustParseAddrPort("198.51.100.21:443")})
		checkRestored(t)
	})
	t.Run("drop counters did not move", func(t *testing.T) {
		for key, after := range count(t).drops {
			if after != before.drops[key] {
				t.Errorf("%s moved from %d to %d", key, before.drops[key], after)
			}
		}
	})
	t.Run("new flows are admitted again", func(t *testing.T) {
		eligible(t, "S1", 2)
		fresh, err := dial(t, "client", "tcp", clientV4, 54002, "192.0.2.100:443")
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := get(t, fresh, "/again"); err != nil || !fromInstance(answer, "B") {
			t.Errorf("%q, %v", answer, err)
		}
	})
}

// checkRestored looks the transfer's binding up at the C-PS after all restarts.
func checkRestored(t *testing.T) {
	t.Helper()
	eventually(t, "the restored binding", func() error {
		rows := bindings(t, "S1")
		for _, row := range rows {
			b := row.GetBinding()
			if b.GetMatch().GetTuple().GetSource().GetPort() != 54001 {
				continue
			}
			if b.GetCsciId() != "198.51.100.21:443" || len(b.GetForward().GetPath().GetSegments()) == 0 || b.GetReverse().GetRestore().GetPort() != 443 {
				return fmt.Errorf("restored as %v", b)
			}
			if b.GetEpoch().GetTerm() < 2 {
				return fmt.Errorf("epoch %v did not grow with the C-PS's restart", b.GetEpoch())
			}
			return nil
		}
		return fmt.Errorf("not among %d", len(rows))
	})
}

// checkSequence looks for a gap in what the instance sent and got acknowledged: every octet of the stream left once or
// more, and none that the client acknowledged was missing.
func checkSequence(t *testing.T, at *capture.Capture, forward cats.Tuple) {
	t.Helper()
	type span struct{ from, to uint32 }
	var spans []span
	retransmitted := 0
	highest := uint32(0)
	for _, p := range at.Packets() {
		if p.Tuple != forward.Reverse() || len(p.Payload) == 0 {
			continue
		}
		s := span{p.TCP.Sequence, p.TCP.Sequence + uint32(len(p.Payload))}
		if len(spans) > 0 && int32(s.from-highest) > 0 {
			t.Errorf("gap at the instance from %d to %d", highest, s.from)
		}
		if len(spans) > 0 && int32(s.from-highest) < 0 {
			retransmitted++
		}
		if len(spans) == 0 || int32(s.to-highest) > 0 {
			highest = s.to
		}
		spans = append(spans, s)
	}
	requests := slices.DeleteFunc(at.Packets(), func(p capture.Packet) bool { return p.Tuple != forward })
	var next uint32
	for i, p := range requests {
		advance := uint32(len(p.Payload))
		if p.TCP.SYN || p.TCP.FIN {
			advance++
		}
		if i > 0 && int32(p.TCP.Sequence-next) > 0 {
			t.Errorf("gap in what the client sent: %d after %d", p.TCP.Sequence, next)
		}
		if i == 0 || int32(p.TCP.Sequence+advance-next) > 0 {
			next = p.TCP.Sequence + advance
		}
	}
	if len(spans) == 0 {
		t.Error("the capture at the instance shows no data")
	}
	t.Logf("%d data packets, %d sent again, %d from the client", len(spans), retransmitted, len(requests))
}
