// Package sci measures a service contact instance (SCI) and turns the measurements into the reports that its C-SMA
// collects: free slots, computing time and health of each service.
//
// It is a deterministic core. Reporter.Step takes what happened since the last call and gives back what to do: which
// services to check and which reports to send. The caller owns the clock, the sockets and the epoch on disk; the
// margay-sci daemon is one such caller, and a service that measures itself can be another.
//
// The rules are those of C-SMA section 4 with the choices of docs/by-reference.md sections 2 and 6.
package sci
