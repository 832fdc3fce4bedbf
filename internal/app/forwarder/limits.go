package forwarder

import (
	"time"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/datapath"
	core "github.com/margay-net/margay/internal/forwarder"
)

// Limits bounds what waits and how long, as core.Limits says.
type Limits struct {
	PendingDeadline  time.Duration `yaml:"pending_deadline,omitempty"`
	PacketsPerFlow   int           `yaml:"packets_per_flow,omitempty"`
	OctetsPerFlow    int           `yaml:"octets_per_flow,omitempty"`
	Pending          int           `yaml:"pending,omitempty"`
	PendingPerTenant int           `yaml:"pending_per_tenant,omitempty"`
	PendingPerClient int           `yaml:"pending_per_client,omitempty"`
	HoldDown         time.Duration `yaml:"hold_down,omitempty"`
	AnnounceLife     time.Duration `yaml:"announce_life,omitempty"`
	Draining         time.Duration `yaml:"draining,omitempty"`
	TCPHalfOpen      time.Duration `yaml:"tcp_half_open,omitempty"`
	TCPClosing       time.Duration `yaml:"tcp_closing,omitempty"`
	UDPUnanswered    time.Duration `yaml:"udp_unanswered,omitempty"`
}

// The ranges of the limits. What is held of one flow has to have room for one packet.
const (
	leastWait, longestWait  = 10 * time.Millisecond, time.Minute // of a client's packet
	leastLife, longestLife  = time.Second, time.Hour             // of a flow or an announcement
	mostPackets             = 1024
	leastOctets, mostOctets = datapath.MaxFrame, 1 << 20
	mostFlows               = 1 << 20
)

// Validate finds a limit outside its range; 0 is its default.
func (l *Limits) Validate() []config.Problem {
	var problems []config.Problem
	for _, d := range []struct {
		key         string
		value       time.Duration
		least, most time.Duration
	}{
		{"pending_deadline", l.PendingDeadline, leastWait, longestWait},
		{"hold_down", l.HoldDown, leastWait, longestWait},
		{"announce_life", l.AnnounceLife, leastLife, longestLife},
		{"draining", l.Draining, leastLife, longestLife},
		{"tcp_half_open", l.TCPHalfOpen, leastLife, longestLife},
		{"tcp_closing", l.TCPClosing, leastLife, longestLife},
		{"udp_unanswered", l.UDPUnanswered, leastLife, longestLife},
	} {
		if d.value != 0 && (d.value < d.least || d.value > d.most) {
			problems = append(problems, config.At(d.key, "%s: need %s to %s, or 0 for the default", d.value, d.least, d.most))
		}
	}
	for _, n := range []struct {
		key                string
		value, least, most int
	}{
		{"packets_per_flow", l.PacketsPerFlow, 1, mostPackets},
		{"octets_per_flow", l.OctetsPerFlow, leastOctets, mostOctets},
		{"pending", l.Pending, 1, mostFlows},
		{"pending_per_tenant", l.PendingPerTenant, 1, mostFlows},
		{"pending_per_client", l.PendingPerClient, 1, mostFlows},
	} {
		if n.value != 0 && (n.value < n.least || n.value > n.most) {
			problems = append(problems, config.At(n.key, "%d: need %d to %d, or 0 for the default", n.value, n.least, n.most))
		}
	}
	return problems
}

func (l *Limits) core() core.Limits {
	return core.Limits{
		PendingDeadline: l.PendingDeadline, PacketsPerFlow: l.PacketsPerFlow, OctetsPerFlow: l.OctetsPerFlow,
		Pending: l.Pending, PendingPerTenant: l.PendingPerTenant, PendingPerClient: l.PendingPerClient,
		HoldDown: l.HoldDown, AnnounceLife: l.AnnounceLife, Draining: l.Draining,
		TCPHalfOpen: l.TCPHalfOpen, TCPClosing: l.TCPClosing, UDPUnanswered: l.UDPUnanswered,
	}.WithDefaults()
}
