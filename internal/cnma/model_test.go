package cnma

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
)

// receiver is a C-PS by the rules of C-SMA sections 8.3 and 9: it discards what is not newer, takes a REFRESH that builds
// on the last update, and asks for a FULL otherwise.
type receiver struct {
	epoch, sequence uint64
	nodes           []cats.Node
	links           []cats.Link
	until           cats.Instant
}

func (r *receiver) take(now cats.Instant, u cats.NetworkUpdate) (ask bool) {
	newer := u.Epoch > r.epoch || u.Epoch == r.epoch && u.Sequence > r.sequence
	switch {
	case !newer:
		return false
	case u.Kind == cats.UpdateFull:
		r.nodes, r.links = u.Nodes, u.Links
	case u.Epoch != r.epoch || u.Base != r.sequence:
		return true
	}
	r.epoch, r.sequence, r.until = u.Epoch, u.Sequence, now.Add(u.TTL)
	return false
}

// Whatever breaks and is lost, a C-PS whose session then lasts has the topology of now within the gap between FULL updates,
// and never sees it expire.
func TestReceiverFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		core := New(Config{Name: "cnma-1", Epoch: 5, Refresh: refresh})
		var r receiver
		var out Effects
		now, session, open := start, uint64(0), false
		var in Events
		step := func(lossy bool) {
			asked := true
			for asked {
				core.Step(now, &in, &out)
				in, asked = Events{}, false
				for _, s := range out.Sends {
					if lossy && rapid.IntRange(0, 4).Draw(t, "lost") == 0 {
						continue
					}
					if open && s.Session == session && r.take(now, s.Update) {
						in = said("cps-1", session, cats.FeedbackNeedFull, r.epoch, r.sequence)
						asked = true
					}
				}
			}
		}
		connect := func() {
			session, open = session+1, true
			in = said("cps-1", session, cats.FeedbackHello, r.epoch, r.sequence)
		}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				in = reports(topology(rapid.Uint32Range(1, 3).Draw(t, "delay")))
			case 1:
				in, open = Events{Sessions: []SessionEvent{{Peer: "cps-1", Session: session, Closed: true}}}, false
			case 2:
				connect()
			case 3:
				r = receiver{} // restarted with an empty store
				connect()
			}
			step(true)
		}
		in = reports(topology(42))
		step(true)
		connect()
		step(false)
		for range 300 {
			now = now.Add(100 * time.Millisecond)
			step(false)
			if now > r.until {
				t.Fatalf("what the C-PS has expired")
			}
		}
		if !reflect.DeepEqual(r.nodes, core.nodes) || !reflect.DeepEqual(r.links, core.links) || r.links[0].DelayUS != 42 {
			t.Fatalf("the C-PS has %v and %v, the core %v and %v", r.nodes, r.links, core.nodes, core.links)
		}
	})
}
