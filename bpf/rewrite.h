/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Rewriting: one address and port, checksums, TTL or hop limit (CP sections 8.4 and 8.6). */
#pragma once

#include "checksum.h"
#include "count.h"
#include "parse.h"

enum side {
	REWRITE_TARGET,
	REWRITE_SOURCE,
};

static __always_inline int rewrite_transport(struct xdp_md *ctx, const struct packet *p, const struct binding *b,
											 enum side side)
{
	void *header = octet(ctx, p->l4), *end = frame_end(ctx);
	__be16 *ports = header;

	if (p->key.protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = header;

		if ((void *)(tcp + 1) > end)
			return -1;
		tcp->check = checksum_apply(tcp->check, b->transport_delta);
	} else {
		struct udphdr *udp = header;

		if ((void *)(udp + 1) > end)
			return -1;
		if (udp->check) { /* zero, over IPv4 alone: the sender made none */
			udp->check = checksum_apply(udp->check, b->transport_delta);
			if (!udp->check)
				udp->check = 0xffff;
		}
	}
	ports[side == REWRITE_SOURCE ? 0 : 1] = b->rewrite_port;
	return 0;
}

/* Replaces the target by the selected locator, or the source by what the client knows. */
static __always_inline int rewrite(struct xdp_md *ctx, const struct packet *p, const struct binding *b, enum side side)
{
	void *header = octet(ctx, p->l3), *end = frame_end(ctx);
	__be16 old_port = side == REWRITE_SOURCE ? p->key.source_port : p->key.target_port;

	if (p->version == 4) {
		struct iphdr *ip = header;

		if ((void *)(ip + 1) > end)
			return -1;
		*(side == REWRITE_SOURCE ? &ip->saddr : &ip->daddr) = b->rewrite;
		/* The network header has no port: its part of the change goes out again. */
		ip->check = checksum_apply(ip->check, b->transport_delta + checksum_delta(b->rewrite_port, old_port));
	} else {
		__u32 place = b->record;
		const struct record *r = bpf_map_lookup_elem(&records, &place);
		struct ipv6hdr *ip = header;

		if (!r || (void *)(ip + 1) > end)
			return -1;
		__builtin_memcpy(side == REWRITE_SOURCE ? &ip->saddr : &ip->daddr, &r->rewrite, sizeof(r->rewrite));
	}
	return rewrite_transport(ctx, p, b, side);
}

/* Takes one from the TTL or hop limit; the caller has refused what is at 1. */
static __always_inline int decrement_hop_limit(struct xdp_md *ctx, struct packet *p)
{
	void *header = octet(ctx, p->l3), *end = frame_end(ctx);

	p->hop_limit--;
	if (p->version == 4) {
		struct iphdr *ip = header;

		if ((void *)(ip + 1) > end)
			return -1;
		ip->ttl--;
		ip->check = checksum_apply(ip->check, checksum_delta(bpf_htons(0x0100), 0));
	} else {
		struct ipv6hdr *ip = header;

		if ((void *)(ip + 1) > end)
			return -1;
		ip->hop_limit--;
	}
	return 0;
}
