package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/capture"
	"github.com/margay-net/margay/internal/testenv"
)

// TestFirstUse takes a lab as it is when `margay lab up` returns: the first packet of the first flow is served, though no
// neighbour on its way was ever asked for.
func TestFirstUse(t *testing.T) {
	domain(t)
	curl := testenv.RequireProgram(t, "curl")
	name := fmt.Sprintf("first-%d", os.Getpid())
	run := func(arguments ...string) (string, error) {
		out, err := exec.Command(filepath.Join(shared.programs, "margay"), arguments...).Output()
		if exit, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return string(out), err
	}
	t.Cleanup(func() {
		if _, err := run("lab", "down", name); err != nil {
			t.Error(err)
		}
	})
	if _, err := run("lab", "up", "example", "--name", name); err != nil {
		t.Fatal(err)
	}
	l, err := lab.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := l.Node("client")
	if err != nil {
		t.Fatal(err)
	}
	var wire *capture.Capture
	if err := client.Do(func() (err error) { wire, err = capture.Open("eth0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := wire.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, target := range []string{"192.0.2.100:443", "[2001:db8:c::100]:443"} {
		answer, err := run("lab", "exec", name, "client", "--", curl, "-sS", "--globoff", "http://"+target+"/")
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		var greeting lab.Greeting
		if err := json.Unmarshal([]byte(answer), &greeting); err != nil || greeting.Instance != "B" {
			t.Errorf("%s: answered by %q, want B: %v", target, answer, err)
		}
		if sent := syns(wire, netip.MustParseAddrPort(target)); sent != 1 {
			t.Errorf("%s: the client sent %d SYNs, want 1", target, sent)
		}
	}
	before, err := run("lab", "status", name)
	if err != nil || strings.Count(before, " yes\n") != len(l.Daemons()) {
		t.Errorf("not everything is ready: %v\n%s", err, before)
	}
	said, err := run("lab", "restart", name, "csma-1")
	if err != nil || !strings.HasPrefix(said, "csma-1 ready, pid ") {
		t.Errorf("restart: %q, %v", said, err)
	}
	if after, err := run("lab", "status", name); err != nil || after == before {
		t.Errorf("after a restart the same is there: %v\n%s", err, after)
	}
}

// syns counts the SYNs to a service.
func syns(c *capture.Capture, to netip.AddrPort) (n int) {
	for _, p := range c.Packets() {
		if p.Tuple.Target == to && p.TCP.SYN {
			n++
		}
	}
	return n
}
