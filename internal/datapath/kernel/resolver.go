package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
)

// The resolver's own pace: how long route changes are gathered before every destination is looked up again, and how
// often a neighbour that does not answer, or a failed read of the kernel's tables, is tried again.
const (
	routeSettle = 20 * time.Millisecond
	retryEvery  = time.Second
)

// ErrClosed is given by the methods of a closed Resolver.
var ErrClosed = errors.New("resolver is closed")

// Resolver keeps the next hops of a set of destinations and follows the kernel's routes, links and neighbours.
//
// XDP forwards without the kernel noticing, so that the kernel would let a neighbour in use go stale. The resolver
// therefore marks the neighbours it needs as managed (NTF_EXT_MANAGED): the kernel then resolves them, asks again while
// they do not answer, and verifies them periodically, for IPv4 and IPv6 alike. Static (permanent) entries are left as
// they are.
type Resolver struct {
	commands chan func(*table)
	changes  chan []Hop
	socket   *nl.NetlinkSocket
	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
	err      error // why the owner ended; read after done
}

// NewResolver opens a resolver in the network namespace of the calling thread. Close it.
func NewResolver() (*Resolver, error) {
	socket, err := subscribe() // before the first dump, so that nothing is missed between the two
	if err != nil {
		return nil, err
	}
	t, err := newTable()
	if err != nil {
		socket.Close()
		return nil, err
	}
	r := &Resolver{
		commands: make(chan func(*table)), changes: make(chan []Hop), socket: socket,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go r.own(t)
	return r, nil
}

// Watch adds destinations and gives their present hops, in the same order; later changes come through Changes. A
// destination that is watched already only gives its hop.
func (r *Resolver) Watch(destinations ...netip.Addr) ([]Hop, error) {
	for _, d := range destinations {
		if !d.IsValid() || d.IsUnspecified() || d.IsMulticast() {
			return nil, fmt.Errorf("next hop of %s: not a unicast address", d)
		}
	}
	hops := make([]Hop, 0, len(destinations))
	err := r.do(func(t *table) {
		for _, d := range destinations {
			hops = append(hops, t.watch(d.Unmap()))
		}
	})
	return hops, err
}

// Forget ends the watching of destinations and lets the kernel age their neighbours again.
func (r *Resolver) Forget(destinations ...netip.Addr) error {
	return r.do(func(t *table) {
		for _, d := range destinations {
			t.forget(d.Unmap())
		}
	})
}

// Changes delivers hops that changed since they were last delivered or returned by Watch. A slow reader misses
// intermediate states, never the last one; what waits is bounded by the number of watched destinations. The channel
// closes when the resolver ends; Err then tells why.
func (r *Resolver) Changes() <-chan []Hop { return r.changes }

// Err is nil while the resolver runs and after Close; otherwise why it ended by itself.
func (r *Resolver) Err() error {
	select {
	case <-r.done:
		return r.err
	default:
		return nil
	}
}

// Close ends the resolver and waits until it has ended. Managed marks are left in place: the XDP program goes on using
// the neighbours when the agent restarts, and forgetting a destination takes its mark away.
func (r *Resolver) Close() error {
	r.stopOnce.Do(func() { close(r.stop) })
	<-r.done
	return r.err
}

// do runs f in the owner goroutine.
func (r *Resolver) do(f func(*table)) error {
	ran := make(chan struct{})
	select {
	case r.commands <- func(t *table) { f(t); close(ran) }:
		<-ran
		return nil
	case <-r.done:
		return errors.Join(ErrClosed, r.err)
	}
}

// own is the goroutine that owns the table. It ends after Close, or when the kernel's notifications fail.
func (r *Resolver) own(t *table) {
	notices := make(chan notice, monitorQueue)
	go monitor(r.socket, notices, r.stop)
	defer func() {
		r.stopOnce.Do(func() { close(r.stop) })
		r.socket.Close()
		for range notices { // until the monitor has ended
		}
		t.close()
		close(r.changes)
		close(r.done)
	}()
	settle, retry := stoppedTimer(), stoppedTimer()
	settling, retrying := false, false
	for {
		if t.routesChanged && !settling {
			settling = true
			settle.Reset(routeSettle)
		}
		if t.wantsRetry() && !retrying {
			retrying = true
			retry.Reset(retryEvery)
		}
		changes := r.changes
		if len(t.changed) == 0 {
			changes = nil
		}
		select {
		case <-r.stop:
			return
		case f := <-r.commands:
			f(t)
		case changes <- t.changed:
			t.delivered()
		case <-settle.C:
			settling = false
			t.resolveAll()
		case <-retry.C:
			retrying = false
			t.retry()
		case n, ok := <-notices:
			if !ok || n.kind == noticeFailed {
				r.err = n.failed
				return
			}
			t.apply(n)
		}
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
