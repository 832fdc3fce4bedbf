/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The maps. User space sets the capacities that configuration decides. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"
#include "reason.h"

#define MAP(name, map_type, entries, key_type, value_type)                                                             \
	struct {                                                                                                           \
		__uint(type, map_type);                                                                                        \
		__uint(max_entries, entries);                                                                                  \
		__type(key, key_type);                                                                                         \
		__type(value, value_type);                                                                                     \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                                                           \
	} name SEC(".maps")

#define TRIE(name, entries, key_type, value_type)                                                                      \
	struct {                                                                                                           \
		__uint(type, BPF_MAP_TYPE_LPM_TRIE);                                                                           \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                          \
		__uint(max_entries, entries);                                                                                  \
		__type(key, key_type);                                                                                         \
		__type(value, value_type);                                                                                     \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                                                           \
	} name SEC(".maps")

/* What user space reads and writes through mmap. */
#define MAPPED(name, entries, value_type)                                                                              \
	struct {                                                                                                           \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                              \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                             \
		__uint(max_entries, entries);                                                                                  \
		__type(key, __u32);                                                                                            \
		__type(value, value_type);                                                                                     \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                                                           \
	} name SEC(".maps")

MAP(ports, BPF_MAP_TYPE_ARRAY, PORTS, __u32, struct port);
TRIE(attachments, 16384, struct attachment_key, __u32);
TRIE(services, 65536, struct service_key, __u32);
MAPPED(bindings, 262270, struct binding);
MAPPED(records, 148480, struct record);
MAPPED(touched, 4098, __u64);
MAP(announced, BPF_MAP_TYPE_HASH, 16384, struct binding_key, __u64);
MAP(hold_down, BPF_MAP_TYPE_LRU_HASH, 65536, struct binding_key, struct held_down);
MAP(paths, BPF_MAP_TYPE_ARRAY, 4096, __u32, struct path);
MAP(next_hops, BPF_MAP_TYPE_ARRAY, 65536, __u32, struct next_hop);
MAP(sids, BPF_MAP_TYPE_HASH, 16384, struct address, struct sid);
MAP(locators, BPF_MAP_TYPE_HASH, 16384, struct locator_key, __u32);
MAP(hosts, BPF_MAP_TYPE_HASH, 16384, struct address, __u32);
TRIE(domain, 1024, struct domain_key, __u32);
MAP(blocks, BPF_MAP_TYPE_ARRAY, 1, __u32, struct block);
MAP(epochs, BPF_MAP_TYPE_HASH, 4096, __u32, struct epoch);
MAP(state, BPF_MAP_TYPE_ARRAY, 1, __u32, struct incarnation);
MAP(drops, BPF_MAP_TYPE_PERCPU_ARRAY, REASON_LIMIT, __u32, __u64);
MAP(counters, BPF_MAP_TYPE_PERCPU_ARRAY, TRAFFIC_KINDS, __u32, struct traffic);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} misses SEC(".maps");
