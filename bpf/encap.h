/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* H.Encaps (RFC 8986 section 5.1): the outer headers of a path come from user space as octets; here the fields that
 * depend on the packet are put in. */
#pragma once

#include "maps.h"
#include "parse.h"

#define IPV6_OCTETS 40

/* Writes the outer headers of path at offset link, where room was made. Traffic class: DSCP and ECN of the packet (RFC
 * 2983, RFC 6040 normal mode). Hop limit: as the kernel's seg6, the packet's for IPv6, the default of 64 for IPv4. */
static __always_inline int push_encapsulation(struct xdp_md *ctx, const struct packet *p, const struct path *path,
											  __u32 link, __be32 flow_label)
{
	void *outer = octet(ctx, link), *end = frame_end(ctx);
	struct ipv6hdr *ip = outer;
	__u8 *srh = outer + IPV6_OCTETS;
	__u8 inner = p->version == 4 ? IPPROTO_IPIP : IPPROTO_IPV6;
	__u64 *to = outer;
	const __u64 *from = (const __u64 *)path->outer;
	__u32 words = path->overhead / 8;

	for (__u32 i = 0; i < MAX_OVERHEAD / 8; i++) {
		if (i >= words)
			break;
		if ((void *)(to + i + 1) > end)
			return -1;
		to[i] = from[i];
	}
	if (srh + 1 > (__u8 *)end)
		return -1;
	*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)p->traffic_class << 20) | flow_label;
	ip->payload_len = bpf_htons(path->overhead - IPV6_OCTETS + p->length);
	if (p->version == 6)
		ip->hop_limit = p->hop_limit;
	if (path->segments > 1)
		srh[0] = inner;
	else
		ip->nexthdr = inner;
	return 0;
}
