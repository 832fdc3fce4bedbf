// Package demo runs the end-to-end example of draft-zhangb-cats-centralized-control-plane-00 section 14 in a lab, step by
// step, and holds what was captured on the wire against what the draft says, and against Margay's own records where the
// draft leaves the value open.
package demo

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/operator/client"
)

// The example's values, from section 14 and Figure 4.
var (
	clientEnd = netip.MustParseAddrPort("192.0.2.10:51000")
	service   = netip.MustParseAddrPort("192.0.2.100:443")
	instanceB = netip.MustParseAddrPort("198.51.100.21:443")
)

const (
	serviceID = "S1"
	ingress   = "IF-1"
	egress    = "EF-2"
	maxDelay  = "20ms"
)

// Run brings the example up, plays its seven steps, writes them to out, and takes it down again. Any difference from the
// draft is an error.
func Run(ctx context.Context, out io.Writer) (err error) {
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		return err
	}
	began := time.Now()
	fmt.Fprintln(out, "Bringing up the lab of section 14: client, IF-1, R1, R2, EF-1, EF-2, A, B, and the control plane.")
	l, err := lab.Up(ctx, lab.Options{Topology: topology, Name: fmt.Sprintf("demo-%d", os.Getpid())})
	if err != nil {
		return err
	}
	defer func() { err = lab.Interrupted(ctx, err, l.Down()) }()
	domain, err := client.Load(l.OperatorConfig(), patience)
	if err != nil {
		return err
	}
	s := &stage{lab: l, domain: domain, out: out, ctx: ctx}
	if err := s.play(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	fmt.Fprintf(out, "\nEvery packet is as section 14 says (%d comparisons, %s).\n", s.compared, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// stage is one run of the example.
type stage struct {
	ctx    context.Context
	lab    *lab.Lab
	domain *client.Domain
	out    io.Writer
	report
}

// The verbs of the example.
var (
	explainVerb = []string{"explain", serviceID, "--ingress", ingress, "--max-delay", maxDelay, "--source", clientEnd.String(), "--target", service.String()}
	requestVerb = []string{
		"request", "--ingress", ingress, "--source", clientEnd.String(), "--target", service.String(), "--cs-id", serviceID, "--max-delay", maxDelay,
	}
)

// play is section 14 from the first packet to the later ones.
func (s *stage) play() error {
	if err := s.waitUntilEligible(); err != nil {
		return err
	}
	explained, err := s.margay(explainVerb...)
	if err != nil {
		return err
	}
	wire, err := s.capture()
	if err != nil {
		return err
	}
	defer wire.close()
	announced, err := s.margay(requestVerb...)
	if err != nil {
		return err
	}
	before, err := s.counters()
	if err != nil {
		return err
	}
	conversation, err := s.converse()
	if err != nil {
		return err
	}
	binding, err := s.binding()
	if err != nil {
		return err
	}
	after, err := s.counters()
	if err != nil {
		return err
	}
	if err := wire.settle(conversation); err != nil {
		return err
	}
	s.narrate(announced, wire, conversation, binding, before, after)
	s.write(s.out)
	fmt.Fprintf(s.out, "\nWhat the C-PS said before the first packet:\n%s\n%s", prompt(explainVerb), explained)
	if len(s.differs) > 0 {
		return fmt.Errorf("%d of %d comparisons differ: %v", len(s.differs), s.compared, s.differs)
	}
	return nil
}

// prompt shows a verb as it is typed.
func prompt(verb []string) string { return "$ margay " + strings.Join(verb, " ") }
