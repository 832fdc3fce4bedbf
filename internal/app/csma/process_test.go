package csma

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/testenv"
)

// process is a real daemon.
type process struct {
	t       *testing.T
	command *exec.Cmd
	log     *testenv.Buffer
	wait    func() error
}

// build compiles both daemons as they are shipped.
func build(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	command := exec.Command("go", "build", "-o", dir+"/", "./cmd/margay-csma", "./cmd/margay-sci")
	command.Dir = "../../.."
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return dir
}

func spawn(t *testing.T, program string, arguments ...string) *process {
	t.Helper()
	p := &process{t: t, command: exec.Command(program, arguments...), log: &testenv.Buffer{}}
	p.command.Stdout, p.command.Stderr = p.log, p.log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	p.wait = sync.OnceValue(p.command.Wait)
	t.Cleanup(func() {
		p.command.Process.Kill() // it may have ended
		p.wait()
		if t.Failed() {
			t.Logf("log of %s:\n%s", filepath.Base(program), p.log)
		}
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func TestProcesses(whole *testing.T) {
	t := whole
	bin := build(t)
	l := newLab(t)
	cps, _ := l.startCPS(nil)
	address, _ := l.service()
	check := "tcp: \"" + address + "\""
	csma := spawn(t, bin+"/margay-csma", "--config", l.csmaFile(fast, "sci-a"))
	sciFile := l.sciFile("sci-a", check, 100, "interval: 500ms")
	sci := spawn(t, bin+"/margay-sci", "--config", sciFile)
	first := cps.wait("HEALTHY", "I-sci-a", func(r cats.Record) bool { return r.Health == cats.Healthy && r.Metrics.GAS == 100 })

	t.Run("privileges are gone", func(t *testing.T) {
		for _, p := range []*process{csma, sci} {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			if os.Geteuid() == 0 && !bytes.Contains(status, []byte("CapEff:\t0000000000000000\n")) {
				t.Errorf("%s has capabilities: %s", p.command.Path, status)
			}
		}
	})
	t.Run("SIGHUP with max_slots 0 reaches the C-PS", func(t *testing.T) {
		l.sciFile("sci-a", check, 0, "interval: 500ms")
		sci.signal(syscall.SIGHUP)
		cps.wait("GAS 0", "I-sci-a", func(r cats.Record) bool { return r.Metrics.GAS == 0 && r.Health == cats.Healthy })
	})
	t.Run("SIGHUP with a bad file changes nothing", func(t *testing.T) {
		good, err := os.ReadFile(sciFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(sciFile, append(good, "\nslotz: 1\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
		sci.signal(syscall.SIGHUP)
		testenv.Eventually(t, "the fault in the log", func() bool { return strings.Contains(sci.log.String(), "unknown key") })
		l.sciFile("sci-a", check, 33, "interval: 500ms")
		sci.signal(syscall.SIGHUP)
		cps.wait("the next good one", "I-sci-a", func(r cats.Record) bool { return r.Metrics.GAS == 33 && r.ReportEpoch == first.ReportEpoch })
	})
	t.Run("kill -9 of the agent and a new start: the epoch grows", func(t *testing.T) {
		sci.signal(syscall.SIGKILL)
		sci.wait()
		l.sciFile("sci-a", check, 55, "interval: 500ms")
		sci = spawn(whole, bin+"/margay-sci", "--config", sciFile)
		cps.wait("HEALTHY again", "I-sci-a", func(r cats.Record) bool {
			return r.Health == cats.Healthy && r.Metrics.GAS == 55 && r.ReportEpoch > first.ReportEpoch
		})
	})
	t.Run("kill -9 of the C-SMA and a new start: its epoch grows and nothing is lost", func(t *testing.T) {
		cps.mutex.Lock()
		epoch := cps.epoch
		cps.mutex.Unlock()
		csma.signal(syscall.SIGKILL)
		csma.wait()
		csma = spawn(whole, bin+"/margay-csma", "--config", l.path("csma-1.yaml"))
		testenv.Eventually(t, "updates of a later epoch", func() bool {
			cps.mutex.Lock()
			defer cps.mutex.Unlock()
			return cps.epoch > epoch
		})
		cps.wait("the row", "I-sci-a", func(r cats.Record) bool { return r.Metrics.GAS == 55 })
	})
	t.Run("SIGSTOP of the agent: STALE, FAILED, and back", func(t *testing.T) {
		sci.signal(syscall.SIGSTOP)
		cps.wait("STALE", "I-sci-a", func(r cats.Record) bool { return r.Reporting == cats.ReportingStale })
		cps.gone("withdrawn", "I-sci-a")
		sci.signal(syscall.SIGCONT)
		cps.wait("back", "I-sci-a", func(r cats.Record) bool { return r.Reporting == cats.ReportingHealthy && r.Metrics.GAS == 55 })
	})
	t.Run("SIGTERM ends both in order", func(t *testing.T) {
		for _, p := range []*process{sci, csma} {
			p.signal(syscall.SIGTERM)
			if err := p.wait(); err != nil {
				t.Errorf("%s: %v\n%s", p.command.Path, err, p.log)
			}
		}
	})
}
