package operator

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
)

func runPKI(arguments ...string) (string, error) {
	command := PKI()
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetErr(&out)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(arguments)
	err := command.Execute()
	return out.String(), err
}

func TestPKI(t *testing.T) {
	dir, out := filepath.Join(t.TempDir(), "pki"), filepath.Join(t.TempDir(), "certificates")
	if text, err := runPKI("init", "--dir", dir, "--domain", "lab.example"); err != nil || !strings.Contains(text, "authority of lab.example\ncertificate "+dir+"/ca.crt\n") {
		t.Fatalf("init: %v, %q", err, text)
	}
	if _, err := runPKI("init", "--dir", dir, "--domain", "lab.example"); err == nil || !strings.Contains(err.Error(), "an authority is never overwritten") {
		t.Errorf("second init: %v", err)
	}
	text, err := runPKI("issue", "forwarder", "IF-1", "--dir", dir, "--out", out, "--ed25519")
	if err != nil || !strings.Contains(text, "certificate "+out+"/forwarder-IF-1.crt\n") {
		t.Fatalf("issue: %v, %q", err, text)
	}
	credentials, err := trust.Load(config.TLS{
		Certificate: config.Path(out + "/forwarder-IF-1.crt"), Key: config.Path(out + "/forwarder-IF-1.key"), Authority: config.Path(dir + "/ca.crt"), Domain: "lab.example",
	})
	if err != nil || credentials.Self().String() != "spiffe://lab.example/forwarder/IF-1" {
		t.Errorf("what was issued: %v", err)
	}
	for want, arguments := range map[string][]string{
		`role "king": need one of [sci csma cnma cps pce forwarder operator client]`: {"issue", "king", "x", "--dir", dir},
		`name "a/b"`:                    {"issue", "cps", "a/b", "--dir", dir},
		"accepts 2 arg(s), received 1":  {"issue", "cps", "--dir", dir},
		"make one with margay pki init": {"issue", "cps", "x", "--dir", out},
		"exists: it is not overwritten": {"issue", "forwarder", "IF-1", "--dir", dir, "--out", out},
		`domain "Lab"`:                  {"init", "--dir", filepath.Join(out, "other"), "--domain", "Lab"},
		`unknown command "revoke" for`:  {"revoke"},
	} {
		if text, err := runPKI(arguments...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %q; want an error with %q", arguments, err, text, want)
		}
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 2 {
		t.Errorf("after the refusals %s holds %v, %v", out, entries, err)
	}
}
