package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/capture"
)

// journey is one service of the lab as a client uses it.
type journey struct {
	service  string
	protocol cats.Protocol
	client   netip.Addr
	target   netip.AddrPort
	locatorB netip.AddrPort
	port     uint16 // of the client
}

var (
	clientV4 = netip.MustParseAddr("192.0.2.10")
	clientV6 = netip.MustParseAddr("2001:db8:c::10")
)

var journeys = []journey{
	{"S1", cats.TCP, clientV4, netip.MustParseAddrPort("192.0.2.100:443"), netip.MustParseAddrPort("198.51.100.21:443"), 51001},
	{"U1", cats.UDP, clientV4, netip.MustParseAddrPort("192.0.2.100:5000"), netip.MustParseAddrPort("198.51.100.21:5000"), 51002},
	{"S6", cats.TCP, clientV6, netip.MustParseAddrPort("[2001:db8:c::100]:443"), netip.MustParseAddrPort("[2001:db8:b::21]:443"), 51003},
	{"U6", cats.UDP, clientV6, netip.MustParseAddrPort("[2001:db8:c::100]:5000"), netip.MustParseAddrPort("[2001:db8:b::21]:5000"), 51004},
}

// TestExample runs the demonstration, which compares every packet of section 14.
func TestExample(t *testing.T) {
	domain(t)
	t.Run("CP-14-1 the example of section 14, packet for packet", func(t *testing.T) {
		out, err := exec.Command(filepath.Join(shared.programs, "margay"), "demo").CombinedOutput()
		if err != nil {
			t.Fatalf("margay demo: %v\n%s", err, out)
		}
		for _, want := range []string{"Step 7.", "Every packet is as section 14 says", "chosen      198.51.100.21:443"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("the demonstration does not show %q:\n%s", want, out)
			}
		}
	})
}

func TestJourneys(t *testing.T) {
	domain(t)
	for _, j := range journeys {
		t.Run(fmt.Sprintf("%s over %s", j.service, j.protocol), func(t *testing.T) { j.run(t) })
	}
}

// run takes one flow through the domain and back and judges it at every point of section 16.
func (j journey) run(t *testing.T) {
	eligible(t, j.service, 2)
	atClient, atR1, atR2 := record(t, "client", "eth0"), record(t, "R1", "if1"), record(t, "R2", "if1")
	atA, atB := record(t, "A", "eth0"), record(t, "B", "eth0")
	before := count(t)
	network := j.protocol.String()
	connection, err := dial(t, "client", network, j.client, j.port, j.target.String())
	if err != nil {
		t.Fatal(err)
	}
	exchange := func(word string) string {
		var answer string
		var err error
		if j.protocol == cats.TCP {
			answer, err = get(t, connection, "/"+word)
		} else {
			answer, err = datagram(connection, word)
		}
		if err != nil {
			t.Fatalf("exchange %q: %v", word, err)
		}
		return answer
	}
	if answer := exchange("first"); !fromInstance(answer, "B") {
		t.Errorf("answered by %q, want B", answer)
	}
	binding := j.binding(t)
	middle := count(t)
	for i := range 20 {
		exchange(fmt.Sprintf("later-%d", i))
	}
	after := count(t)

	toService := cats.Tuple{Protocol: j.protocol, Source: netip.AddrPortFrom(j.client, j.port), Target: j.target}
	toLocator := cats.Tuple{Protocol: j.protocol, Source: toService.Source, Target: j.locatorB}
	sent := want(t, "client sends", atClient.Packets(), toService, true)
	core := slices.Concat(atR1.Packets(), atR2.Packets())
	steered := want(t, "ingress to egress", core, toLocator, false)
	arrived := want(t, "instance gets", atB.Packets(), toLocator, false)
	answered := want(t, "instance sends", atB.Packets(), toLocator.Reverse(), true)
	returned := want(t, "egress to ingress", core, toLocator.Reverse(), true)
	delivered := want(t, "client gets", atClient.Packets(), toService.Reverse(), false)

	t.Run("destination rewritten once, hop limit, checksums, encapsulation", func(t *testing.T) {
		if arrived.Outer != nil || steered.Outer == nil {
			t.Errorf("encapsulation in the core %v, at the instance %v", steered.Outer, arrived.Outer)
		}
		if steered.TTL != sent.TTL-1 || arrived.TTL != sent.TTL-2 {
			t.Errorf("TTL %d, then %d, then %d: want one less at each forwarder", sent.TTL, steered.TTL, arrived.TTL)
		}
		for _, p := range slices.Concat(core, atB.Packets(), atClient.Packets()) {
			if (p.Tuple.Protocol == j.protocol) && p.Checksums != nil {
				t.Errorf("%s: %v", p.String(), p.Checksums)
			}
		}
		if n := len(packets(core, toService)); n > 0 {
			t.Errorf("%d packets went into the core with the service address", n)
		}
	})
	t.Run("the segment list is the PCE's", func(t *testing.T) {
		path, back := binding.GetForward().GetPath(), binding.GetReverse().GetPath()
		if got := steered.Outer.Path(); !equal(got, path.GetSegments()) {
			t.Errorf("forward %v, computed %v", got, addresses(path.GetSegments()))
		}
		if got := returned.Outer.Path(); !equal(got, back.GetSegments()) {
			t.Errorf("return %v, computed %v", got, addresses(back.GetSegments()))
		}
	})
	t.Run("CP-8.4-3 the egress ends the encapsulation and delivers to the selected instance", func(t *testing.T) {
		if len(packets(atB.Packets(), toLocator)) == 0 || len(fromClient(atA.Packets(), j)) > 0 {
			t.Errorf("%d packets at B, %d at A", len(packets(atB.Packets(), toLocator)), len(fromClient(atA.Packets(), j)))
		}
	})
	t.Run("CP-8.6-1 the source is the service address again", func(t *testing.T) {
		if answered.Tuple.Source != j.locatorB || delivered.Tuple.Source != j.target || delivered.Outer != nil {
			t.Errorf("instance sends %s, client gets %s", answered.String(), delivered.String())
		}
		if n := len(packets(atClient.Packets(), toLocator.Reverse())); n > 0 {
			t.Errorf("%d packets came to the client from the locator", n)
		}
	})
	t.Run("CP-8.1-1, CP-8.2-3: one request, one selection, one path each way", func(t *testing.T) {
		if middle.requests-before.requests != 1 || middle.asked-before.asked != 1 || middle.paths-before.paths != 2 {
			t.Errorf("%d requests sent, %g taken, %g path computations: want 1, 1, 2",
				middle.requests-before.requests, middle.asked-before.asked, middle.paths-before.paths)
		}
		if binding.GetCsciId() == "" || binding.GetEgress() != "EF-2" || binding.GetCstGeneration() == 0 || binding.GetNstGeneration() == 0 || binding.GetPolicyVersion() == "" || binding.GetDecidedNs() == 0 {
			t.Errorf("the decision is not recorded whole: %v", binding)
		}
	})
	t.Run("CP-8.5-1 later packets need neither C-PS nor PCE", func(t *testing.T) {
		if after.requests != middle.requests || after.asked != middle.asked || after.paths != middle.paths || after.held != middle.held {
			t.Errorf("counters moved from %+v to %+v", middle, after)
		}
	})
}

