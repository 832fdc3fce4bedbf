package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	t.Run("a client that the ingress does not know", func(t *testing.T) { strangers(t) })
	t.Run("an unknown CS-ID", func(t *testing.T) {
		_, complaint, err := margay(t, "request", "--ingress", "IF-1", "--source", "192.0.2.10:55001", "--target", "192.0.2.100:443", "--cs-id", "NOPE")
		if err == nil {
			t.Error("an unknown CS-ID was announced")
		}
		clear(t, complaint, "NOPE", "identity-conflict", "S1")
		refused(t, []string{"NOPE"}, "unknown-service", "NOPE")
	})
	t.Run("an address outside every service", func(t *testing.T) {
		refused(t, []string{"--target", "203.0.113.9:80", "--protocol", "tcp"}, "unknown-service", "203.0.113.9")
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

// refused explains a request that would be refused.
func refused(t *testing.T, flags []string, words ...string) {
	t.Helper()
	out, complaint, err := margay(t, append([]string{"explain", "--ingress", "IF-1"}, flags...)...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || complaint != "" {
		t.Fatalf("exit code 3 and no complaint expected: %v, %q", err, complaint)
	}
	_, refusal, found := strings.Cut(out, "refused ")
	if !found {
		t.Fatalf("there is no refusal in %s", out)
	}
	clear(t, refusal, words...)
}

// strangers announces as a client whose certificate is good and whose name no configuration has, and as one that is known,
// for another's address.
func strangers(t *testing.T) {
	dir := t.TempDir()
	own, err := os.ReadFile(shared.lab.ClientConfig("client"))
	if err != nil {
		t.Fatal(err)
	}
	pki := filepath.Join(filepath.Dir(filepath.Dir(shared.lab.ClientConfig("client"))), "pki")
	if _, complaint, err := margay(t, "pki", "issue", "client", "stranger", "--dir", pki, "--out", dir); err != nil {
		t.Fatal(err, complaint)
	}
	config := filepath.Join(dir, "stranger.yaml")
	foreign := strings.ReplaceAll(string(own), filepath.Join(pki, "client-client."), filepath.Join(dir, "client-stranger."))
	if err := os.WriteFile(config, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	announce := func(config, source string) (string, error) {
		_, complaint, err := margay(t, "--config", config, "request", "--ingress", "IF-1", "--source", source, "--target", "192.0.2.100:443", "--cs-id", "S1")
		return complaint, err
	}
	complaint, err := announce(config, "192.0.2.10:55002")
	if err == nil {
		t.Error("the announcement of an unknown client was taken")
	}
	clear(t, complaint, "IF-1", "refused our certificate", "client/stranger", "unauthorized")
	audited(t, "IF-1", `"event":"channel-refused"`, "client/stranger", `"reason":"unauthorized"`)

	if complaint, err := announce(shared.lab.ClientConfig("client"), "192.0.2.10:55003"); err != nil {
		t.Errorf("a known client for itself: %v, %s", err, complaint)
	}
	complaint, err = announce(shared.lab.ClientConfig("client"), "192.0.2.11:55003")
	if err == nil {
		t.Error("a client announced a flow of another's")
	}
	clear(t, complaint, "IF-1", "192.0.2.11", "client client", "unauthorized")
	audited(t, "IF-1", `"event":"announce-refused"`, "client/client", "192.0.2.11")
}

// audited waits for a record with all the words in the audit log of a daemon.
func audited(t *testing.T, daemon string, words ...string) {
	t.Helper()
	d, err := shared.lab.Daemon(daemon)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("an audit record with %q", words), func() error {
		text, err := os.ReadFile(strings.TrimSuffix(d.Log, ".log") + ".audit")
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(text), "\n") {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}
		return errors.New("there is none")
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
