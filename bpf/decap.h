/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The end of an encapsulation: local segments (RFC 8986 sections 4.4 and 4.5, RFC 8754 section 4.3). */
#pragma once

#include "binding.h"

#define ECN_MASK 3
#define ECN_CE 3
#define ECN_ECT1 1

static __always_inline const struct sid *find_sid(const struct packet *p)
{
	return bpf_map_lookup_elem(&sids, &p->key.target);
}

static __always_inline int is_encapsulated(const struct packet *p)
{
	return p->next == IPPROTO_ROUTING || p->next == IPPROTO_IPIP || p->next == IPPROTO_IPV6;
}

/* Tells whether the target is in the block that this forwarder's segments are taken from. */
static __always_inline int is_in_local_block(const struct packet *p)
{
	__u32 zero = 0;
	const struct block *b = bpf_map_lookup_elem(&blocks, &zero);
	__u64 target[2];

	if (!b || !b->enabled)
		return 0;
	__builtin_memcpy(target, &p->key.target, sizeof(target));
	return (target[0] & b->mask[0]) == b->prefix[0] && (target[1] & b->mask[1]) == b->prefix[1];
}

/* Checks the segment routing header at offset of the frame, of which payload octets belong to the outer packet. Gives
 * its length, and the protocol behind it in *next; -1 if it is not sound or not at its last segment. */
static __always_inline int check_srh(struct xdp_md *ctx, __u32 offset, __u32 payload, __u8 *next)
{
	__u8 *srh = octet(ctx, offset);
	__u32 length;

	if (srh + 8 > (__u8 *)frame_end(ctx))
		return -1;
	length = (srh[1] + 1) * 8;
	if (srh[2] != SRH_TYPE || srh[3] != 0 || length > payload)
		return -1;
	if ((srh[4] + 1) * 2 > srh[1]) /* Last Entry against Hdr Ext Len, in units of 8 octets */
		return -1;
	*next = srh[0];
	return length;
}

/* Takes the outer ECN over into the inner header (RFC 6040 section 4.2); -1 where the packet must go. */
static __always_inline int merge_ecn(struct xdp_md *ctx, const struct packet *p, __u8 outer)
{
	void *header = octet(ctx, p->l3), *end = frame_end(ctx);
	__u8 inner = p->traffic_class & ECN_MASK;

	outer &= ECN_MASK;
	if (!inner)
		return outer == ECN_CE ? -1 : 0;
	if (inner == ECN_CE || (outer != ECN_CE && outer != ECN_ECT1) || outer == inner)
		return 0;
	if (p->version == 4) {
		struct iphdr *ip = header;
		__be16 *word = header;
		__be16 old;

		if ((void *)(ip + 1) > end)
			return -1;
		old = *word;
		ip->tos = (ip->tos & ~ECN_MASK) | outer;
		ip->check = checksum_apply(ip->check, checksum_delta(old, *word));
	} else {
		struct ipv6hdr *ip = header;

		if ((void *)(ip + 1) > end)
			return -1;
		ip->flow_lbl[0] = (ip->flow_lbl[0] & ~(ECN_MASK << 4)) | outer << 4;
	}
	return 0;
}

/* Ends the encapsulation of the packet, and reads the packet inside. */
static __always_inline int end_encapsulation(struct xdp_md *ctx, struct packet *p)
{
	__u32 payload = p->length - IPV6_OCTETS, headers = IPV6_OCTETS;
	__u8 next = p->next, outer_class = p->traffic_class;

	if (!is_whole(ctx, p))
		return -1;
	if (next == IPPROTO_ROUTING) {
		int srh = check_srh(ctx, p->l3 + IPV6_OCTETS, payload, &next);

		if (srh < 0)
			return -1;
		headers += srh;
		payload -= srh;
	}
	if (next != IPPROTO_IPIP && next != IPPROTO_IPV6)
		return -1;
	if (bpf_xdp_adjust_head(ctx, p->l3 + headers - ETH_HLEN))
		return -1;
	p->l3 = ETH_HLEN;
	p->version = 0;
	p->shape = SHAPE_OTHER;
	p->length = 0;
	if (next == IPPROTO_IPIP)
		parse_ipv4(ctx, p);
	else
		parse_ipv6(ctx, p);
	if (!p->version || p->shape == SHAPE_BROKEN || p->length > payload)
		return -1;
	return merge_ecn(ctx, p, outer_class);
}

/* Tells whether the target is of the SID space of the SR domain. */
static __always_inline int is_in_domain(const struct packet *p)
{
	struct domain_key key = {
		.prefix_length = 128,
		.target = p->key.target,
	};

	return bpf_map_lookup_elem(&domain, &key) != 0;
}

/* Tells whether the packet is for the instance that the segment stands for. */
static __always_inline int verify_context(const struct packet *p, const struct sid *sid)
{
	return p->shape == SHAPE_FLOW && p->key.protocol == sid->locator_protocol &&
		   p->key.target_port == sid->locator_port &&
		   is_same(&p->key.target, &sid->locator);
}

/* A packet to a local segment: delivered at the egress, restored at the ingress, or dropped. */
static __always_inline int process_segment(struct xdp_md *ctx, struct packet *p, const struct sid *sid)
{
	struct binding *b;

	if (end_encapsulation(ctx, p))
		return drop(REASON_BAD_PACKET);
	if (sid->kind == SID_DELIVER) {
		if (!verify_context(p, sid))
			return drop(REASON_BAD_CONTEXT);
		b = find_binding(p, EGRESS_FORWARD, 0);
		return b ? deliver(ctx, p, b, sid->next_hop) : drop(REASON_NO_BINDING);
	}
	if (p->shape != SHAPE_FLOW)
		return drop(REASON_NO_BINDING);
	b = find_binding(p, INGRESS_REVERSE, 0);
	return b ? restore_source(ctx, p, b) : drop(REASON_NO_BINDING);
}
