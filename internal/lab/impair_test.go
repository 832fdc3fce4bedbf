package lab_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/impair"
	"github.com/margay-net/margay/internal/testenv"
)

// upImpairable brings the example up with every link impairable.
func upImpairable(t *testing.T, extent lab.Extent) *lab.Lab {
	t.Helper()
	testenv.RequireRoot(t)
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		t.Fatal(err)
	}
	for i := range topology.Links {
		topology.Links[i].Impairable = true
	}
	name := uniqueName()
	l, err := lab.Up(t.Context(), lab.Options{Topology: topology, Name: name, Extent: extent, Programs: programs(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, name)
	})
	return l
}

// roundTrip is the quickest of some exchanges with the datagram service of B from its forwarder.
func roundTrip(t *testing.T, l *lab.Lab) time.Duration {
	t.Helper()
	least := time.Hour
	in(t, l, "EF-2", func() error {
		c, err := net.Dial("udp", "198.51.100.21:5000")
		if err != nil {
			return err
		}
		defer c.Close()
		for i := range 20 {
			word, answer := fmt.Sprint("word ", i), make([]byte, 100)
			begun := time.Now()
			if _, err := c.Write([]byte(word)); err != nil {
				return err
			}
			c.SetReadDeadline(begun.Add(60 * time.Second))
			n, err := c.Read(answer)
			if err != nil {
				return err
			}
			if string(answer[:n]) != "B "+word {
				return fmt.Errorf("%q was answered by %q", word, answer[:n])
			}
			least = min(least, time.Since(begun))
		}
		return nil
	})
	return least
}

func TestLinksAreImpairedAndCleared(t *testing.T) {
	l := upImpairable(t, lab.ServicesAlone)
	const delay = 20 * time.Millisecond
	if took := roundTrip(t, l); took > delay {
		t.Errorf("a link with a middle takes %s for a round trip", took)
	}
	set := impair.Impairment{Delay: delay, Queue: 1, Seed: 5}
	if err := l.Impair(t.Context(), "EF-2:svc0", lab.Out, set); err != nil {
		t.Fatal(err)
	}
	if took := roundTrip(t, l); took < delay || took > 2*delay {
		t.Errorf("a round trip takes %s with %s one way", took, delay)
	}
	if err := l.Impair(t.Context(), "B:eth0", lab.BothWays, set); err != nil {
		t.Fatal(err)
	}
	if took := roundTrip(t, l); took < 2*delay {
		t.Errorf("a round trip takes %s with %s each way", took, delay)
	}
	all, err := l.Impairments(t.Context())
	if err != nil || len(all) != 2 || all[0].From != "B:eth0" || all[0].To != "EF-2:svc0" || all[1].From != "EF-2:svc0" || all[0].Set != set {
		t.Errorf("%+v, %v", all, err)
	}
	if err := l.ClearImpairment(t.Context(), "EF-2:svc0", lab.In); err != nil {
		t.Fatal(err)
	}
	all, err = l.Impairments(t.Context())
	if err != nil || len(all) != 1 || all[0].From != "EF-2:svc0" || all[0].Counts.Sent == 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := l.ClearImpairment(t.Context(), "", lab.BothWays); err != nil {
		t.Fatal(err)
	}
	if took := roundTrip(t, l); took > delay {
		t.Errorf("a cleared link takes %s for a round trip", took)
	}
	if slices.ContainsFunc(l.Daemons(), func(d lab.Daemon) bool { return d.Role == lab.ImpairRole }) {
		t.Errorf("a process stays: %+v", l.Daemons())
	}
}

