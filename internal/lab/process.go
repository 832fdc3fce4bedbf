package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How long processes may take, beyond what the caller's context allows.
const (
	stopGrace = 10 * time.Second       // from SIGTERM to SIGKILL
	killGrace = 10 * time.Second       // from SIGKILL to the end
	pollEvery = 20 * time.Millisecond  // for states that nobody announces
	logTail   = 20                     // lines of a log that an error shows
	readyWait = 500 * time.Millisecond // for one answer of /readyz
)

// spawn starts the process of a daemon inside its node, in a session of its own, so that it outlives this program.
func (l *Lab) spawn(d *Daemon) error {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	defer log.Close()
	node, err := l.Node(d.Node)
	if err != nil {
		return err
	}
	command := exec.Command(d.Command[0], d.Command[1:]...)
	command.Stdout, command.Stderr = log, log
	command.Dir = l.layout.dir()
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := node.Do(command.Start); err != nil { // the child inherits the namespace of the thread that forks it
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	started, _, err := processState(command.Process.Pid)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", d.Name, err), command.Process.Kill(), command.Wait())
	}
	d.PID, d.Started = command.Process.Pid, started
	l.mutex.Lock()
	l.children[d.PID] = command
	l.mutex.Unlock()
	return nil
}

// processState reads when a process started, in clock ticks since boot, and its state letter.
func processState(pid int) (started uint64, letter byte, err error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The second field is the program's name in parentheses and may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	started, err = strconv.ParseUint(fields[19], 10, 64)
	return started, fields[0][0], err
}

// running tells whether the daemon's process runs: the same one, and not merely a zombie.
func (d *Daemon) running() bool {
	if d.PID == 0 {
		return false
	}
	started, letter, err := processState(d.PID)
	return err == nil && started == d.Started && letter != 'Z' && letter != 'X'
}

// signal sends a signal to the daemon's process and to no other: the handle is taken first, then the process behind it
// is verified, so that a recycled PID is never hit.
func (d *Daemon) signal(s syscall.Signal) error {
	if d.PID == 0 {
		return os.ErrProcessDone
	}
	p, err := os.FindProcess(d.PID)
	if err != nil {
		return err
	}
	defer p.Release()
	if !d.running() {
		return os.ErrProcessDone
	}
	return p.Signal(s)
}

// stop ends the daemon's process, gently first, and waits until it has ended.
func (l *Lab) stop(d *Daemon) error {
	for _, try := range []struct {
		signal syscall.Signal
		grace  time.Duration
	}{{syscall.SIGTERM, stopGrace}, {syscall.SIGKILL, killGrace}} {
		if err := d.signal(try.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("%s (pid %d): %w", d.Name, d.PID, err)
		}
		if l.ended(d, try.grace) {
			return nil
		}
	}
	return fmt.Errorf("%s (pid %d) does not end, not even by SIGKILL", d.Name, d.PID)
}

// ended waits until the daemon's process has ended, and takes leave of it.
func (l *Lab) ended(d *Daemon, within time.Duration) bool {
	for limit := time.Now().Add(within); d.running(); time.Sleep(pollEvery) {
		if time.Now().After(limit) {
			return false
		}
	}
	l.reap(d)
	d.PID, d.Started = 0, 0
	return true
}

// reap collects an ended child of this program, so that no zombie stays. A child of another is its own parent's.
func (l *Lab) reap(d *Daemon) {
	l.mutex.Lock()
	child := l.children[d.PID]
	delete(l.children, d.PID)
	l.mutex.Unlock()
	if child != nil {
		_ = child.Wait() // its exit code says nothing here: it was told to end, or its log tells more
	}
}

// awaitReady waits until /readyz of every daemon answers 200, and tells of each. It fails as soon as one of them ends.
func (l *Lab) awaitReady(ctx context.Context, daemons []*Daemon, tell func(*Daemon)) error {
	last := map[*Daemon]string{}
	for waiting := slices.Clone(daemons); ; {
		var still []*Daemon
		for _, d := range waiting {
			if !d.running() {
				l.reap(d)
				return l.failure(d, "ended while it started")
			}
			ready, answer := d.ready(ctx)
			switch {
			case !ready:
				still = append(still, d)
				last[d] = cmp.Or(answer, last[d])
			case tell != nil:
				tell(d)
			}
		}
		if waiting = still; len(waiting) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			d := waiting[0]
			return l.failure(d, fmt.Sprintf("is not ready (%v): %s", context.Cause(ctx), cmp.Or(last[d], "it does not answer")))
		case <-time.After(pollEvery):
		}
	}
}

// ready asks once; where it is not ready it tells what it lacks.
func (d *Daemon) ready(ctx context.Context) (bool, string) {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	network, address := d.Observe.Network()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon/readyz", nil)
	if err != nil {
		return false, err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return false, ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return false, err.Error()
	}
	return response.StatusCode == http.StatusOK, unmet(string(body))
}

// unmet gives the conditions of an answer of /readyz that do not hold, on one line; all of it where it names none.
func unmet(answer string) string {
	var all []string
	for line := range strings.Lines(answer) {
		if why, is := strings.CutPrefix(strings.TrimSpace(line), "not ready "); is {
			all = append(all, why)
		}
	}
	if len(all) == 0 {
		return strings.ReplaceAll(strings.TrimSpace(answer), "\n", "; ")
	}
	return strings.Join(all, "; ")
}

// failure makes an error of what happened to a daemon, with the end of its log.
func (l *Lab) failure(d *Daemon, what string) error {
	log, err := os.ReadFile(d.Log)
	if err != nil {
		return fmt.Errorf("%s on node %s %s; its log cannot be read: %w", d.Name, d.Node, what, err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	lines = lines[max(0, len(lines)-logTail):]
	return fmt.Errorf("%s on node %s %s; its log ends:\n  %s", d.Name, d.Node, what, strings.Join(lines, "\n  "))
}
