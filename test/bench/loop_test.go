package main

import (
	"strings"
	"testing"

	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/testenv"
)

// testStage gives a stage that goes away with the test.
func testStage(t *testing.T) *stage {
	t.Helper()
	testenv.RequireRoot(t)
	s := newStage("test")
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func testInstruments(t *testing.T, s *stage) (generator, sink *namespace.Namespace) {
	t.Helper()
	generator, sink, err := instruments(s)
	if err != nil {
		t.Fatal(err)
	}
	return generator, sink
}

func TestLoopCountsEveryPacket(t *testing.T) {
	generator, sink := testInstruments(t, testStage(t))
	before, behind, err := wire(generator, "direct", sink, "direct")
	if err != nil {
		t.Fatal(err)
	}
	system := &ingress{name: "direct", in: behind, before: before, behind: behind, flows: 7}
	l, err := system.loop()
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for range 2 {
		if err := generator.Do(func() error { _, err := l.run(1000); return err }); err != nil {
			t.Fatal(err)
		}
	}
	c, err := l.count()
	if err != nil || c != (counted{Sent: 2000, Received: 2000}) {
		t.Errorf("counted %+v, %v", c, err)
	}
	if err := l.counts.Put(uint32(0), counted{Sent: 2000, Received: 1999}); err != nil {
		t.Fatal(err)
	}
	if err := generator.Do(func() error { _, err := l.run(1); return err }); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("after a loss the next run gives error %v", err)
	}
}

func TestMargayIngressIsWhatIsMeasured(t *testing.T) {
	s := testStage(t)
	generator, sink := testInstruments(t, s)
	margay, unload, err := newMargay(s, 1, generator, sink)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unload(); err != nil {
			t.Error(err)
		}
	}()
	if err := margay.check(); err != nil {
		t.Error(err)
	}
}

func TestBaselineWithoutItsFlowsIsInvalid(t *testing.T) {
	node, err := testStage(t).node("empty")
	if err != nil {
		t.Fatal(err)
	}
	n := &noCode{node: node}
	if err := n.checkFlows(1); err == nil || !strings.Contains(err.Error(), "invalid") {
		t.Errorf("error %v", err)
	}
	if err := n.checkFlows(0); err != nil {
		t.Error(err)
	}
}
