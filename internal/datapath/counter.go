package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/margay-net/margay/cats"
)

// Counters gives the totals.
func (d *Datapath) Counters() (Counters, error) {
	c := Counters{Drops: make(map[cats.Reason]uint64)}
	var errs []error
	for _, r := range cats.Reasons() {
		var perCPU []uint64
		errs = append(errs, d.maps.Drops.Lookup(uint32(r), &perCPU))
		for _, n := range perCPU {
			c.Drops[r] += n
		}
	}
	read := func(index uint32, t *Traffic) {
		var perCPU []programTraffic
		errs = append(errs, d.maps.Counters.Lookup(index, &perCPU))
		for _, p := range perCPU {
			t.Packets += p.Packets
			t.Octets += p.Octets
		}
	}
	for k := range c.Forwarded {
		read(uint32(k), &c.Forwarded[k])
	}
	read(uint32(programTrafficKindTRAFFIC_PASSED), &c.Passed)
	read(uint32(programTrafficKindTRAFFIC_HELD), &c.Held)
	read(uint32(programTrafficKindTRAFFIC_UNRESOLVED), &c.Unresolved)
	if err := errors.Join(errs...); err != nil {
		return c, fmt.Errorf("reading counters: %w", err)
	}
	return c, nil
}

// Epochs gives the highest epoch seen per shard (CP section 13.2), which outlives this process.
func (d *Datapath) Epochs() (map[cats.Shard]cats.Epoch, error) {
	all, err := dump[uint32, programEpoch](d.maps.Epochs)
	if err != nil {
		return nil, err
	}
	epochs := make(map[cats.Shard]cats.Epoch)
	for shard, e := range all {
		epochs[cats.Shard(shard)] = cats.Epoch{Term: e.Term, Counter: e.Counter}
	}
	return epochs, nil
}

// RaiseEpoch records epoch for shard if it is above the one recorded; a lower one is cats.ReasonStaleEpoch and changes
// nothing.
func (d *Datapath) RaiseEpoch(shard cats.Shard, epoch cats.Epoch) error {
	var have programEpoch
	err := d.maps.Epochs.Lookup(uint32(shard), &have)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("epoch of shard %d: %w", shard, err)
	}
	highest := cats.Epoch{Term: have.Term, Counter: have.Counter}
	if c := epoch.Compare(highest); c < 0 {
		return fmt.Errorf("shard %d has seen epoch %s, above %s: %w", shard, highest, epoch, cats.ReasonStaleEpoch)
	} else if c == 0 && err == nil {
		return nil
	}
	if err := d.maps.Epochs.Put(uint32(shard), &programEpoch{Term: epoch.Term, Counter: epoch.Counter}); err != nil {
		return fmt.Errorf("epoch of shard %d: %w", shard, tableError(d.maps.Epochs, err))
	}
	return nil
}
