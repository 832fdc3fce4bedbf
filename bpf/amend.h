/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Changing a binding in place, called by user space: replacing the entry would lose what packets count meanwhile. */
#pragma once

#include <linux/errno.h>

#include "maps.h"

SEC("syscall")
int amend(struct amendment *a)
{
	struct binding_key key = a->key;
	struct binding *b = bpf_map_lookup_elem(&bindings, &key);

	if (!b)
		return -ENOENT;
	for (int i = 0; i < (int)sizeof(a->transaction); i++)
		if (a->transaction[i] != b->transaction[i])
			return -ESTALE;
	b->path = a->path;
	b->next_hop = a->next_hop;
	b->shard = a->shard;
	b->epoch_term = a->epoch_term;
	b->epoch_counter = a->epoch_counter;
	b->version = a->version;
	b->flags = a->flags;
	return 0;
}
