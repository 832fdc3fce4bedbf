// Package forwarder is the core of a CATS-Forwarder, ingress and egress: it classifies packets that no binding covers,
// holds them in bounded pending records, asks the C-PS once per flow, carries the C-PS's bindings into the data plane
// and watches over their life (draft-zhangb-cats-centralized-control-plane-00 sections 8 to 11, cited as "CP").
//
// The core is a deterministic state machine: Core.Step takes the events of a moment and says in Effects what its shell
// has to do. It has no clock, socket, file or goroutine. One core is owned by one goroutine.
//
// The shell carries the parts of Effects out in the order of the fields: first persist, then change the data plane,
// then release and drop packets, then send. It never sees the octets of a packet: a held packet is a handle here.
package forwarder
