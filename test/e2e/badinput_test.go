package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/internal/lab"
)

// clear wants one error that names each of the words, on one or a few lines.
func clear(t *testing.T, message string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(message, w) {
			t.Errorf("the error does not name %q:\n%s", w, message)
		}
	}
	if n := strings.Count(message, "\n"); n > 8 {
		t.Errorf("the error is %d lines long:\n%s", n, message)
	}
}

// copyConfig writes a changed copy of a daemon's configuration beside it, so that its relative paths hold.
func copyConfig(t *testing.T, daemon string, change func(string) string) string {
	t.Helper()
	d, err := shared.lab.Daemon(daemon)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(d.Config)
	if err != nil {
		t.Fatal(err)
	}
	changed := change(string(old))
	if changed == string(old) {
		t.Fatalf("nothing to change in %s", d.Config)
	}
	name := strings.TrimSuffix(d.Config, ".yaml") + "-bad.yaml"
	if err := os.WriteFile(name, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(name) })
	return name
}

// start runs a program that is expected to give up at once, and gives what it says.
func start(t *testing.T, program, config string) string {
	t.Helper()
	command := exec.Command(filepath.Join(shared.programs, program), "--config", config)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Errorf("%s started and ended without an error", program)
		}
	case <-time.After(patience):
		command.Process.Kill()
		<-ended
		t.Errorf("%s is running with a bad configuration", program)
	}
	return complaint.String()
}

func TestBadInput(t *testing.T) {
	domain(t)
	t.Run("an unknown configuration key", func(t *testing.T) {
		for _, program := range []struct{ program, daemon string }{
			{"margay-cps", "cps-1"}, {"margay-forwarder", "IF-1"}, {"margay-csma", "csma-1"}, {"margay-cnma", "cnma-1"}, {"margay-sci", "sci-a-s1"},
		} {
			config := copyConfig(t, program.daemon, func(s string) string { return s + "\ncolour: blue\n" })
			clear(t, start(t, program.program, config), "colour", filepath.Base(config))
		}
	})
	t.Run("a wrong certificate", func(t *testing.T) {
		sci, err := shared.lab.Daemon("sci-a-s1")
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(sci.Config)
		if err != nil {
			t.Fatal(err)
		}
		foreign := tlsSection(t, string(other))
		config := copyConfig(t, "cnma-1", func(s string) string { return strings.Replace(s, tlsSection(t, s), foreign, 1) })
		clear(t, start(t, "margay-cnma", config), "sci-a-s1", "cnma")
	})
	t.Run("an unknown CS-ID", func(t *testing.T) {
		_, complaint, err := margay(t, "request", "--ingress", "IF-1", "--source", "192.0.2.10:55001", "--target", "192.0.2.100:443", "--cs-id", "NOPE")
		if err == nil {
			t.Error("an unknown CS-ID was announced")
		}
		clear(t, complaint, "NOPE", "identity-conflict", "S1")
		out, complaint, err := margay(t, "explain", "NOPE", "--ingress", "IF-1")
		if err != nil {
			t.Fatal(err, complaint)
		}
		clear(t, out[strings.Index(out, "refused"):], "unknown-service", "NOPE")
	})
	t.Run("an address outside every service", func(t *testing.T) {
		out, _, err := margay(t, "explain", "--ingress", "IF-1", "--target", "203.0.113.9:80", "--protocol", "tcp")
		if err != nil {
			t.Fatal(err)
		}
		clear(t, out[strings.Index(out, "refused"):], "unknown-service", "203.0.113.9")
	})
	t.Run("a topology with a missing link", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "cut.yaml")
		out, err := os.ReadFile("../../internal/lab/topologies/example.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(cutLinks(t, string(out), "EF-2")), 0o600); err != nil {
			t.Fatal(err)
		}
		before, err := lab.List()
		if err != nil {
			t.Fatal(err)
		}
		_, complaint, err := margay(t, "lab", "up", file, "--name", "cut")
		if err == nil {
			t.Error("a lab with a missing link came up")
		}
		clear(t, complaint, "EF-2", "cut.yaml")
		after, err := lab.List()
		if err != nil || len(after) != len(before) {
			t.Errorf("something was started: %v, %v", after, err)
		}
	})
}

// tlsSection gives the lines of a configuration's tls section.
func tlsSection(t *testing.T, config string) string {
	t.Helper()
	from := strings.Index(config, "tls:")
	if from < 0 {
		t.Fatalf("no tls section in\n%s", config)
	}
	lines := strings.SplitAfter(config[from:], "\n")
	section := lines[0]
	for _, l := range lines[1:] {
		if !strings.HasPrefix(l, " ") {
			break
		}
		section += l
	}
	return section
}

// cutLinks leaves out the core links of a node.
func cutLinks(t *testing.T, topology, node string) string {
	t.Helper()
	head, links, found := strings.Cut(topology, "\nlinks:\n")
	if !found {
		t.Fatal("the topology has no links")
	}
	links, rest, found := strings.Cut(links, "\nservices:\n")
	if !found {
		t.Fatal("the topology has no services")
	}
	var kept []string
	for _, link := range strings.Split(links, "  - a:") {
		if strings.Contains(link, "node: "+node) && strings.Contains(link, "delay_us") {
			continue
		}
		kept = append(kept, link)
	}
	return head + "\nlinks:\n" + strings.Join(kept, "  - a:") + "\nservices:\n" + rest
}
