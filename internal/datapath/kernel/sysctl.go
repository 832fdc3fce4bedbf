package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sysctlRoot is where the settings of the calling thread's network namespace are.
const sysctlRoot = "/proc/sys/net"

// setting is a sysctl, by its path below sysctlRoot, and a value.
type setting struct{ path, value string }

// An interface name may contain a dot (a VLAN), which is why paths are used instead of dotted names.
func sysctlV4(iface, key string) string { return filepath.Join("ipv4/conf", iface, key) }
func sysctlV6(iface, key string) string { return filepath.Join("ipv6/conf", iface, key) }
func sysctlNeigh(family, iface, key string) string {
	return filepath.Join(family, "neigh", iface, key)
}

func readSysctl(path string) (string, error) {
	b, err := os.ReadFile(filepath.Join(sysctlRoot, path))
	if err != nil {
		return "", fmt.Errorf("sysctl net/%s: %w", path, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// apply writes the settings that differ from what is there.
func apply(settings []setting) error {
	for _, s := range settings {
		have, err := readSysctl(s.path)
		if err != nil {
			return err
		}
		if have == s.value {
			continue
		}
		if err := os.WriteFile(filepath.Join(sysctlRoot, s.path), []byte(s.value), 0); err != nil {
			return fmt.Errorf("sysctl net/%s=%s: %w", s.path, s.value, err)
		}
	}
	return nil
}
