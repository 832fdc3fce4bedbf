package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const bpffs = "/sys/fs/bpf"

// makePinDir makes dir on a BPF file system, which it mounts at its usual place if it is not, and tells whether dir is
// new.
func makePinDir(dir string) (fresh bool, err error) {
	if !filepath.IsAbs(dir) {
		return false, fmt.Errorf("pin directory %q: need an absolute path, such as %s/margay/IF-1", dir, bpffs)
	}
	dir = filepath.Clean(dir)
	if strings.HasPrefix(dir, bpffs+"/") {
		if err := mountBPFFS(); err != nil {
			return false, err
		}
	}
	if strings.Contains(strings.TrimPrefix(dir, bpffs), ".") {
		return false, fmt.Errorf("pin directory %s: a BPF file system takes no dots in names", dir)
	}
	if _, err := os.Stat(dir); err == nil {
		return false, requireBPFFS(dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("pin directory: %w", err)
	}
	if err := requireBPFFS(dir); err != nil {
		return false, errors.Join(err, os.Remove(dir))
	}
	return true, nil
}

func mountBPFFS() error {
	if requireBPFFS(bpffs) == nil {
		return nil
	}
	if err := unix.Mount("bpf", bpffs, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mounting a BPF file system on %s: %w", bpffs, err)
	}
	return nil
}

// requireBPFFS tells whether dir, which exists, can hold pins.
func requireBPFFS(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("pin directory %s: %w", dir, err)
	}
	if s.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("pin directory %s is not on a BPF file system: use one under %s", dir, bpffs)
	}
	return nil
}
