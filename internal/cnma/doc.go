// Package cnma is the core of the CATS Network Metric Agent: it keeps the topology that its sources report and decides
// what each C-PS is told of it, and when (CP section 5; the update semantics are those of C-SMA sections 8.3 and 9).
//
// Every C-PS gets the whole topology as a FULL update when its session opens, when the topology changes and when it asks,
// and between those a REFRESH that keeps what it has alive. A C-PS that kept what it was sent last over a broken session
// gets a REFRESH alone. The core does no I/O and reads no clock: Step takes what happened and gives what to send.
package cnma
