package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// prepareDir makes Dir a shared mount point of its own, as `ip netns add` does. Were it an ordinary directory, the first
// `ip netns add` would mount it over itself, with all that is in it: each name would then be mounted a second time where
// nobody can see it, and could not be removed.
func prepareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(Dir)
	if err != nil {
		return err
	}
	defer dir.Close() // and unlock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", Dir, err)
	}
	share := func() error { return unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // no mount point yet
		if err := unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s over itself: %w", Dir, err)
		}
		err = share()
	}
	if err != nil {
		return fmt.Errorf("share the mount %s: %w", Dir, err)
	}
	return nil
}

// unmountHidden unmounts a namespace whose name was mounted before something mounted Dir over itself. A path leads to
// what is mounted on top; only by the handle of a file can the directory underneath be reached.
func unmountHidden(name string) error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, Dir, 0)
	if err != nil {
		return hidden("handle of "+Dir, err)
	}
	parent, err := os.Open(filepath.Dir(Dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	below, err := unix.OpenByHandleAt(int(parent.Fd()), handle, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return hidden("open "+Dir+" below its mount", err)
	}
	defer unix.Close(below)
	for mounted := false; ; mounted = true {
		switch err := unix.Unmount(fmt.Sprintf("/proc/self/fd/%d/%s", below, name), unix.MNT_DETACH); {
		case err == nil: // maybe mounted more than once
		case errors.Is(err, unix.EINVAL) && mounted:
			return nil
		default:
			return hidden("unmount", err)
		}
	}
}

func hidden(what string, err error) error {
	return fmt.Errorf("it is in use where a mount over %s hides it, and will be until that is gone: %s: %w", Dir, what, err)
}
