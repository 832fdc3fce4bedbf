package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/lab"
)

// How much the area conn measures.
const (
	connRuns   = 5      // of each system, in turn
	connEach   = 20_000 // connections of a run
	connWindow = 256    // under way at once
	connPort   = 10_000 // source port of the first connection of each address
	connHosts  = 16     // addresses of the client: the limits are per client
	connTotal  = connHosts + (connRuns+1)*connEach
)

// The TCP service of the example, and where its instances listen.
var (
	connService   = netip.MustParseAddrPort("192.0.2.100:443")
	connInstances = map[string]netip.AddrPort{
		"A": netip.MustParseAddrPort("198.51.100.11:443"), "B": netip.MustParseAddrPort("198.51.100.21:443"),
	}
)

// connSources are the addresses that connections come from; the attachment of the example admits them.
func connSources() (all []netip.Addr) {
	for a := netip.MustParseAddr("192.0.2.20"); len(all) < connHosts; a = a.Next() {
		all = append(all, a)
	}
	return all
}

// connLane is a lab in which connections are measured.
type connLane struct {
	name      string
	lab       *lab.Lab
	servers   []*server
	generator *generator

	rates       []float64 // per second, of each run
	took        []float64 // µs, of each connection
	retransmits int       // segments that the client sent again
}

// connArea measures TCP connections, each with a request and a response, through a lab with all of Margay's daemons, and
// through one of the same network with the no-code baseline. No run may lose a connection.
func connArea(ctx context.Context, b *bench) (results []Result, err error) {
	restore, err := prepareNetfilter(connTotal, b.note)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	margay, err := b.newConnLane(ctx, "Margay", "cm", lab.Everything)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, margay.close()) }()
	kernel, err := b.newConnLane(ctx, "the no-code baseline", "ck", lab.NetworkAlone)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kernel.close()) }()
	baseline, err := kernel.installNoCode()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kernel.name, err)
	}
	lanes := []*connLane{margay, kernel}
	for _, l := range lanes {
		if err := l.warmUp(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	for run := range connRuns + 1 {
		for place := range lanes {
			l := lanes[(place+run)%len(lanes)] // none always comes first
			if err := l.run(ctx, run > 0); err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			b.note("conn: %s: run %d of %d", l.name, run, connRuns)
		}
		if err := baseline.checkFlows(kernel.generator.serial); err != nil {
			return nil, err
		}
	}
	return connResults(margay, kernel), nil
}

// newConnLane brings the example up with its TCP service alone, and puts servers of the bench in place of the lab's.
func (b *bench) newConnLane(ctx context.Context, name, short string, extent lab.Extent) (*connLane, error) {
	topology, err := lab.LoadTopology(lab.ExampleName)
	if err != nil {
		return nil, err
	}
	topology.Services = slices.DeleteFunc(topology.Services, func(s lab.ServiceSpec) bool { return s.CSID != "S1" })
	topology.Deployments = slices.DeleteFunc(topology.Deployments, func(d lab.Deployment) bool { return d.CSID != "S1" })
	for i := range topology.Deployments {
		topology.Deployments[i].Slots = 10 * connTotal // a slot is held until its flow has been forgotten
	}
	for i := range topology.Nodes {
		if topology.Nodes[i].Role == lab.Forwarder {
			topology.Nodes[i].Bindings = 1 << 20
		}
	}
	up, err := lab.Up(ctx, lab.Options{
		Topology: topology, Name: fmt.Sprintf("bench%d%s", os.Getpid(), short), Extent: extent, Programs: b.programs,
	})
	if err != nil {
		return nil, err
	}
	l := &connLane{name: name, lab: up}
	if err := l.prepare(extent); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *connLane) prepare(extent lab.Extent) error {
	for name, at := range connInstances {
		node, err := l.lab.Node(name)
		if err != nil {
			return err
		}
		if extent == lab.Everything {
			if err := l.lab.Stop("service-" + name); err != nil {
				return err
			}
		}
		s, err := serve(node.Do, at)
		if err != nil {
			return err
		}
		l.servers = append(l.servers, s)
	}
	return l.atClient(func() (err error) {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for _, a := range connSources() {
			if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, 24))}); err != nil {
				return fmt.Errorf("address %s: %w", a, err)
			}
		}
		l.generator, err = newGenerator(connService, connSources(), connWindow, connPort)
		return err
	})
}

