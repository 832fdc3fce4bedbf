//go:build !cgo

package privileges

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/testenv"
)

func TestReduce(t *testing.T) {
	testenv.RequireRoot(t)
	forwarder := uint64(1)<<unix.CAP_BPF | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW
	for scenario, c := range map[string]struct {
		mask         uint64
		note, packet string
	}{
		"forwarder": {forwarder, "reduced to CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW\n", "allowed"},
		"others":    {0, "reduced to no capabilities\n", "operation not permitted"},
	} {
		t.Run(scenario, func(t *testing.T) {
			out := run(t, scenario, nil)
			mask := ""
			if c.mask != 0 {
				mask = fmt.Sprintf("%x", c.mask)
			}
			want := fmt.Sprintf("thread: CapInh= CapPrm=%s CapEff=%s CapBnd=%s CapAmb= NoNewPrivs=1\n", mask, mask, mask)
			threads := strings.Count(out, "thread: ")
			if n := strings.Count(out, want); n != threads || threads < 9 {
				t.Errorf("%d of %d threads (want at least 9) have %q", n, threads, want)
			}
			for _, line := range []string{c.note, "packet socket: " + c.packet + "\n", "set the host name: operation not permitted\n",
				fmt.Sprintf("child: CapInh= CapPrm= CapEff= CapBnd=%s CapAmb= NoNewPrivs=1 <nil>\n", mask)} {
				if !strings.Contains(out, line) {
					t.Errorf("lacks %q", line)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

func TestLacksWhatItNeeds(t *testing.T) {
	testenv.RequireRoot(t)
	out := run(t, "twice", nil)
	if !strings.Contains(out, `"" this process lacks CAP_BPF, which it needs: start it as root with its full capabilities`) {
		t.Errorf("got %s", out)
	}
	if want := fmt.Sprintf("CapPrm=%x ", 1<<unix.CAP_NET_RAW); !strings.Contains(out, want) {
		t.Errorf("the refused reduction changed something: want %q in %s", want, out)
	}
}
