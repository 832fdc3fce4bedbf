package datapath

import (
	"errors"
	"net/netip"

	"github.com/margay-net/margay/cats"
)

// Limits of the data plane.
const (
	// MaxSegments is the deepest SRv6 segment list that can be pushed: XDP gives 256 octets of headroom, of which veth
	// leaves 216, and an outer header takes 48 + 16 n octets (40 where n is 1) beside a VLAN tag.
	MaxSegments = 10
	// MaxFrame is the longest frame, in octets, that can be held; a longer one that misses is dropped as too-big.
	MaxFrame = 2048
	// ReleaseOverhead is what ReleaseFrame puts in front of a frame, in octets. The private veth needs an MTU of at
	// least MaxFrame + ReleaseOverhead - 14.
	ReleaseOverhead = 20
)

// ErrClosed is returned by ReadMisses once the Datapath is closed.
var ErrClosed = errors.New("data plane is closed")

// ErrNotInstalled tells that a key has no binding of the given transaction.
var ErrNotInstalled = errors.New("no such binding in the data plane")

// Config is what Open needs to know. Capacities are fixed when the pinned maps are made.
type Config struct {
	// PinDir is this forwarder's own directory on a BPF file system, such as /sys/fs/bpf/margay/IF-1. The directory is
	// made if absent, and /sys/fs/bpf is mounted if it is not.
	PinDir string
	// Ports are the interfaces that the program is attached to, in the network namespace of the calling thread.
	Ports []Port
	// Bindings is how many bindings fit; a binding takes at most two entries here, of some 270 octets each, whether used
	// or not: 65,536 take 34 MiB, 2,000,000 (4,000,000 entries) 1.0 GiB. Zero: 65,536.
	Bindings uint32
	// Paths is one above the highest path id. Zero: 4,096.
	Paths uint32
	// NextHops is one above the highest next-hop id. Zero: 65,536.
	NextHops uint32
	// RingOctets is the size of the ring buffer of held packets, a power of two and a multiple of the page size. Zero:
	// 8 MiB, which holds some 25,000 TCP SYNs.
	RingOctets uint32
}

// Role is a set of the things that an interface is for.
type Role uint32

// The roles of a port. One with the core role is inside the SR domain: a packet is decapsulated only there. On the others
// segment routing headers, and packets to segments of any node, are refused (see SetDomainBlock).
const (
	RoleClient   Role = 1 << iota // has client attachments
	RoleCore                      // toward the network
	RoleInstance                  // toward service instances
	RoleRelease                   // the program's end of the private veth that held packets come back by
)

// Port is an interface that the program is attached to.
type Port struct {
	Name string
	Role Role
}

// Mode tells where in the kernel the program runs on an interface.
type Mode uint8

// The modes. Native is the driver's; generic, slower, serves a driver that has none.
const (
	ModeNative Mode = iota + 1
	ModeGeneric
)

// String gives native or generic.
func (m Mode) String() string {
	switch m {
	case ModeNative:
		return "native"
	case ModeGeneric:
		return "generic"
	}
	return "detached"
}

// PortStatus is a Port as it is attached.
type PortStatus struct {
	Port
	Index int // interface index
	Mode  Mode
}

// Attachment is a place where clients come in (CP section 1.2): an interface, a VLAN, and the sources that belong to it.
type Attachment struct {
	Name      string         // AttachmentID(Name) is the number that keys carry
	Interface string         // a port with RoleClient
	VLAN      uint16         // 0: untagged
	Prefixes  []netip.Prefix // longest wins among the attachments of one interface and VLAN
}

// Delivery is an egress attachment (CP section 9): what arrives for SID, and is addressed to Locator, and has an
// EgressForward entry, is handed to NextHop.
type Delivery struct {
	SID     netip.Addr
	Locator cats.Locator
	NextHop uint32 // id of the instance's next hop; 0: the kernel's routing and neighbours find it
}

