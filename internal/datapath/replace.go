package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// replace makes want the whole content of m. What is new or other goes in before what is stale goes out, and what is
// the same is not touched.
func replace[K, V comparable](m *ebpf.Map, want map[K]V) error {
	have, err := dump[K, V](m)
	if err != nil {
		return err
	}
	for k, v := range want {
		if old, ok := have[k]; ok && old == v {
			continue
		}
		if err := m.Put(&k, &v); err != nil {
			return tableError(m, err)
		}
	}
	for k := range have {
		if _, ok := want[k]; ok {
			continue
		}
		if err := m.Delete(&k); err != nil {
			return fmt.Errorf("removing from %v: %w", m, err)
		}
	}
	return nil
}

func dump[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	all := make(map[K]V)
	var k K
	var v V
	entries := m.Iterate()
	for entries.Next(&k, &v) {
		all[k] = v
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("reading %v: %w", m, err)
	}
	return all, nil
}
