package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/lab/namespace"
)

// strayGrace is how long processes that somebody else started in a lab may take to end after SIGTERM.
const strayGrace = 2 * time.Second

// stray is a process in a namespace of a lab that the lab itself did not start, such as one of `margay lab exec`.
type stray struct {
	pid       int
	name      string // of its program
	namespace string
	started   uint64 // as in Daemon
}

func (s *stray) String() string {
	return fmt.Sprintf("%s (pid %d) in %s", s.name, s.pid, s.namespace)
}

// runs tells whether it is still there.
func (s *stray) runs() bool {
	d := Daemon{PID: s.pid, Started: s.started}
	return d.running()
}

// strays lists the processes in the namespaces, but for this one and those that it descends from: whoever takes a lab
// down from a shell inside it keeps the shell.
func strays(namespaces []string) ([]*stray, error) {
	inside := map[[2]uint64]string{}
	for _, name := range namespaces {
		if id, err := fileIdentity(filepath.Join(namespace.Dir, name)); err == nil {
			inside[id] = name
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	spared := ancestors(os.Getpid())
	var all []*stray
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(spared, pid) {
			continue
		}
		id, err := fileIdentity(filepath.Join("/proc", e.Name(), "ns/net"))
		if err != nil || inside[id] == "" { // it has ended, or is elsewhere
			continue
		}
		started, letter, err := processState(pid)
		if err != nil || letter == 'Z' {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "comm")) // empty where it has ended meanwhile
		all = append(all, &stray{pid: pid, name: strings.TrimSpace(string(comm)), namespace: inside[id], started: started})
	}
	return all, nil
}

// fileIdentity tells two namespaces apart whatever the path that leads to them.
func fileIdentity(path string) ([2]uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return [2]uint64{}, err
	}
	return [2]uint64{s.Dev, s.Ino}, nil
}

// ancestors gives a process and those that it descends from.
func ancestors(pid int) (all []int) {
	for pid > 0 && !slices.Contains(all, pid) {
		all = append(all, pid)
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return all
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 {
			return all
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return all
		}
	}
	return all
}

// endStrays ends the processes in the namespaces, gently first, and gives those that it ended.
func endStrays(namespaces []string) (ended []*stray, err error) {
	all, err := strays(namespaces)
	if err != nil {
		return nil, err
	}
	left := all
	for _, try := range []struct {
		signal syscall.Signal
		grace  time.Duration
	}{{syscall.SIGTERM, strayGrace}, {syscall.SIGKILL, killGrace}} {
		for _, s := range left {
			d := Daemon{PID: s.pid, Started: s.started}
			if failed := d.signal(try.signal); failed != nil && !errors.Is(failed, os.ErrProcessDone) {
				err = errors.Join(err, fmt.Errorf("%s: %w", s, failed))
			}
		}
		for limit := time.Now().Add(try.grace); len(left) > 0 && time.Now().Before(limit); {
			if left = slices.DeleteFunc(slices.Clone(left), func(s *stray) bool { return !s.runs() }); len(left) > 0 {
				time.Sleep(pollEvery)
			}
		}
	}
	for _, s := range left {
		err = errors.Join(err, fmt.Errorf("%s does not end, not even by SIGKILL", s))
	}
	return slices.DeleteFunc(all, func(s *stray) bool { return s.runs() }), err
}
