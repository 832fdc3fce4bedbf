package demo

import (
	"errors"
	"fmt"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/lab/capture"
)

// wire is the capture points of CP section 16: the client's link, both core routers on the side of IF-1, and both
// instances' links.
type wire struct {
	client, fast, slow, a, b *capture.Capture
}

func (s *stage) capture() (*wire, error) {
	w := &wire{}
	for _, point := range []struct {
		node, device string
		to           **capture.Capture
	}{{"client", "eth0", &w.client}, {"R1", "if1", &w.fast}, {"R2", "if1", &w.slow}, {"A", "eth0", &w.a}, {"B", "eth0", &w.b}} {
		node, err := s.lab.Node(point.node)
		if err == nil {
			err = node.Do(func() (err error) {
				*point.to, err = capture.Open(point.device)
				return err
			})
		}
		if err != nil {
			w.close()
			return nil, fmt.Errorf("capture at %s: %w", point.node, err)
		}
	}
	return w, nil
}

func (w *wire) close() {
	for _, c := range []*capture.Capture{w.client, w.fast, w.slow, w.a, w.b} {
		if c != nil {
			c.Close()
		}
	}
}

// settle waits until the answers of the conversation have been recorded at every point that they passed.
func (w *wire) settle(c *conversation) error {
	deadline := time.Now().Add(patience)
	for {
		_, delivered := find(w.client.Packets(), cats.Tuple{Protocol: cats.TCP, Source: service, Target: clientEnd}, false)
		if delivered && len(w.core(toClient)) > 0 && len(w.core(toInstance)) > 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("the captures do not show the conversation")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var (
	toInstance = cats.Tuple{Protocol: cats.TCP, Source: clientEnd, Target: instanceB}
	toClient   = toInstance.Reverse()
)

// core gives the encapsulated packets of one direction, at either router, that IF-1 sent or got.
func (w *wire) core(tuple cats.Tuple) []capture.Packet {
	var found []capture.Packet
	for _, c := range []*capture.Capture{w.fast, w.slow} {
		for _, p := range c.Packets() {
			if p.Tuple == tuple && p.Outer != nil {
				found = append(found, p)
			}
		}
	}
	return found
}

// find gives the first packet of a tuple in one direction.
func find(packets []capture.Packet, tuple cats.Tuple, outgoing bool) (capture.Packet, bool) {
	for _, p := range packets {
		if p.Tuple == tuple && p.Outgoing == outgoing {
			return p, true
		}
	}
	return capture.Packet{}, false
}

// count gives how many packets the filter takes.
func count(packets []capture.Packet, take func(*capture.Packet) bool) int {
	n := 0
	for i := range packets {
		if take(&packets[i]) {
			n++
		}
	}
	return n
}
