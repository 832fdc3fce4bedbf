package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what results depend on, without anything that names the host.
type Machine struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
}

// String gives one line for a person.
func (m Machine) String() string {
	return fmt.Sprintf("Linux %s, %d × %s, %s", m.Kernel, m.Cores, m.CPU, m.Go)
}

func thisMachine() (Machine, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Machine{}, fmt.Errorf("kernel release: %w", err)
	}
	cpu, err := cpuModel()
	if err != nil {
		return Machine{}, fmt.Errorf("CPU model: %w", err)
	}
	return Machine{Kernel: unix.ByteSliceToString(u.Release[:]), CPU: cpu, Cores: runtime.NumCPU(), Go: runtime.Version()}, nil
}

// cpuModel gives the model of the first CPU; the architecture where /proc/cpuinfo names none.
func cpuModel() (string, error) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value), nil
		}
	}
	return runtime.GOARCH, lines.Err()
}
