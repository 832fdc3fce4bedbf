/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Counting: every packet ends in one of these, so that nothing is lost silently. */
#pragma once

#include "maps.h"

static __always_inline int drop(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&drops, &reason);

	if (count)
		*count += 1;
	return XDP_DROP;
}

static __always_inline void count_traffic(__u32 kind, __u64 octets)
{
	struct traffic *t = bpf_map_lookup_elem(&counters, &kind);

	if (t) {
		t->packets += 1;
		t->octets += octets;
	}
}

static __always_inline int pass(__u64 octets)
{
	count_traffic(TRAFFIC_PASSED, octets);
	return XDP_PASS;
}
