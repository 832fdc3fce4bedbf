// Package journal keeps what a forwarder core must find again after a restart of its agent, in an append-only file:
// binding records, the provision in force, what the agent counted, and the highest epoch seen per shard (CP sections 10
// and 13.2).
//
// Records, provision and totals live exactly as long as the pinned maps that they describe: they belong to one boot of the
// kernel and are written without fsync, since only the kernel's end can lose them. Epochs outlive every boot and are
// fsynced.
//
// The file is a sequence of frames: length (4 octets), CRC-32C of the body (4), body; numbers are in network order. A
// body is a kind (1) and what that kind needs. The first frame names the boot. What a crash cut short at the end is left
// out and reported; damage anywhere else is refused, since nobody could tell what was lost with it. The file is written
// anew, beside the old one, when it is opened and when it has grown.
package journal
