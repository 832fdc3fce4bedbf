// Package testenv tells tests what the machine allows, so that a privileged test skips for a person who is not root and
// fails, rather than skips, in continuous integration; and it waits for what other goroutines and processes do.
package testenv

import (
	"os"
	"os/exec"
	"testing"
)

// RequireRoot skips t when it does not run as root, and fails it when CI=true.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, "needs root: network namespaces and BPF; run it with sudo")
	}
}

// RequireProgram skips t when a program is not on the PATH, and fails it when CI=true; `make setup` installs them all.
func RequireProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		unavailable(t, "needs "+name+": run make setup")
	}
	return path
}

func unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
