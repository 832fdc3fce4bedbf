package forwarder

import (
	"github.com/margay-net/margay/internal/datapath"
)

// held is the packets that the core has handles of. Their number is bounded by the core's limits, and by what one Step
// takes in.
type held struct {
	frames map[uint64]frame
	handle uint64 // latest
}

// frame is a held packet as it came in.
type frame struct {
	from   int // interface index
	octets []byte
}

func (h *held) put(m *datapath.Miss) (handle uint64) {
	h.handle++
	h.frames[h.handle] = frame{m.Interface, m.Frame}
	return h.handle
}

func (h *held) take(handle uint64) frame {
	f := h.frames[handle]
	delete(h.frames, handle)
	return f
}
