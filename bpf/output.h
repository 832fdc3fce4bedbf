/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Output: room for the outer headers, the outer headers, the Ethernet header, redirect. */
#pragma once

#include "encap.h"
#include "rewrite.h"

#define VLAN_OCTETS 4

/* Cuts off what follows the IP packet, such as Ethernet padding: behind an outer header it would be garbage. */
static __always_inline int trim_padding(struct xdp_md *ctx, const struct packet *p)
{
	long excess = frame_end(ctx) - frame_start(ctx) - p->l3 - p->length;

	return excess > 0 ? bpf_xdp_adjust_tail(ctx, -excess) : 0;
}

/* Writes the Ethernet header, and the tag of hop where it has one. Without a neighbour the frame is for the kernel of
 * this node: its own address makes it take it. */
static __always_inline int write_link(struct xdp_md *ctx, const struct packet *p, const struct next_hop *hop,
									  __u16 ethertype)
{
	struct ethhdr *ethernet = frame_start(ctx);
	__be16 *tag = (void *)(ethernet + 1);
	void *end = frame_end(ctx);

	if ((void *)(ethernet + 1) > end)
		return -1;
	if (!hop) {
		__builtin_memcpy(ethernet->h_source, p->port->mac, ETH_ALEN);
		__builtin_memcpy(ethernet->h_dest, p->port->mac, ETH_ALEN);
		ethernet->h_proto = bpf_htons(ethertype);
		return 0;
	}
	__builtin_memcpy(ethernet->h_source, hop->source, ETH_ALEN);
	__builtin_memcpy(ethernet->h_dest, hop->target, ETH_ALEN);
	ethernet->h_proto = bpf_htons(ethertype);
	if (hop->vlan) {
		if ((void *)(tag + 2) > end)
			return -1;
		ethernet->h_proto = bpf_htons(ETH_P_8021Q);
		tag[0] = bpf_htons(hop->vlan);
		tag[1] = bpf_htons(ethertype);
	}
	return 0;
}

/* Gives the resolved next hop of id, or none. */
static __always_inline const struct next_hop *resolve(__u32 id)
{
	const struct next_hop *hop = id ? bpf_map_lookup_elem(&next_hops, &id) : 0;

	return hop && hop->ifindex ? hop : 0;
}

/* Sends the packet, whose TTL and addresses are done, inside the outer headers of path, if there is one, to hop. */
static __always_inline int send(struct xdp_md *ctx, const struct packet *p, const struct path *path,
								const struct next_hop *hop, __be32 flow_label, enum binding_kind kind)
{
	__u16 ethertype = p->version == 4 ? ETH_P_IP : ETH_P_IPV6;
	__u32 link = ETH_HLEN + (hop && hop->vlan ? VLAN_OCTETS : 0);
	__u32 overhead = path ? path->overhead : 0;

	if (trim_padding(ctx, p) || bpf_xdp_adjust_head(ctx, (int)p->l3 - (int)(link + overhead)))
		return drop(REASON_TOO_BIG);
	if (overhead) {
		if (push_encapsulation(ctx, p, path, link, flow_label))
			return drop(REASON_BAD_PACKET);
		ethertype = ETH_P_IPV6;
	}
	if (write_link(ctx, p, hop, ethertype))
		return drop(REASON_BAD_PACKET);
	count_traffic(kind, p->length);
	if (hop)
		return bpf_redirect(hop->ifindex, 0);
	count_traffic(TRAFFIC_UNRESOLVED, p->length);
	return XDP_PASS;
}
