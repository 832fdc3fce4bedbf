// Package lab runs a whole Margay domain on one Linux machine: a network namespace for every client, forwarder, router,
// instance and control-plane role, joined by veth pairs, with a management network apart from the data network, and
// every role as a real process inside its namespace. One YAML file, a topology, describes all of it.
//
// Routers are the kernel's own SRv6 (seg6local End). Routes between the nodes of the core are static, hop by hop along
// the least delay of the topology, so that a segment list pins a path and the outer destination finds its way to the
// next segment. Link delays are what the C-NMA reports; the wires themselves add none.
//
// Several labs with different names live side by side. What a lab leaves on the machine is all under its name: the
// directory /run/margay/lab/<lab>, the namespaces mgy-<lab>-<node>, the pins /sys/fs/bpf/margay/<lab>-<forwarder>.
package lab
