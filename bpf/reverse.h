/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Packets without encapsulation at the service side (CP section 8.6): return traffic of instances, and both directions
 * of native paths. */
#pragma once

#include "classify.h"

/* Gives the next hop of the instance at (address, port) of the packet's protocol, if that is a locator. */
static __always_inline const __u32 *find_locator(const struct packet *p, const struct address *address, __be16 port)
{
	struct locator_key key = {
		.locator = *address,
		.port = port,
		.protocol = p->key.protocol,
	};

	return bpf_map_lookup_elem(&locators, &key);
}

/* Tells whether the packet comes from a locator, or could: where its port cannot be read, as in a fragment behind the
 * first, address and protocol decide. Of other ports and protocols it is the host's own. */
static __always_inline int may_be_from_locator(const struct packet *p)
{
	const __u32 *protocols;

	if (p->has_ports)
		return find_locator(p, &p->key.source, p->key.source_port) != 0;
	protocols = bpf_map_lookup_elem(&hosts, &p->key.source);
	if (!protocols || !p->key.protocol)
		return protocols != 0;
	return p->key.protocol < 32 && (*protocols >> p->key.protocol & 1);
}

/* A packet from an instance: to the owner of its binding; dropped if it may come from a locator and has none. */
static __always_inline int from_instance(struct xdp_md *ctx, struct packet *p)
{
	struct binding *b;

	if (p->shape == SHAPE_FLOW) {
		b = find_binding(p, EGRESS_REVERSE, 0);
		if (b)
			return send_along_path(ctx, p, b, EGRESS_REVERSE);
		b = find_binding(p, INGRESS_REVERSE, 0); /* ingress and egress in one */
		if (b)
			return restore_source(ctx, p, b);
	}
	if (!may_be_from_locator(p))
		return CONTINUE;
	return drop(p->shape == SHAPE_FLOW ? REASON_NO_BINDING : REASON_BAD_PACKET);
}

/* A plain packet from the network, which a native path may have brought. Without a binding it is the kernel's. */
static __always_inline int from_core(struct xdp_md *ctx, struct packet *p)
{
	const __u32 *next_hop;
	struct binding *b;

	if (p->shape != SHAPE_FLOW)
		return CONTINUE;
	b = find_binding(p, INGRESS_REVERSE, 0);
	if (b)
		return restore_source(ctx, p, b);
	next_hop = find_locator(p, &p->key.target, p->key.target_port);
	if (!next_hop)
		return CONTINUE;
	b = find_binding(p, EGRESS_FORWARD, 0);
	return b ? deliver(ctx, p, b, *next_hop) : CONTINUE;
}
