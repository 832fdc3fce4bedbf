package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/cats"
)

// HoldDown makes the program drop misses of key, counted under reason, for that long from now. It takes one map update (2
// µs). Room is for 65,536 keys: beyond it the kernel gives up one that was not asked for lately, whose next packet is a
// miss again. What keeps it from giving up any just then is cats.ReasonTableFull.
func (d *Datapath) HoldDown(key Key, reason cats.Reason, duration time.Duration) error {
	k, err := encodeIngressKey(key)
	if err != nil {
		return err
	}
	if reason == cats.ReasonNone || reason >= cats.Reason(programReasonREASON_LIMIT) {
		return fmt.Errorf("hold-down of %s: %d is no reason", key.Tuple, reason)
	}
	value := programHeldDown{Until: uint64(Monotonic() + int64(duration)), Reason: uint32(reason)}
	err = d.maps.HoldDown.Put(&k, &value)
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("hold-down of %s: %w: %w", key.Tuple, err, cats.ReasonTableFull)
	}
	if err != nil {
		return fmt.Errorf("hold-down of %s: %w", key.Tuple, err)
	}
	return nil
}

// Announce makes packets of key a miss for that long from now, even if they are to no service address. Key.Kind is
// IngressForward. Too many at once are cats.ReasonTableFull.
func (d *Datapath) Announce(key Key, duration time.Duration) error {
	k, err := encodeIngressKey(key)
	if err != nil {
		return err
	}
	if err := d.maps.Announced.Put(&k, uint64(Monotonic()+int64(duration))); err != nil {
		return fmt.Errorf("announcement of %s: %w", key.Tuple, tableError(d.maps.Announced, err))
	}
	return nil
}

// Withdraw ends an announcement; one that is not there is no error.
func (d *Datapath) Withdraw(key Key) error {
	k, err := encodeIngressKey(key)
	if err != nil {
		return err
	}
	if err := d.maps.Announced.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("announcement of %s: %w", key.Tuple, err)
	}
	return nil
}

func encodeIngressKey(key Key) (programBindingKey, error) {
	if key.Kind != IngressForward {
		return programBindingKey{}, fmt.Errorf("key %s %s: need ingress-forward: %w", key.Kind, key.Tuple,
			cats.ReasonMalformed)
	}
	return encodeKey(key)
}