func (l *connLane) close() error {
	var failed []error
	if l.generator != nil {
		failed = append(failed, l.generator.close())
	}
	for _, s := range l.servers {
		failed = append(failed, s.close())
	}
	return errors.Join(append(failed, l.lab.Down())...)
}

func (l *connLane) atClient(f func() error) error {
	node, err := l.lab.Node("client")
	if err != nil {
		return err
	}
	return node.Do(f)
}

// installNoCode makes the lab's network steer to instance B by the kernel's own parts, over the path that Margay takes.
func (l *connLane) installNoCode() (*noCode, error) {
	ingress, err := l.lab.Node("IF-1")
	if err != nil {
		return nil, err
	}
	egress, err := l.lab.Node("EF-2")
	if err != nil {
		return nil, err
	}
	at := connInstances["B"]
	n := &noCode{
		node: ingress.Namespace(), protocol: cats.TCP, service: connService, instance: at, source: ingressSource,
		segments: segments, core: "core1", returns: returnSID, client: client.Addr(),
	}
	err = errors.Join(
		n.setUp(),
		// No flow of this run may be forgotten before it is counted.
		ingress.Do(func() (err error) {
			for _, state := range []string{"time_wait", "last_ack", "close_wait", "fin_wait", "close"} {
				err = errors.Join(err, writeSysctl("netfilter/nf_conntrack_tcp_timeout_"+state, "600"))
			}
			return err
		}),
		l.atClient(func() error { return routeVia(connService.Addr(), netip.MustParseAddr("192.0.2.1"), "eth0") }),
		egress.Do(func() error {
			err := errors.Join(tunnelSource(egressSource), decapsulate(segments[1], at.Addr(), "core1"))
			for _, a := range connSources() {
				err = errors.Join(err, encapsulate(a, []netip.Addr{segments[0], returnSID}, "core1"))
			}
			return err
		}),
	)
	return n, err
}

// warmUp opens one connection from every address: the domain knows its metrics, and every neighbour is resolved.
func (l *connLane) warmUp(ctx context.Context) error {
	for limit := time.Now().Add(30 * time.Second); ; {
		err := l.atClient(func() error {
			_, err := l.generator.run(ctx, connHosts)
			return err
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("the lab's first connections: %w", err)
		}
	}
}

// run makes the connections of one run.
func (l *connLane) run(ctx context.Context, counts bool) error {
	return l.atClient(func() error {
		before, err := retransmitted()
		if err != nil {
			return err
		}
		begun := time.Now()
		took, err := l.generator.run(ctx, connEach)
		if err != nil {
			return err
		}
		elapsed := time.Since(begun)
		after, err := retransmitted()
		if err != nil || !counts {
			return err
		}
		l.rates = append(l.rates, connEach/elapsed.Seconds())
		l.took = append(l.took, took...)
		l.retransmits += after - before
		return nil
	})
}

// retransmitted gives how many TCP segments the namespace of this thread has sent again.
func retransmitted() (int, error) {
	data, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, fmt.Errorf("TCP statistics: %w", err)
	}
	var names [][]byte
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || string(fields[0]) != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		if i := slices.IndexFunc(names, func(n []byte) bool { return string(n) == "RetransSegs" }); i > 0 && i < len(fields) {
			return strconv.Atoi(string(fields[i]))
		}
	}
	return 0, errors.New("TCP statistics: there is no RetransSegs")
}

// connResults makes results of the runs.
func connResults(margay, kernel *connLane) []Result {
	rate, base := median(margay.rates), median(kernel.rates)
	versus := summary("conn.vs_kernel", "x", rate/base, quotients(margay.rates, kernel.rates))
	versus.RatioTo, versus.Ratio = "conn.nocode_per_s", rate/base
	whole := func(name, unit string, value float64) Result {
		return Result{Name: name, Unit: unit, Value: value, Runs: connRuns, Min: value, Max: value}
	}
	return []Result{
		summary("conn.per_s", "1/s", rate, margay.rates),
		versus,
		summary("conn.nocode_per_s", "1/s", base, kernel.rates),
		whole("conn.p50_us", "us", percentile(margay.took, 50)),
		whole("conn.p99_us", "us", percentile(margay.took, 99)),
		whole("conn.retransmits", "segments", float64(margay.retransmits)),
		whole("conn.nocode_p50_us", "us", percentile(kernel.took, 50)),
		whole("conn.nocode_p99_us", "us", percentile(kernel.took, 99)),
		whole("conn.nocode_retransmits", "segments", float64(kernel.retransmits)),
	}
}
