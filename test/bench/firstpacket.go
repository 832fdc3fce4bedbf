package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/lab"
)

// How much the area firstpacket measures.
const (
	firstBatches = 10                    // each gives one value of every percentile: the spread
	firstFlows   = 200                   // of a batch
	firstPace    = 10 * time.Millisecond // from flow to flow
	firstPort    = 10_000                // source port of the first flow; every flow has its own
	firstSlots   = 10 * firstBatches * firstFlows
)

// lane is a lab in which new flows are measured.
type lane struct {
	name     string
	lab      *lab.Lab
	arrivals *arrivals
	delays   []delays // of each batch
}

// delays are the µs that packets of flows took from the client's send to the instance's receipt.
type delays struct{ first, established []float64 }

// added gives what each flow's first packet took longer than its established one.
func (d delays) added() []float64 {
	all := make([]float64, len(d.first))
	for i := range all {
		all[i] = d.first[i] - d.established[i]
	}
	return all
}

// firstPacketArea measures what the first packet of a flow takes longer than a later one: in a lab with all of Margay's
// daemons, and in one of the same network with the no-code baseline, flow by flow in turn.
func firstPacketArea(ctx context.Context, b *bench) (results []Result, err error) {
	restore, err := prepareNetfilter(firstBatches*firstFlows+1, b.note)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	margay, err := b.newLane(ctx, "Margay", "m", lab.Everything)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, margay.close()) }()
	kernel, err := b.newLane(ctx, "the no-code baseline", "n", lab.ServicesAlone)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kernel.close()) }()
	baseline, err := kernel.installNoCode()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kernel.name, err)
	}
	lanes := []*lane{margay, kernel}
	for _, l := range lanes {
		if err := l.warmUp(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	for batch := range firstBatches {
		if err := measureBatch(ctx, lanes, firstPort+batch*firstFlows); err != nil {
			return nil, err
		}
		if err := baseline.checkFlows(1 + (batch+1)*firstFlows); err != nil {
			return nil, err
		}
	}
	return firstPacketResults(margay.delays, kernel.delays), nil
}

// newLane brings the example up with room for all flows at once.
func (b *bench) newLane(ctx context.Context, name, short string, extent lab.Extent) (*lane, error) {
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		return nil, err
	}
	for i := range topology.Deployments {
		topology.Deployments[i].Slots = firstSlots
	}
	up, err := lab.Up(ctx, lab.Options{
		Topology: topology, Name: fmt.Sprintf("bench%d%s", os.Getpid(), short), Extent: extent, Programs: b.programs,
	})
	if err != nil {
		return nil, err
	}
	l := &lane{name: name, lab: up}
	if l.arrivals, err = openArrivals(up, "A", "B"); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lane) close() error {
	var err error
	if l.arrivals != nil {
		err = l.arrivals.close()
	}
	return errors.Join(err, l.lab.Down())
}

// installNoCode makes the lab's network steer to instance B by the kernel's own parts, over the path that Margay takes.
func (l *lane) installNoCode() (*noCode, error) {
	nodes := map[string]*lab.Node{}
	for _, name := range []string{"client", "IF-1", "EF-2"} {
		n, err := l.lab.Node(name)
		if err != nil {
			return nil, err
		}
		nodes[name] = n
	}
	n := &noCode{
		node: nodes["IF-1"].Namespace(), protocol: cats.UDP, service: service, instance: instance, source: ingressSource, segments: segments,
		core: "core1", returns: returnSID, client: client.Addr(),
	}
	err := errors.Join(
		n.setUp(),
		// No flow of this run may be forgotten before it is counted.
		nodes["IF-1"].Do(func() error { return writeSysctl("netfilter/nf_conntrack_udp_timeout", "600") }),
		nodes["client"].Do(func() error { return routeVia(service.Addr(), netip.MustParseAddr("192.0.2.1"), "eth0") }),
		nodes["EF-2"].Do(func() error {
			return errors.Join(
				tunnelSource(egressSource),
				decapsulate(segments[1], instance.Addr(), "core1"),
				encapsulate(client.Addr(), []netip.Addr{segments[0], returnSID}, "core1"),
			)
		}),
	)
	return n, err
}

// warmUp sends on one flow until its packets reach an instance and come back: the domain has learned its metrics, and
// every neighbour is resolved.
func (l *lane) warmUp(ctx context.Context) error {
	flows, err := l.openFlows(firstPort-1, 1)
	if err != nil {
		return err
	}
	defer flows.close()
	for limit := time.Now().Add(30 * time.Second); ; {
		_, err := l.arrivals.measure(flows[0], 200*time.Millisecond)
		if err == nil {
			err = flows[0].awaitReply(200 * time.Millisecond)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("the lab's first flow: %w", err)
		}
	}
}

// measureBatch measures new flows in every lane in turn, at the pace.
func measureBatch(ctx context.Context, lanes []*lane, port int) (err error) {
	flows := make([]flows, len(lanes))
	for i, l := range lanes {
		if flows[i], err = l.openFlows(port, firstFlows); err != nil {
			return err
		}
		defer flows[i].close()
		l.delays = append(l.delays, delays{})
	}
	pace := time.NewTicker(firstPace)
	defer pace.Stop()
	for f := range firstFlows {
		for i, l := range lanes {
			d := &l.delays[len(l.delays)-1]
			if err := l.measureFlow(flows[i][f], d); err != nil {
				return fmt.Errorf("%s: flow %d: %w", l.name, port-firstPort+f+1, err)
			}
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// measureFlow measures the first packet of a flow, and one more when the first one's answer is back.
func (l *lane) measureFlow(f flow, d *delays) error {
	const limit = 3 * time.Second
	for _, to := range []*[]float64{&d.first, &d.established} {
		took, err := l.arrivals.measure(f, limit)
		if err == nil {
			err = f.awaitReply(limit)
		}
		if err != nil {
			return err
		}
		*to = append(*to, float64(took)/float64(time.Microsecond))
	}
	return nil
}

// firstPacketResults makes results of the delays of every batch.
func firstPacketResults(margay, noCode []delays) []Result {
	first := func(d delays) []float64 { return d.first }
	established := func(d delays) []float64 { return d.established }
	results := []Result{
		overBatches("firstpacket.p50_us", margay, delays.added, 50),
		overBatches("firstpacket.p99_us", margay, delays.added, 99),
		overBatches("firstpacket.first_p50_us", margay, first, 50),
		overBatches("firstpacket.established_p50_us", margay, established, 50),
		overBatches("firstpacket.nocode_p50_us", noCode, delays.added, 50),
		overBatches("firstpacket.nocode_p99_us", noCode, delays.added, 99),
		overBatches("firstpacket.nocode_first_p50_us", noCode, first, 50),
		overBatches("firstpacket.nocode_established_p50_us", noCode, established, 50),
	}
	const toBaseline = 4 // from a result of Margay to the baseline's
	for i := range toBaseline {
		if to := results[i+toBaseline]; to.Value > 0 { // what is within the noise of nothing has no ratio to it
			results[i].RatioTo, results[i].Ratio = to.Name, results[i].Value/to.Value
		}
	}
	return results
}

// overBatches gives the percentile over all flows, and its spread over the batches.
func overBatches(name string, batches []delays, of func(delays) []float64, percent float64) Result {
	var all, each []float64
	for _, b := range batches {
		all = append(all, of(b)...)
		each = append(each, percentile(of(b), percent))
	}
	return summary(name, "us", percentile(all, percent), each)
}
