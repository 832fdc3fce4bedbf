/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Bindings: look-up, use, and the actions of their four kinds (CP sections 7.2, 8.4 and 8.6). */
#pragma once

#include "output.h"
#include "table.h"

static __always_inline struct binding *find_binding(struct packet *p, enum binding_kind kind, __u32 attachment)
{
	p->key.kind = kind;
	p->key.attachment = attachment;
	return search(&p->key, p->version, &p->place);
}

/* Notes that a packet goes through b. A draining binding is not refreshed. Packets of one flow may be on several CPUs at
 * once: sums are atomic, and so are TCP flags, of which hardly any is news. */
static __always_inline void note_use(struct binding *b, const struct packet *p)
{
	__u8 seen = p->tcp_flags & (TCP_FIN | TCP_SYN | TCP_RST);

	if (!(b->flags & BINDING_DRAINING))
		b->last_seen = bpf_ktime_get_coarse_ns() >> LAST_SEEN_SHIFT;
	__sync_fetch_and_add(&b->packets, 1);
	__sync_fetch_and_add(&b->octets, p->length);
	if (seen & ~b->tcp_flags)
		__sync_fetch_and_or((__u32 *)&b->kind, (__u32)seen << 24);
	touch(p->place);
}

/* Tells why a packet cannot be forwarded to hop within overhead more octets; 0 if it can. */
static __always_inline int refuse(const struct packet *p, const struct next_hop *hop, __u32 overhead)
{
	if (p->hop_limit <= 1)
		return REASON_TTL_EXCEEDED;
	if (hop && hop->mtu && p->length + overhead > hop->mtu)
		return REASON_TOO_BIG;
	return 0;
}

/* Sends the packet along the path of b toward the other forwarder: with the selected locator as its destination where
 * this is the ingress, as it is where this is the egress. */
static __always_inline int send_along_path(struct xdp_md *ctx, struct packet *p, struct binding *b,
										   enum binding_kind kind)
{
	__u32 id = b->onward;
	const struct path *path = bpf_map_lookup_elem(&paths, &id);
	const struct next_hop *hop;
	__u32 reason;

	if (!path || !path->usable)
		return drop(REASON_NO_PATH);
	hop = resolve(path->next_hop);
	reason = refuse(p, hop, path->overhead);
	if (reason)
		return drop(reason);
	note_use(b, p);
	if (kind == INGRESS_FORWARD && rewrite(ctx, p, b, REWRITE_TARGET))
		return drop(REASON_BAD_PACKET);
	if (decrement_hop_limit(ctx, p))
		return drop(REASON_BAD_PACKET);
	return send(ctx, p, path, hop, b->flow_label, kind);
}

/* Restores the client-visible source and sends the packet to the client. */
static __always_inline int restore_source(struct xdp_md *ctx, struct packet *p, struct binding *b)
{
	const struct next_hop *hop = resolve(b->onward);
	__u32 reason = refuse(p, hop, 0);

	if (reason)
		return drop(reason);
	note_use(b, p);
	if (rewrite(ctx, p, b, REWRITE_SOURCE) || decrement_hop_limit(ctx, p))
		return drop(REASON_BAD_PACKET);
	return send(ctx, p, 0, hop, 0, INGRESS_REVERSE);
}

/* Hands the packet to the instance, whose next hop is known by its egress attachment. */
static __always_inline int deliver(struct xdp_md *ctx, struct packet *p, struct binding *b, __u32 next_hop)
{
	const struct next_hop *hop = resolve(next_hop);
	__u32 reason = refuse(p, hop, 0);

	if (reason)
		return drop(reason);
	note_use(b, p);
	if (decrement_hop_limit(ctx, p))
		return drop(REASON_BAD_PACKET);
	return send(ctx, p, 0, hop, 0, EGRESS_FORWARD);
}