// TestImpairmentsOfAnotherProgram has one program impair what another brought up and takes down.
func TestImpairmentsOfAnotherProgram(t *testing.T) {
	var other *lab.Lab
	t.Cleanup(func() {
		if other != nil {
			other.Collect()
		}
	}) // the processes are its children, which end with the lab
	l := upImpairable(t, lab.ServicesAlone)
	var err error
	other, err = lab.Open(l.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, at := range []string{"IF-1:core1", "B:eth0"} {
		if err := other.Impair(t.Context(), at, lab.BothWays, impair.Impairment{Delay: time.Second, Queue: 1}); err != nil {
			t.Fatal(err)
		}
	}
	processes := func(l *lab.Lab) (all []lab.Daemon) {
		for _, d := range l.Daemons() {
			if d.Role == lab.ImpairRole && d.PID != 0 {
				all = append(all, d)
			}
		}
		return all
	}
	if n := len(processes(other)); n != 2 {
		t.Fatalf("%d processes for two links", n)
	}
	// The first one knows of nothing yet, and must not make the lab forget it.
	if err := l.Restart(t.Context(), "service-A"); err != nil {
		t.Fatal(err)
	}
	if n := len(processes(l)); n != 2 {
		t.Errorf("%d processes are known after a restart of something else", n)
	}
	t.Run("a link whose process was killed says so and is mended", func(t *testing.T) {
		name := processes(l)[0].Name
		if err := l.Kill(name, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		all, err := l.Impairments(t.Context())
		if err == nil || !strings.Contains(err.Error(), "IF-1:core1") || !strings.Contains(err.Error(), "clear it") || len(all) != 2 {
			t.Errorf("%+v, %v", all, err)
		}
		if err := l.ClearImpairment(t.Context(), "IF-1:core1", lab.BothWays); err != nil {
			t.Fatal(err)
		}
		in(t, l, "IF-1", func() error { return ping("2001:db8:1:1::2") })
		if all, err := other.Impairments(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("%+v, %v", all, err)
		}
	})
	// Down, which follows, must end the process of the other link.
	if n := len(processes(l)); n != 1 {
		t.Errorf("%d processes left", n)
	}
}

func TestImpairRefuses(t *testing.T) {
	l := upImpairable(t, lab.ServicesAlone)
	plain := up(t, lab.ServicesAlone)
	fine := impair.Impairment{Delay: time.Millisecond, Queue: 1}
	for _, c := range []struct {
		lab  *lab.Lab
		at   string
		set  impair.Impairment
		want string
	}{
		{plain, "IF-1:core1", fine, "was not built to be impaired"},
		{l, "IF-1:core9", fine, "node IF-1 has [IF-1:client0 IF-1:core1 IF-1:core2]"},
		{l, "IF-1", fine, "no end of a link"},
		{l, "nobody:eth0", fine, "has no node"},
		{l, "IF-1:mgmt0", fine, "no end of a link"},
		{l, "IF-1:core1", impair.Impairment{Jitter: 1, Queue: 1}, "jitter"},
	} {
		if err := c.lab.Impair(t.Context(), c.at, lab.BothWays, c.set); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.at, err, c.want)
		}
	}
	if _, err := lab.ParseWay("sideways"); err == nil {
		t.Error("an unknown direction was read")
	}
	if all, err := l.Impairments(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := l.ClearImpairment(t.Context(), "IF-1:core1", lab.Out); err != nil {
		t.Errorf("clearing what is clear: %v", err)
	}
	if _, err := load(t, strings.Replace(exampleText(t), "name: R1,", "name: impair,", 1)); err == nil || !strings.Contains(err.Error(), "the lab's own") {
		t.Errorf("a node with the name of the middle: %v", err)
	}
}

func TestPoints(t *testing.T) {
	l := up(t, lab.NetworkAlone)
	points, err := l.Points("IF-1", "R1:ef1", "cps-1", "R1:ef1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range points {
		got = append(got, fmt.Sprintf("%s at %s, far %t", p.Name, p.Interface, p.Far))
	}
	want := []string{
		"IF-1:client0 at eth0, far true", "IF-1:core1 at if1, far true", "IF-1:core2 at if1, far true",
		"R1:ef1 at ef1, far false", "cps-1:mgmt0 at mgmt0, far false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, bad := range []string{"nobody", "IF-1:", ""} {
		if _, err := l.Points(bad); err == nil || !strings.Contains(err.Error(), "it has") && !strings.Contains(err.Error(), "node IF-1 has [client0 core1 core2]") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