// binding gives the row of the journey's flow once it is ACTIVE.
func (j journey) binding(t *testing.T) *api.Binding {
	t.Helper()
	var found *api.Binding
	eventually(t, "an ACTIVE binding", func() error {
		rows := bindings(t, j.service)
		for _, row := range rows {
			source := row.GetBinding().GetMatch().GetTuple().GetSource()
			if row.GetState() == api.FlowState_FLOW_STATE_ACTIVE && source.GetPort() == uint32(j.port) {
				found = row.GetBinding()
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(rows))
	})
	return found
}

// want waits for a packet in a capture and gives the first.
func want(t *testing.T, point string, seen []capture.Packet, tuple cats.Tuple, outgoing bool) capture.Packet {
	t.Helper()
	for _, p := range seen {
		if p.Tuple == tuple && p.Outgoing == outgoing {
			return p
		}
	}
	var have []string
	for _, p := range seen {
		have = append(have, p.String())
	}
	t.Fatalf("%s: no packet %s; captured:\n%s", point, tuple, strings.Join(have, "\n"))
	return capture.Packet{}
}

func packets(seen []capture.Packet, tuple cats.Tuple) []capture.Packet {
	return slices.DeleteFunc(slices.Clone(seen), func(p capture.Packet) bool { return p.Tuple != tuple })
}

func fromClient(seen []capture.Packet, j journey) []capture.Packet {
	source := netip.AddrPortFrom(j.client, j.port)
	return slices.DeleteFunc(slices.Clone(seen), func(p capture.Packet) bool { return p.Tuple.Source != source })
}

func addresses(octets [][]byte) []netip.Addr {
	var all []netip.Addr
	for _, o := range octets {
		a, _ := netip.AddrFromSlice(o)
		all = append(all, a)
	}
	return all
}

func equal(got []netip.Addr, octets [][]byte) bool { return slices.Equal(got, addresses(octets)) }

// fromInstance tells whether an answer of the lab's service, over either protocol, is that instance's.
func fromInstance(answer, name string) bool {
	var greeting lab.Greeting
	if json.Unmarshal([]byte(answer), &greeting) == nil {
		return greeting.Instance == name
	}
	return strings.HasPrefix(answer, name+" ")
}

// datagram sends one and waits for its echo; a lost one is an error, not a reason to send again.
func datagram(connection interface {
	Write([]byte) (int, error)
	Read([]byte) (int, error)
	SetReadDeadline(time.Time) error
}, word string) (string, error) {
	if _, err := connection.Write([]byte(word)); err != nil {
		return "", err
	}
	buffer := make([]byte, 2048)
	n, err := connection.Read(buffer)
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(string(buffer[:n]), word) {
		return "", fmt.Errorf("sent %q, got %q", word, buffer[:n])
	}
	return string(buffer[:n]), nil
}
