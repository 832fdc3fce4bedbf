package cps

import (
	"bytes"
	"os"
	"strings"
	"testing"

	pb "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/testenv"
)

// A C-PS that lost its store, with one flow at the forwarders, which have obeyed term 2.
func TestLostStore(t *testing.T) {
	b := newBench(t)
	b.start().Stop()
	d, ingress, egress, _, _ := b.whole()
	q := request(1, 51000)
	ingress.request(q)
	testenv.Eventually(t, "both halves are installed", func() bool { return ingress.has(q.Transaction) && egress.has(q.Transaction) })
	t.Run("a C-PS whose store was lost admits nothing and says so", func(t *testing.T) {
		d.Stop()
		if err := os.RemoveAll(b.path("state")); err != nil {
			t.Fatal(err)
		}
		d = b.start()
		testenv.Eventually(t, "it says that it is not the owner", func() bool {
			ready, why := d.Ready()
			return !ready && strings.Contains(why, "its store is not the one that last owned the shard")
		})
		testenv.Eventually(t, "the forwarder is told", func() bool { return ingress.told("has obeyed epoch 2.0") })
		if !ingress.has(q.Transaction) || !egress.has(q.Transaction) {
			t.Error("it took the established flow away")
		}
	})
	t.Run("no number of restarts makes it the owner again", func(t *testing.T) {
		for range 3 {
			d.Stop()
			ingress.forget()
			egress.forget()
			d = b.start()
			testenv.Eventually(t, "it says what to do", func() bool {
				ready, why := d.Ready()
				return !ready && strings.Contains(why, "has obeyed epoch 2.0") && strings.Contains(why, "margay-cps --recover")
			})
			testenv.Eventually(t, "the forwarders are told what to do", func() bool { return ingress.told("margay-cps --recover") && egress.told("margay-cps --recover") })
		}
		if e := d.App.(*App).epoch; e != (cats.Epoch{Term: 1}) {
			t.Errorf("epoch %s", e)
		}
	})
	recovery := func(t *testing.T, want int) (out, complaint string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if got := Daemon.Execute([]string{"--config", b.path("cps.yaml"), "--recover"}, &stdout, &stderr); got != want {
			t.Fatalf("exit code %d, want %d: %s%s", got, want, stdout.String(), stderr.String())
		}
		return stdout.String(), stderr.String()
	}
	t.Run("it is not recovered while it runs", func(t *testing.T) {
		if _, complaint := recovery(t, run.ExitFailed); !strings.Contains(complaint, "another process has it open: stop it first") {
			t.Error(complaint)
		}
	})
	t.Run("a person recovers it: one line, audited, above every owner before, and the flows are there", func(t *testing.T) {
		d.Stop()
		out, complaint := recovery(t, run.ExitOK)
		if strings.Count(out, "\n") != 1 || !strings.Contains(out, "shard 0 is recovered: its next owner comes after epoch 3.0") || complaint != "" {
			t.Errorf("%q, %q", out, complaint)
		}
		audited, err := os.ReadFile(b.path("audit"))
		if err != nil || strings.Count(string(audited), `"shard-recovered"`) != 1 || !strings.Contains(string(audited), `"shard-fenced"`) {
			t.Errorf("%v\n%s", err, audited)
		}
		d = b.start()
		b.admits(d)
		if e := d.App.(*App).epoch; e != (cats.Epoch{Term: 4}) {
			t.Errorf("epoch %s", e)
		}
		r, err := b.ask().ListBindings(t.Context(), &pb.ListBindingsRequest{})
		if err != nil || r.GetTotal() != 1 || r.GetBindings()[0].GetState() != pb.FlowState_FLOW_STATE_ACTIVE {
			t.Errorf("%v, %v", r, err)
		}
	})
	t.Run("what is not fenced is not recovered", func(t *testing.T) {
		d.Stop()
		if _, complaint := recovery(t, run.ExitFailed); !strings.Contains(complaint, "the shard is not fenced") {
			t.Error(complaint)
		}
		if err := os.RemoveAll(b.path("state")); err != nil {
			t.Fatal(err)
		}
		if _, complaint := recovery(t, run.ExitFailed); !strings.Contains(complaint, "start the C-PS once") {
			t.Error(complaint)
		}
		if _, err := os.Stat(b.path("state")); err == nil {
			t.Error("a store was made")
		}
	})
}

// told tells whether its last session ended for a reason with a text.
func (f *played) told(text string) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return strings.Contains(f.why, text)
}

func (f *played) forget() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.why = ""
}
