package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/observe/audit"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/pki"
)

// Signals concern a whole process, so the daemon under test is this binary again.
const daemonVariable = "MARGAY_RUN_TEST_DAEMON"

func TestMain(m *testing.M) {
	if os.Getenv(daemonVariable) != "" {
		testDaemon.Main()
	}
	os.Exit(m.Run())
}

type sizeConfig struct {
	config.Common `yaml:",inline"`
	Size          int    `yaml:"size"`
	Behaviour     string `yaml:"behaviour,omitempty"`
}

// sizeApp shows its size in its readiness; the other behaviours are what a daemon should not do.
type sizeApp struct {
	base *Base
	size atomic.Int64
	sizeConfig
}

var testDaemon = Daemon[sizeConfig]{
	Program: "margay-test", Role: trust.CPS, Load: config.Load[sizeConfig],
	New: func(_ context.Context, c sizeConfig, base *Base) (App[sizeConfig], error) {
		if c.Behaviour == "cannot start" {
			return nil, errors.New("the store is missing")
		}
		a := &sizeApp{base: base, sizeConfig: c}
		a.size.Store(int64(c.Size))
		return a, nil
	},
}

func (a *sizeApp) Run(ctx context.Context) error {
	condition := a.base.Health.Condition("size")
	a.base.Audit.Record("started", "test", "test", cats.ReasonNone, "")
	for last := int64(-1); ; {
		if size := a.size.Load(); size != last {
			condition.Holds(fmt.Sprint(size))
			last = size
		}
		switch a.Behaviour {
		case "fails":
			return errors.New("the core broke")
		case "ends":
			return nil
		}
		select {
		case <-ctx.Done():
			if a.Behaviour == "does not stop" {
				a.base.Log.Info("not stopping")
				select {}
			}
			a.base.Audit.Record("stopped", "test", "test", cats.ReasonNone, "")
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}

func (a *sizeApp) Prepare(_ context.Context, _, next sizeConfig) (func(), error) {
	if next.Size > 100 {
		return nil, errors.New("there is no room for that")
	}
	return func() { a.size.Store(int64(next.Size)) }, nil
}

// site is a directory with everything that a daemon needs.
type site struct {
	t    *testing.T
	dir  string
	path string
}

func newSite(t *testing.T, role trust.Role, name string) site {
	t.Helper()
	// A socket's path is short; t.TempDir's may be too long.
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if _, err := pki.Init(dir, "example.margay"); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Issue(dir, role, name, pki.Options{}); err != nil {
		t.Fatal(err)
	}
	s := site{t, dir, filepath.Join(dir, "cps.yaml")}
	s.write(fmt.Sprintf("%s-%s", role, name), "size: 1\n")
	return s
}

func (s site) write(certificate, rest string) {
	s.t.Helper()
	content := fmt.Sprintf(`name: cps-1
tls: {certificate: %[1]s.crt, key: %[1]s.key, authority: ca.crt, domain: example.margay}
observe: {listen: "unix:%[2]s/observe.sock"}
audit: {file: log/cps-1.audit}
%[3]s`, certificate, s.dir, rest)
	if err := os.WriteFile(s.path, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// process is a running daemon.
type process struct {
	t      *testing.T
	site   site
	cmd    *exec.Cmd
	stderr *output
	client *http.Client
}

type output struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.buffer.String()
}

func (s site) start() *process {
	s.t.Helper()
	p := &process{t: s.t, site: s, cmd: exec.Command(os.Args[0], "--config", s.path), stderr: &output{}}
	p.cmd.Env = append(os.Environ(), daemonVariable+"=1")
	p.cmd.Stderr = p.stderr
	p.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.dir, "observe.sock"))
	}}}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// code waits for the end and gives the exit code.
func (p *process) code() int {
	p.t.Helper()
	kill := time.AfterFunc(2*time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	var failed *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &failed) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) get(path string) string {
	response, err := p.client.Get("http://margay" + path)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", response.StatusCode, body)
}

func (p *process) eventually(path, want string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := p.get(path)
		if strings.Contains(got, want) {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %s\nnot within a minute: %s\nlog:\n%s", path, got, want, p.stderr)
		}
	}
}