// Path is how packets of bindings leave toward the other forwarder.
type Path struct {
	Kind     cats.PathKind // PathSRv6 or PathNative
	Source   netip.Addr    // outer IPv6 source; for PathSRv6
	Segments []netip.Addr  // SIDs in travel order, 1 to MaxSegments; for PathSRv6. One segment is pushed without an SRH
	NextHop  uint32        // id; 0: the kernel's routing and neighbours find it, by the outer destination
}

// MAC is an Ethernet address.
type MAC [6]byte

// NextHop is a resolved neighbour.
type NextHop struct {
	Interface int    // index of the output interface; 0: unresolved, the kernel forwards and resolves instead
	Source    MAC    // of the output interface
	Target    MAC    // of the neighbour
	VLAN      uint16 // tag to push; 0: none
	MTU       uint16 // of the output interface, octets of IP; 0: not checked
}

// Kind tells which half of a binding an entry is, and on which forwarder.
type Kind uint8

// The kinds of entry. Each names the tuple that its Key carries.
const (
	IngressForward Kind = iota // client → service address: rewritten to the locator, sent along Path
	IngressReverse             // locator → client: the source becomes the service address again, sent to NextHop
	EgressForward              // client → locator: delivered to the instance
	EgressReverse              // locator → client: sent to the owner along Path
	kindCount
)

// String gives ingress-forward, ingress-reverse, egress-forward or egress-reverse.
func (k Kind) String() string {
	switch k {
	case IngressForward:
		return "ingress-forward"
	case IngressReverse:
		return "ingress-reverse"
	case EgressForward:
		return "egress-forward"
	case EgressReverse:
		return "egress-reverse"
	}
	return "invalid"
}

// Key is what a packet is matched by.
type Key struct {
	Kind       Kind
	Attachment uint32 // AttachmentID of the client attachment for IngressForward; 0 for all others
	Tuple      cats.Tuple
}

// Entry is one half of a binding in the data plane.
type Entry struct {
	Key         Key
	Transaction cats.Transaction
	Shard       cats.Shard
	Epoch       cats.Epoch
	Version     uint32
	Service     uint32         // the catalogue's number
	Rewrite     netip.AddrPort // IngressForward: the locator. IngressReverse: the client-visible source. Others: unset
	Path        uint32         // id; IngressForward and EgressReverse. An id without a path drops packets as no-path
	NextHop     uint32         // id; IngressReverse: the client's. 0: the kernel's routing and neighbours find it
	Draining    bool           // passes, but refreshes nothing, and a new SYN of the key is held
}

// Usage is what an entry has seen.
type Usage struct {
	Key         Key
	Transaction cats.Transaction
	Packets     uint64
	Octets      uint64 // of IP, without encapsulation
	LastSeen    int64  // CLOCK_MONOTONIC ns (see Monotonic), 10 ms early to 5 ms late; the time of Install if nothing came
	FIN         bool   // a TCP FIN passed in this direction
	RST         bool   // a TCP RST passed in this direction
	Draining    bool
}

// Miss is a packet that the program holds out of the network: to a service address or an announced tuple, from a client
// attachment, and without a binding.
type Miss struct {
	Key       Key    // Kind is IngressForward
	Service   uint32 // number of the service rule that matched; 0 where only an announcement did
	Interface int    // index of the interface that it came in on
	VLAN      uint16
	TCPFlags  uint8  // the flags octet of the TCP header; 0 for UDP
	Over      bool   // the key has an entry that drains, or that a FIN or RST of the client has passed
	Received  int64  // CLOCK_MONOTONIC ns, within 10 ms
	Frame     []byte // from the Ethernet header on, as received; the caller's to keep
}

// Traffic counts packets and octets (of IP, without encapsulation).
type Traffic struct {
	Packets uint64
	Octets  uint64
}

// Counters are totals since the pinned maps were made.
type Counters struct {
	Drops      map[cats.Reason]uint64 // every reason that the program can give is present
	Forwarded  [kindCount]Traffic     // by Kind
	Passed     Traffic                // left to the kernel untouched; octets are of whole frames
	Held       Traffic                // given to ReadMisses
	Unresolved Traffic                // of Forwarded: left to the kernel to find the next hop
}
