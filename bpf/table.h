/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Searching the binding table. User space is its only writer (internal/datapath/table.go): it fills a place before it
 * writes the tag, and fills none again until a second after it took the tag away, so that what is found stays what it is
 * while a packet is processed. No entry ever moves. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"

const volatile struct table_parameters table = {};

/* What an entry of a key looks like. */
struct query {
	__u64 head; /* tag and attachment */
	__u64 pair;
	__u32 ports;
	__u32 home;
	__u32 what; /* kind and protocol */
};

/* Multilinear: over the choice of the secret, two keys have the same sum with a probability of 2^-32 at most, whatever
 * a sender does to make them so. */
static __always_inline __u64 sum_key(const struct binding_key *k, int version)
{
	__u64 sum = table.secret[0];

	sum += table.secret[1] * k->attachment;
	sum += table.secret[2] * (k->source_port | (__u32)k->target_port << 16);
	sum += table.secret[3] * (k->kind | (__u32)k->protocol << 8);
	sum += table.secret[4] * k->source.word[3];
	sum += table.secret[5] * k->target.word[3];
	if (version == 4)
		return sum;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		sum += table.secret[6 + i] * k->source.word[i];
		sum += table.secret[9 + i] * k->target.word[i];
	}
	return sum;
}

/* Spreads a sum over all bits, so that keys in sequence are not neighbours; keyed, so that nobody knows which are. */
static __always_inline __u64 mix(__u64 h)
{
	h ^= h >> 32;
	h *= table.secret[12];
	h ^= h >> 29;
	h *= table.secret[13];
	return h ^ h >> 32;
}

static __always_inline void prepare(struct query *q, const struct binding_key *k, int version)
{
	__u64 sum = sum_key(k, version), hash = mix(sum);

	q->home = ((hash >> 32) * table.homes >> 32) * 2;
	q->head = (__u32)hash | TAG_LIVE | (__u64)k->attachment << 32;
	q->pair = version == 4 ? k->source.word[3] | (__u64)k->target.word[3] << 32 : sum;
	q->ports = k->source_port | (__u32)k->target_port << 16;
	q->what = k->kind | (version == 4 ? 0 : BINDING_IPV6) | (__u16)k->protocol << 8;
}

/* Gives 0. What is read at an address that this was added to is read after head, also by a processor that may read in
 * another order: it does not know the address before. */
static __always_inline __u64 after(__u64 head)
{
	asm volatile("%0 &= 0" : "+r"(head));
	return head;
}

/* Tells whether an entry of IPv6 that looks right is. User space places no two that look alike. */
static __always_inline int has_addresses(const struct binding *b, const struct binding_key *k)
{
	__u32 place = b->record;
	const struct record *r = bpf_map_lookup_elem(&records, &place);

	return r && is_same(&r->source, &k->source) && is_same(&r->target, &k->target);
}

static __always_inline int is_entry_of(const struct binding *b, const struct query *q)
{
	return b->pair == q->pair && *(const __u32 *)&b->source_port == q->ports && *(const __u16 *)&b->kind == q->what;
}

/* Searches the places of q behind the first two; gives the one, or -1, which is no place. */
__attribute__((noinline)) int search_on(const struct query *q)
{
	if (!q)
		return -1;
	for (__u32 i = 2; i < PROBES; i++) {
		__u32 place = q->home + i;
		struct binding *b = bpf_map_lookup_elem(&bindings, &place);
		__u64 head;

		if (!b)
			return -1;
		head = *(volatile __u64 *)b;
		if (!(__u32)head)
			return -1;
		b = (void *)b + after(head);
		if (head == q->head && is_entry_of(b, q))
			return place + after(head);
	}
	return -1;
}

/* Gives the entry of k, a key of an IP version, with its place, or none. The two places that come first are neighbours in
 * memory; five in six entries of a table that is as full as it gets are in them. */
static __always_inline struct binding *search(const struct binding_key *k, int version, __u32 *found)
{
	struct query q = {};
	struct binding *b;
	__u32 place;

	prepare(&q, k, version);
#pragma unroll
	for (__u32 i = 0; i < 2; i++) {
		__u64 head;

		place = q.home + i;
		b = bpf_map_lookup_elem(&bindings, &place);
		if (!b)
			return 0;
		head = *(volatile __u64 *)b;
		if (!(__u32)head)
			return 0;
		b = (void *)b + after(head);
		if (head == q.head && is_entry_of(b, &q))
			goto found;
	}
	place = search_on(&q);
	b = bpf_map_lookup_elem(&bindings, &place);
	if (!b)
		return 0;
found:
	*found = place;
	return version == 4 || has_addresses(b, k) ? b : 0;
}

/* Marks the place of an entry that a packet was counted in. */
static __always_inline void touch(__u32 place)
{
	__u64 bit = 1ull << (place % 64), *word;

	place /= 64;
	word = bpf_map_lookup_elem(&touched, &place);
	if (word && !(*word & bit))
		__sync_fetch_and_or(word, bit);
}
