// Package privileges takes from a daemon that was started as root every capability that its role does not need, on all
// of its threads and for good.
package privileges

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Capability is a capability(7) by its number.
type Capability uint

// The capabilities that a role of Margay may keep.
const (
	NetAdmin Capability = unix.CAP_NET_ADMIN // links, routes, neighbours, attaching XDP
	NetRaw   Capability = unix.CAP_NET_RAW   // packet sockets
	BPF      Capability = unix.CAP_BPF       // maps and programs
	PerfMon  Capability = unix.CAP_PERFMON   // programs that the verifier lets read kernel memory
)

var names = map[Capability]string{NetAdmin: "CAP_NET_ADMIN", NetRaw: "CAP_NET_RAW", BPF: "CAP_BPF", PerfMon: "CAP_PERFMON"}

// String gives the name that capabilities(7) uses.
func (c Capability) String() string {
	if name, ok := names[c]; ok {
		return name
	}
	return fmt.Sprintf("capability %d", uint(c))
}

// ErrCgo is what Reduce gives in a program that was built with cgo: Go can then not reach every thread.
var ErrCgo = errors.New("capabilities cannot be reduced on every thread of a program built with cgo: build with CGO_ENABLED=0")

// Reduce leaves the process the capabilities keep and no other: permitted and effective are keep, inheritable and
// ambient are empty, the bounding set is keep, being root gives nothing back on exec, and no_new_privs is set. The user
// id stays. It cannot be undone. Call it once everything that takes more has been done.
//
// A process that is not root is left as it is; the note, meant for the log, says what was done.
func Reduce(keep ...Capability) (note string, err error) {
	if os.Geteuid() != 0 {
		return "not root: privileges are left as they are", nil
	}
	held, err := permitted()
	if err != nil {
		return "", fmt.Errorf("read capabilities: %w", err)
	}
	for _, c := range keep {
		if held&bit(c) == 0 {
			return "", fmt.Errorf("this process lacks %s, which it needs: start it as root with its full capabilities", c)
		}
	}
	// The first step changes nothing where threads cannot be reached.
	if err := onAllThreads("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return "", err
	}
	if err := drop(keep, held&bit(unix.CAP_SETPCAP) != 0); err != nil {
		return "", err
	}
	return "reduced to " + list(keep), nil
}

// drop goes from what needs capabilities to what takes them away. Without CAP_SETPCAP the bounding set stays, which
// no_new_privs and the lost permitted set make harmless.
func drop(keep []Capability, mayBound bool) error {
	if err := onAllThreads("clear the ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return err
	}
	if mayBound {
		if err := bound(keep); err != nil {
			return err
		}
	}
	var mask uint64
	for _, c := range keep {
		mask |= bit(c)
	}
	return setCapabilities(mask)
}

// securebits: exec gives root no capabilities, and that is locked.
const noRoot = 1<<0 | 1<<1

func bound(keep []Capability) error {
	for c := Capability(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(keep, c) {
			continue
		}
		err := onAllThreads("drop "+c.String()+" from the bounding set", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0)
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: this kernel does not know it
			return err
		}
	}
	return onAllThreads("lock the secure bits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, noRoot, 0)
}

func onAllThreads(what string, number, a, b, c uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(number, a, b, c, 0, 0, 0)
	switch {
	case errno == syscall.ENOTSUP:
		return ErrCgo
	case errno != 0:
		return fmt.Errorf("%s: %w", what, errno)
	}
	return nil
}

func bit(c Capability) uint64 { return 1 << c }

func list(keep []Capability) string {
	if len(keep) == 0 {
		return "no capabilities"
	}
	texts := make([]string, len(keep))
	for i, c := range keep {
		texts[i] = c.String()
	}
	return strings.Join(texts, ", ")
}
