package forwarder

import (
	"net/netip"
	"time"

	"github.com/margay-net/margay/cats"
)

// Config is what a core is made with. Attachments can be replaced later by Events.Attachments.
type Config struct {
	Name          string  // of this forwarder; equals its certificate's name
	BootID        string  // kernel boot, for ForwarderHello
	Identity      [8]byte // first half of every transaction made here; unique to this run of the agent
	LayoutVersion uint32  // of the pinned maps, for ForwarderHello
	Capabilities  cats.Capabilities
	ReturnSID     netip.Addr // segment that ends return paths here; the zero Addr where no client attaches
	Attachments   []Attachment
	Limits        Limits
}

// Attachment is a provisioned place where clients come in. A packet outside every attachment is dropped (CP section
// 1.2).
type Attachment struct {
	Name     string
	Tenant   string
	Prefixes []netip.Prefix // source addresses allowed there; none: every one
}

// Contains tells whether a client with this source address may come in at a.
func (a *Attachment) Contains(source netip.Addr) bool { return a.match(source) >= 0 }

// match gives the length of the longest prefix that holds source, -1 if none does.
func (a *Attachment) match(source netip.Addr) int {
	longest := -1
	if len(a.Prefixes) == 0 {
		longest = 0
	}
	for _, p := range a.Prefixes {
		if p.Contains(source) {
			longest = max(longest, p.Bits())
		}
	}
	return longest
}

// Limits bounds memory and time of a core; a zero field stands for its default (CP sections 8.1, 10 and 12).
type Limits struct {
	PendingDeadline  time.Duration // from the first packet to its release or drop; default 2 s
	PacketsPerFlow   int           // held packets of one pending flow; default 4
	OctetsPerFlow    int           // held octets of one pending flow; default 16 KiB
	Pending          int           // pending flows in all, and keys in hold-down; default 10,000
	PendingPerTenant int           // default 2,000
	PendingPerClient int           // a client is an IPv4 address or an IPv6 /64 of one attachment; default 100
	HoldDown         time.Duration // a refused key is not asked for again; default 1 s
	AnnounceLife     time.Duration // an announced request waits for its flow; default 10 s
	Announcements    int           // waiting announcements in all; default 10,000
	AnnouncedByOne   int           // waiting announcements of one authenticated caller; default 1,000
	TCPIdle          time.Duration // established, where the binding gives none; default 2 h 4 min (RFC 5382)
	TCPHalfOpen      time.Duration // before the first reverse packet; default 30 s
	TCPClosing       time.Duration // after a first FIN; default 10 s
	UDPIdle          time.Duration // where the binding gives none; default 300 s (RFC 4787)
	UDPUnanswered    time.Duration // before the first reverse packet; default 30 s
	Draining         time.Duration // DRAINING before a forwarder without C-PS removes alone; default 5 s
	Repeat           time.Duration // an unanswered report of an end is sent again; default 5 s
	CounterInterval  time.Duration // between counter reports of one binding; default 10 s
	Unreported       int           // removals remembered for a C-PS that is away; default 65,536
}

// WithDefaults gives l with every zero field set to its default.
func (l Limits) WithDefaults() Limits {
	or(&l.PendingDeadline, 2*time.Second)
	or(&l.PacketsPerFlow, 4)
	or(&l.OctetsPerFlow, 16<<10)
	or(&l.Pending, 10_000)
	or(&l.PendingPerTenant, 2_000)
	or(&l.PendingPerClient, 100)
	or(&l.HoldDown, time.Second)
	or(&l.AnnounceLife, 10*time.Second)
	or(&l.Announcements, 10_000)
	or(&l.AnnouncedByOne, 1_000)
	or(&l.TCPIdle, 2*time.Hour+4*time.Minute)
	or(&l.TCPHalfOpen, 30*time.Second)
	or(&l.TCPClosing, 10*time.Second)
	or(&l.UDPIdle, 300*time.Second)
	or(&l.UDPUnanswered, 30*time.Second)
	or(&l.Draining, 5*time.Second)
	or(&l.Repeat, 5*time.Second)
	or(&l.CounterInterval, 10*time.Second)
	or(&l.Unreported, 65_536)
	return l
}

func or[T comparable](field *T, otherwise T) {
	var zero T
	if *field == zero {
		*field = otherwise
	}
}
