package forwarder

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	core "github.com/margay-net/margay/internal/forwarder"
)

// halfKey names one half of a binding.
type halfKey struct {
	transaction cats.Transaction
	half        cats.Half
}

// halves puts halves of bindings into the data plane: each is two entries, one a direction, and refers to a path and at
// the ingress to the client's next hop.
type halves struct {
	plane  *datapath.Datapath
	routes *routes
	placed map[halfKey]*placed
}

// placed is a half that is in the data plane.
type placed struct {
	binding cats.Binding
	keys    [2]datapath.Key // forward, reverse

	// What the last scan saw.
	forward, reverse           cats.Usage
	forwardFlags, reverseFlags core.TCPFlags
	lastSeen                   int64
	scanned                    bool
	changed                    bool
}

// headPath gives the path that a half sends packets into the network by.
func headPath(half cats.Half, b *cats.Binding) *cats.Path {
	if half == cats.IngressHalf {
		return &b.Path
	}
	return &b.Reverse.Path
}

// entries gives the two entries of a half: forward and reverse.
func entries(half cats.Half, b *cats.Binding, path, clientHop uint32, draining bool) []datapath.Entry {
	common := datapath.Entry{
		Transaction: b.Transaction, Shard: b.Shard, Epoch: b.Epoch, Version: b.Version, Service: b.ServiceNumber, Draining: draining,
	}
	forward, reverse := common, common
	reverse.Key = datapath.Key{Kind: datapath.EgressReverse, Tuple: b.Reverse.Service}
	if half == cats.EgressHalf {
		forward.Key = datapath.Key{Kind: datapath.EgressForward, Tuple: b.Reverse.Service.Reverse()}
		reverse.Path = path
		return []datapath.Entry{forward, reverse}
	}
	forward.Key = ingressKey(b.Match)
	forward.Rewrite, forward.Path = b.Locator.Address, path
	reverse.Key.Kind = datapath.IngressReverse
	reverse.Rewrite, reverse.NextHop = b.Reverse.Restore, clientHop
	return []datapath.Entry{forward, reverse}
}

func ingressKey(k cats.FlowKey) datapath.Key {
	return datapath.Key{Kind: datapath.IngressForward, Attachment: datapath.AttachmentID(k.Attachment), Tuple: k.Tuple}
}

// install places a half, or a newer version of it. On an error the data plane is as it was.
func (h *halves) install(now cats.Instant, half cats.Half, b *cats.Binding, draining bool) error {
	wanted, undo, err := h.prepare(now, half, b, draining)
	if err != nil {
		return err
	}
	if err := h.plane.Install(wanted); err != nil {
		undo()
		return err
	}
	h.note(half, b, wanted)
	return nil
}

// prepare takes hold of what a half refers to, and gives its entries.
func (h *halves) prepare(now cats.Instant, half cats.Half, b *cats.Binding, draining bool) (wanted []datapath.Entry, undo func(), err error) {
	path, err := h.routes.usePath(now, headPath(half, b))
	if err != nil {
		return nil, nil, err
	}
	clientHop := uint32(0)
	if half == cats.IngressHalf {
		if clientHop, err = h.routes.useHop(now, b.Match.Tuple.Source.Addr()); err != nil {
			h.routes.dropPath(headPath(half, b))
			return nil, nil, err
		}
	}
	return entries(half, b, path, clientHop, draining), func() { h.letGo(half, b) }, nil
}

// note remembers what is placed, and lets go of what an older version referred to.
func (h *halves) note(half cats.Half, b *cats.Binding, wanted []datapath.Entry) {
	key := halfKey{b.Transaction, half}
	old := h.placed[key]
	if old == nil {
		h.placed[key] = &placed{binding: *b, keys: [2]datapath.Key{wanted[0].Key, wanted[1].Key}}
		return
	}
	before := old.binding
	old.binding = *b
	h.letGo(half, &before)
}

// letGo drops what a half refers to.
func (h *halves) letGo(half cats.Half, b *cats.Binding) {
	h.routes.dropPath(headPath(half, b))
	if half == cats.IngressHalf {
		h.routes.dropHop(b.Match.Tuple.Source.Addr())
	}
}

// remove takes a half out; one that is not there is removed already.
func (h *halves) remove(key halfKey) error {
	p := h.placed[key]
	if p == nil {
		return nil
	}
	if err := h.plane.Remove(p.keys[:]); err != nil {
		return err
	}
	delete(h.placed, key)
	h.letGo(key.half, &p.binding)
	return nil
}

// drain marks a half as draining.
func (h *halves) drain(key halfKey) error {
	p := h.placed[key]
	if p == nil {
		return fmt.Errorf("%s half of %s: %w", key.half, key.transaction, datapath.ErrNotInstalled)
	}
	var errs []error
	for _, k := range p.keys {
		errs = append(errs, h.plane.SetDraining(k, key.transaction, true))
	}
	return errors.Join(errs...)
}

// carryOut does one operation of the core and gives its result.
func (h *halves) carryOut(now cats.Instant, o *core.Operation) core.Result {
	var err error
	switch o.Kind {
	case core.OperationInstall:
		err = h.install(now, o.Half, &o.Binding, o.Draining)
	case core.OperationDrain:
		err = h.drain(halfKey{o.Binding.Transaction, o.Half})
	case core.OperationRemove:
		err = h.remove(halfKey{o.Binding.Transaction, o.Half})
	}
	if err == nil {
		return core.Result{Operation: o.ID}
	}
	return core.Result{Operation: o.ID, Reason: cmp.Or(cats.ReasonOf(err), cats.ReasonCommitFailed), Detail: err.Error()}
}
