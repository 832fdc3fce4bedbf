// Package simulation runs the cores of a C-PS and its forwarders as one deterministic program: virtual time, links that
// lose, duplicate, delay and reorder, sessions that break, crashes, and clients that start flows. A seed decides
// everything, so that a printed seed replays a run exactly. After every step the world is held against its invariants
// (invariants.go).
//
// Only the shells are replaced here. That the real cores run unchanged proves that they are pure.
package simulation
