// Package cps is the core of the CATS Path Selector: the deterministic state machine that resolves a service request,
// selects an instance from computing and network state together, asks the PCE for the path, and owns the steering
// bindings (draft-zhangb-cats-centralized-control-plane-00, "CP").
//
// The core does no I/O and reads no clock. A shell feeds it events with Step and carries its effects out; each step of
// a new flow is one function, named after the draft: authenticate, resolve, select, request the path, verify the reply,
// commit the egress half, commit the ingress half.
//
// The forwarders hold the first copy of every binding. A core that starts empty rebuilds its bindings from them before
// it admits anything.
package cps
