// Package datapath is the XDP data plane of a forwarder: it loads the program of the bpf directory, attaches it to the
// forwarder's interfaces, keeps program, links and maps pinned, and turns the desired state of the forwarder core into
// map contents.
//
// The program goes on without this process: Close leaves everything pinned and attached, and the next Open takes it
// over without a packet lost. Only Unload detaches. Set methods replace the whole of what they set, adding before they
// remove, so that the running program never sees a gap.
//
// The methods of a Datapath that change something belong to one goroutine. ReadMisses may run on another, which Close
// ends; what only reads the maps (Counters, Usage, Entries, Paths, NextHops, Epochs) may run on any. Open, SetPorts and
// SetAttachments look interfaces up in the network namespace of the calling thread.
package datapath
