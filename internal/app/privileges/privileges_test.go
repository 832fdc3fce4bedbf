package privileges

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/testenv"
)

// What cannot be undone is done in a process of its own: this test's binary, which TestMain sends to a scenario.
const scenarioVariable = "MARGAY_PRIVILEGES_SCENARIO"

func TestMain(m *testing.M) {
	if scenario, ok := scenarios[os.Getenv(scenarioVariable)]; ok {
		scenario()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var scenarios = map[string]func(){
	"forwarder": func() { reduceAndTell(BPF, NetAdmin, NetRaw) },
	"others":    func() { reduceAndTell() },
	"tell": func() {
		must(Reduce(NetRaw))
		tellThreads()
	},
	"twice": func() {
		must(Reduce(NetRaw))
		note, err := Reduce(BPF)
		fmt.Printf("%q %v\n", note, err)
		tellThreads()
	},
}

func must(note string, err error) {
	fmt.Println(note)
	if err != nil {
		fmt.Println("error:", err)
		fmt.Println("is ErrCgo:", errors.Is(err, ErrCgo))
	}
}

// reduceAndTell reduces while several threads exist, starts more afterwards, and prints what each has and can do.
func reduceAndTell(keep ...Capability) {
	release := make(chan struct{})
	threads := func() {
		for range 4 {
			started := make(chan struct{})
			go func() {
				runtime.LockOSThread()
				close(started)
				<-release
			}()
			<-started
		}
	}
	threads()
	must(Reduce(keep...))
	threads()
	tellThreads()
	fmt.Println("packet socket:", try(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	}))
	fmt.Println("set the host name:", try(func() error { return unix.Sethostname([]byte(hostname())) }))
	out, err := exec.Command("/bin/cat", "/proc/self/status").Output()
	fmt.Println("child:", strings.Join(capabilityLines(string(out)), " "), err)
	close(release)
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		panic(err)
	}
	return name
}

func try(f func() error) string {
	if err := f(); err != nil {
		return err.Error()
	}
	return "allowed"
}

func tellThreads() {
	statuses, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		panic(err)
	}
	for _, path := range statuses {
		data, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		fmt.Println("thread:", strings.Join(capabilityLines(string(data)), " "))
	}
}

var interesting = regexp.MustCompile(`(?m)^(Cap(?:Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs):\t(.*)$`)

func capabilityLines(status string) []string {
	var lines []string
	for _, match := range interesting.FindAllStringSubmatch(status, -1) {
		lines = append(lines, match[1]+"="+strings.TrimLeft(match[2], "0"))
	}
	return lines
}

func run(t *testing.T, scenario string, attributes *syscall.SysProcAttr) string {
	t.Helper()
	command := exec.Command("/proc/self/exe")
	command.Env = []string{scenarioVariable + "=" + scenario}
	command.Dir = "/"
	command.SysProcAttr = attributes
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestNotRoot(t *testing.T) {
	testenv.RequireRoot(t) // to become somebody else
	out := run(t, "forwarder", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	if !strings.HasPrefix(out, "not root: privileges are left as they are\n") || strings.Contains(out, "error:") || strings.Contains(out, "NoNewPrivs=1") {
		t.Errorf("got %s", out)
	}
}

func TestNames(t *testing.T) {
	for c, want := range map[Capability]string{NetAdmin: "CAP_NET_ADMIN", NetRaw: "CAP_NET_RAW", BPF: "CAP_BPF", PerfMon: "CAP_PERFMON", unix.CAP_CHOWN: "capability 0"} {
		if c.String() != want {
			t.Errorf("%d is %s, want %s", c, c, want)
		}
	}
}
