// Package forwarder is the composition root of margay-forwarder: it puts the forwarder core between the XDP data plane,
// the session with the C-PS, and those who announce flows or look in.
//
// One goroutine, that of Run, owns the core, the data plane and the journal. Others read held packets, keep the session
// and answer calls; they hand over what they have through bounded queues and wait when those are full.
//
// When the process ends, however it ends, the data plane goes on with everything that is in force. The next run finds
// the journal and the pinned maps, makes the one agree with the other, and takes over without a packet lost.
package forwarder
