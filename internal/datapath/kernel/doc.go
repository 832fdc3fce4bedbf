// Package kernel is what the forwarder does to its network namespace through netlink, sysctls and raw sockets, all that
// its BPF programs need around them:
//
//   - Resolver gives the next hop of a segment, instance or client, and tells when it changes.
//   - Release is the private veth pair through which a held packet comes back into the XDP program.
//   - Proxy answers ARP and neighbour discovery for service addresses that no host owns.
//   - Check and Prepare look after the settings that the forwarder depends on.
//
// Everything works in the network namespace of the thread that calls the constructor (or the function); what a
// constructor opened stays there. It needs CAP_NET_ADMIN and CAP_NET_RAW, and Linux 6.1 or newer.
package kernel

// Protocol marks every route and every proxy neighbour entry that this package makes, so that it never touches one that
// it did not make. See /etc/iproute2/rt_protos: the number is in nobody's use there.
const Protocol = 109
