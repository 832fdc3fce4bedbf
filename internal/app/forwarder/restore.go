package forwarder

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	core "github.com/margay-net/margay/internal/forwarder"
)

// adopt learns which numbers of paths and next hops the data plane uses already, so that what is in force keeps its own
// and nothing else gets them. What nothing refers to in the end, sweep removes.
func (r *routes) adopt(entries []datapath.Entry) error {
	r.adopting = true
	hops, err := r.plane.NextHops()
	if err != nil {
		return err
	}
	for id := range hops {
		r.hopIDs.claim(id)
	}
	for _, e := range entries {
		if e.Key.Kind == datapath.IngressReverse {
			r.adoptHop(e.Key.Tuple.Target.Addr(), e.NextHop)
		}
	}
	found, err := r.plane.Paths()
	if err != nil {
		return err
	}
	for id, p := range found {
		r.pathID.claim(id)
		key, known := pathKey(p.Kind, p.Segments), &path{id: id}
		if p.Kind == cats.PathSRv6 {
			known.first = p.Segments[0]
			r.adoptHop(known.first, p.NextHop)
		}
		if known.first.IsValid() && p.Source != r.source || r.paths[key] != nil {
			key = fmt.Sprintf("left %d", id) // of another configuration: bindings move away from it
		}
		r.paths[key] = known
	}
	return nil
}

func (r *routes) adoptHop(destination netip.Addr, id uint32) {
	if _, known := r.left[destination]; id != 0 && !known {
		r.hopIDs.claim(id)
		r.left[destination] = id
	}
}

// sweep removes the paths and next hops of an earlier run that nothing refers to.
func (r *routes) sweep() error {
	r.adopting = false
	for key, p := range r.paths {
		if p.uses == 0 {
			r.endPath(key, p)
		}
	}
	used := make(map[uint32]bool)
	for destination, h := range r.hops {
		if h.uses == 0 {
			r.endHop(destination, h)
			continue
		}
		used[h.id] = true
	}
	clear(r.left)
	var errs []error
	for id := range r.hopIDs.taken {
		if !used[id] {
			errs = append(errs, r.plane.PutNextHop(id, datapath.NextHop{}))
			r.hopIDs.put(id)
		}
	}
	return errors.Join(append(errs, r.fault)...)
}

// agree makes the data plane agree with the records: an entry without record is removed, a record whose entries are
// missing or differ is installed, and what agrees is not touched. It gives the records that are in force then.
func (h *halves) agree(now cats.Instant, records []core.Record, found []datapath.Entry, log *slog.Logger) ([]core.Record, error) {
	have, err := h.removeStrays(records, found)
	if err != nil {
		return nil, err
	}
	var kept []core.Record
	for i := range records {
		r := &records[i]
		if err := h.reinstate(now, r, have); err != nil {
			err = errors.Join(err, h.abandon(r, have))
			log.Error("a binding of the last run cannot be put back into the data plane; its flow ends",
				"transaction", r.Binding.Transaction.String(), "half", r.Half.String(), "error", err)
			continue
		}
		kept = append(kept, *r)
	}
	return kept, nil
}

// removeStrays removes every entry that no record asks for, and gives the others.
func (h *halves) removeStrays(records []core.Record, found []datapath.Entry) (map[datapath.Key]datapath.Entry, error) {
	owner := make(map[datapath.Key]cats.Transaction, 2*len(records))
	for i := range records {
		for _, e := range entries(records[i].Half, &records[i].Binding, 0, 0, false) {
			owner[e.Key] = e.Transaction
		}
	}
	have := make(map[datapath.Key]datapath.Entry, len(found))
	var strays []datapath.Key
	for _, e := range found {
		if t, ok := owner[e.Key]; ok && t == e.Transaction {
			have[e.Key] = e
		} else {
			strays = append(strays, e.Key)
		}
	}
	return have, h.plane.Remove(strays)
}

func (h *halves) reinstate(now cats.Instant, r *core.Record, have map[datapath.Key]datapath.Entry) error {
	wanted, undo, err := h.prepare(now, r.Half, &r.Binding, r.Draining)
	if err != nil {
		return err
	}
	if have[wanted[0].Key] != wanted[0] || have[wanted[1].Key] != wanted[1] {
		if err := h.plane.Install(wanted); err != nil {
			undo()
			return err
		}
	}
	h.note(r.Half, &r.Binding, wanted)
	return nil
}

// abandon removes what is there of a half that cannot be put back, so that nothing refers to its path and next hop.
func (h *halves) abandon(r *core.Record, have map[datapath.Key]datapath.Entry) error {
	var keys []datapath.Key
	for _, e := range entries(r.Half, &r.Binding, 0, 0, false) {
		if have[e.Key].Transaction == r.Binding.Transaction {
			keys = append(keys, e.Key)
		}
	}
	return h.plane.Remove(keys)
}