func TestLife(t *testing.T) {
	s := newSite(t, trust.CPS, "cps-1")
	p := s.start()
	p.eventually("/readyz", "200 ok start\nok size: 1\n")
	p.eventually("/metrics", "margay_certificate_expires_timestamp_seconds 1.")

	// What is refused changes nothing.
	for i, bad := range []string{"size: 2\nsise: 3\n", "size: 101\n", "size: 2\nobserve: {}\n"} {
		s.write("cps-cps-1", bad)
		p.signal(syscall.SIGHUP)
		p.eventually("/metrics", fmt.Sprintf("margay_config_reloads_total{result=\"refused\"} %d\n", i+1))
		if got := p.get("/readyz"); got != "200 ok start\nok size: 1\n" {
			t.Errorf("after a refused reload: %s", got)
		}
	}
	// A certificate of another name, with a configuration that is right otherwise: nothing of it is applied.
	if _, err := pki.Issue(s.dir, trust.CPS, "cps-2", pki.Options{}); err != nil {
		t.Fatal(err)
	}
	s.write("cps-cps-2", "size: 2\n")
	p.signal(syscall.SIGHUP)
	p.eventually("/metrics", "margay_config_reloads_total{result=\"refused\"} 4\n")
	if got := p.get("/readyz"); got != "200 ok start\nok size: 1\n" {
		t.Errorf("after a refused reload: %s", got)
	}

	s.write("cps-cps-1", "size: 2\n")
	p.signal(syscall.SIGHUP)
	p.eventually("/readyz", "200 ok start\nok size: 2\n")
	p.eventually("/metrics", "margay_config_last_reload_successful 1\n")

	p.signal(syscall.SIGTERM)
	if code := p.code(); code != ExitOK {
		t.Errorf("exit code %d, log:\n%s", code, p.stderr)
	}
	summary, err := audit.Verify(filepath.Join(s.dir, "log", "cps-1.audit"))
	if err != nil || summary.Records != 2 {
		t.Errorf("audit log: %+v, %v", summary, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "observe.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
	for _, want := range []string{`msg="stopping: SIGTERM"`, "msg=stopped", `msg="configuration applied: size changed"`, `unknown key \"sise\"`, "there is no room for that", `key \"observe\" is written twice`, "restart it to change that"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

func TestEnds(t *testing.T) {
	for behaviour, c := range map[string]struct {
		code int
		want string
	}{
		"fails":        {ExitFailed, "margay-test: the core broke\n"},
		"cannot start": {ExitFailed, "margay-test: the store is missing\n"},
		"ends":         {ExitOK, ""},
	} {
		s := newSite(t, trust.CPS, "cps-1")
		s.write("cps-cps-1", "size: 1\nbehaviour: "+behaviour+"\n")
		p := s.start()
		if code := p.code(); code != c.code || !strings.HasSuffix(p.stderr.String(), c.want) {
			t.Errorf("%s: exit code %d, log:\n%s", behaviour, code, p.stderr)
		}
		if _, err := os.Stat(filepath.Join(s.dir, "observe.sock")); !os.IsNotExist(err) {
			t.Errorf("%s: the socket is left behind: %v", behaviour, err)
		}
	}
}

func TestSecondSignal(t *testing.T) {
	s := newSite(t, trust.CPS, "cps-1")
	s.write("cps-cps-1", "size: 1\nbehaviour: does not stop\n")
	p := s.start()
	p.eventually("/readyz", "200 ok start\nok size: 1\n")
	p.signal(syscall.SIGINT)
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.stderr.String(), "not stopping"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the signal had no effect:\n%s", p.stderr)
		}
	}
	p.eventually("/readyz", "503 not ready start: the daemon is stopping\nok size: 1\n")
	p.signal(syscall.SIGINT)
	if code := p.code(); code != ExitFailed || !strings.HasSuffix(p.stderr.String(), "margay-test: stopped at once by a second signal\n") {
		t.Errorf("exit code %d, log:\n%s", code, p.stderr)
	}
}

func TestCommandLine(t *testing.T) {
	s := newSite(t, trust.CPS, "cps-1")
	if _, err := pki.Issue(s.dir, trust.SCI, "cps-1", pki.Options{}); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		certificate, rest string
		arguments         []string
		code              int
		stdout, stderr    string
	}{
		"check":                 {"cps-cps-1", "size: 1\n", []string{"--check"}, ExitOK, "margay-test: " + s.path + " is valid\n", ""},
		"check, unknown key":    {"cps-cps-1", "size: 1\nsise: 1\n", []string{"--check"}, ExitUsage, "", ":6:1: unknown key \"sise\""},
		"check, wrong role":     {"sci-cps-1", "size: 1\n", []string{"--check"}, ExitUsage, "", "is for spiffe://example.margay/sci/cps-1, this program is spiffe://example.margay/cps/cps-1"},
		"check, no certificate": {"none", "size: 1\n", []string{"--check"}, ExitUsage, "", "none.key: no such file"},
		"start, unknown key":    {"cps-cps-1", "size: 1\nsise: 1\n", nil, ExitUsage, "", "unknown key \"sise\""},
		"start, wrong role":     {"sci-cps-1", "size: 1\n", nil, ExitFailed, "", "is for spiffe://example.margay/sci/cps-1"},
		"unknown flag":          {"cps-cps-1", "size: 1\n", []string{"--chekc"}, ExitUsage, "", "flag provided but not defined: -chekc"},
		"an argument":           {"cps-cps-1", "size: 1\n", []string{"--check", "now"}, ExitUsage, "", `argument "now": none is expected`},
		"help":                  {"cps-cps-1", "size: 1\n", []string{"--help"}, ExitOK, "", "-config"},
	} {
		s.write(c.certificate, c.rest)
		var stdout, stderr bytes.Buffer
		code := testDaemon.Execute(append([]string{"--config", s.path}, c.arguments...), &stdout, &stderr)
		if code != c.code || stdout.String() != c.stdout || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", what, code, stdout.String(), stderr.String())
		}
	}
	for _, left := range []string{"log", "observe.sock"} {
		if _, err := os.Stat(filepath.Join(s.dir, left)); !os.IsNotExist(err) {
			t.Errorf("what did not start left %s: %v", left, err)
		}
	}
}

func TestMissingConfiguration(t *testing.T) {
	var stderr bytes.Buffer
	if code := testDaemon.Execute([]string{"--config", "/nowhere/cps.yaml"}, io.Discard, &stderr); code != ExitUsage || stderr.String() != "margay-test: configuration: open /nowhere/cps.yaml: no such file or directory\n" {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}
