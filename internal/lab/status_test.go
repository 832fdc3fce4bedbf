package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/testenv"
)

func TestStatus(t *testing.T) {
	l := up(t, lab.ServicesAlone)
	if err := l.Kill("service-A", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	all, err := lab.Status(t.Context(), l.Name())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if a := all[0]; a.Name != "service-A" || a.PID != 0 || a.Ready || a.Answers || a.Log == "" {
		t.Errorf("what was killed: %+v", a)
	}
	if b := all[1]; b.Name != "service-B" || b.Node != "B" || b.PID == 0 || !b.Ready || !b.Answers {
		t.Errorf("what runs: %+v", b)
	}
	if _, err := lab.Status(t.Context(), "nolab"); err == nil || !strings.Contains(err.Error(), "is not up") {
		t.Errorf("unknown lab: %v", err)
	}
}

// TestDownEndsEverythingInside takes a lab down in which somebody else left processes, one of which cannot be asked to end.
func TestDownEndsEverythingInside(t *testing.T) {
	l := up(t, lab.ServicesAlone)
	commands := map[string]*exec.Cmd{"client": exec.Command("sleep", "1000"), "R1": exec.Command("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")}
	heard, err := commands["R1"].StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	outside := exec.Command("sleep", "1000")
	if err := outside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outside.Process.Kill(); outside.Wait() })
	for node, c := range commands {
		in(t, l, node, c.Start)
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	}
	if _, err := heard.Read(make([]byte, 16)); err != nil { // it does not heed SIGTERM from now on
		t.Fatal(err)
	}
	b, err := l.Daemon("service-B")
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := lab.Down(l.Name(), &said); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("stopped service-B (pid %d)\n", b.PID),
		fmt.Sprintf("ended sleep (pid %d) in mgy-%s-client\n", commands["client"].Process.Pid, l.Name()),
		fmt.Sprintf("ended sh (pid %d) in mgy-%s-R1\n", commands["R1"].Process.Pid, l.Name()),
		"removed /run/netns/mgy-" + l.Name() + "-EF-1\n", "removed /run/margay/lab/" + l.Name() + "\n",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said.String())
		}
	}
	for node, c := range commands {
		var exit *exec.ExitError
		if err := c.Wait(); !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
			t.Errorf("the process in %s ended by itself: %v", node, err)
		}
	}
	if err := outside.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process that is not in the lab: %v", err)
	}
}

func TestInterruptedUpRemovesEverything(t *testing.T) {
	testenv.RequireRoot(t)
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	name := uniqueName()
	_, err = lab.Up(ctx, lab.Options{Topology: topology, Name: name, Extent: lab.ServicesAlone, Programs: programs(t)})
	if !errors.Is(err, lab.ErrInterrupted) {
		t.Errorf("%v, want %v", err, lab.ErrInterrupted)
	}
	nothingLeft(t, name)
}

func TestInterrupted(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	failed, left := errors.New("failed"), errors.New("something is left")
	for i, c := range []struct {
		ctx              context.Context
		failed, removing error
		want             string
	}{
		{t.Context(), nil, nil, ""}, {cancelled, nil, nil, ""}, {t.Context(), failed, nil, "failed"}, {t.Context(), nil, left, "something is left"},
		{cancelled, failed, nil, lab.ErrInterrupted.Error()}, {cancelled, failed, left, "failed\nsomething is left"},
	} {
		err := lab.Interrupted(c.ctx, c.failed, c.removing)
		if text := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && text != c.want {
			t.Errorf("%d: %v, want %q", i, err, c.want)
		}
	}
}
