/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Classification at the ingress (CP section 8.1): the binding first, then the service; nothing else is touched. */
#pragma once

#include "binding.h"
#include "hold.h"

#define CONTINUE -1 /* the packet is not this step's */

/* Tells whether the packet is of the one attachment that its interface is known to have. */
static __always_inline int is_of_sole_attachment(const struct packet *p, const struct port *port)
{
	__u64 source[2];

	if (!port->attachment || port->vlan != p->vlan)
		return 0;
	if (p->version == 4)
		return (p->key.source.word[3] & port->mask4) == port->prefix4;
	__builtin_memcpy(source, &p->key.source, sizeof(source));
	return (source[0] & port->mask6[0]) == port->prefix6[0] && (source[1] & port->mask6[1]) == port->prefix6[1];
}

/* Gives the number of the client attachment that the packet came in by, or 0. */
static __always_inline __u32 identify_attachment(const struct packet *p)
{
	struct attachment_key key = {
		.prefix_length = 64 + 128,
		.ingress = p->ingress,
		.vlan = p->vlan,
		.source = p->key.source,
	};
	const __u32 *attachment;

	if (is_of_sole_attachment(p, p->origin))
		return p->origin->attachment;
	attachment = bpf_map_lookup_elem(&attachments, &key);
	return attachment ? *attachment : 0;
}

static __always_inline const __u32 *find_service(const struct packet *p, __u8 protocol, __be16 port)
{
	struct service_key key = {
		.prefix_length = 32 + 128,
		.protocol = protocol,
		.port = port,
		.target = p->key.target,
	};

	return bpf_map_lookup_elem(&services, &key);
}

static __always_inline int is_announced(const struct packet *p)
{
	const __u64 *until = bpf_map_lookup_elem(&announced, &p->key);

	return until && bpf_ktime_get_coarse_ns() < *until;
}

/* Gives the reason that the key is held down for, or 0. */
static __always_inline __u32 held_down_reason(const struct packet *p)
{
	const struct held_down *h = bpf_map_lookup_elem(&hold_down, &p->key);

	return h && bpf_ktime_get_coarse_ns() < h->until ? h->reason : 0;
}

/* A packet without binding: held if it begins a flow of a service, dropped if it cannot, left alone if it is none. */
static __always_inline int classify_miss(struct xdp_md *ctx, const struct packet *p, __u32 over)
{
	const __u32 *service;
	__u32 reason;

	if (p->shape == SHAPE_BROKEN)
		return find_service(p, 0, 0) ? drop(REASON_BAD_PACKET) : CONTINUE;
	if (p->shape != SHAPE_FLOW)
		return CONTINUE;
	service = find_service(p, p->key.protocol, p->key.target_port);
	if (!service && !(p->key.attachment && is_announced(p)))
		return CONTINUE;
	if (!p->key.attachment)
		return drop(REASON_UNAUTHORIZED);
	if (!p->key.source_port)
		return drop(REASON_BAD_PACKET); /* nobody could answer it */
	if (p->hop_limit <= 1)
		return drop(REASON_TTL_EXCEEDED);
	if (p->released || (p->key.protocol == IPPROTO_TCP && !is_initial_syn(p)))
		return drop(REASON_NO_BINDING);
	reason = held_down_reason(p);
	if (reason)
		return drop(reason);
	return hold(ctx, p, service ? *service : 0, over);
}

/* Tells whether the flow of b has ended, so that a new SYN of its key begins another one: it drains, or the client has
 * closed it and the agent has not looked since. */
static __always_inline int is_over(const struct binding *b)
{
	return b->flags & BINDING_DRAINING || b->tcp_flags & (TCP_FIN | TCP_RST);
}

/* A packet from an interface that clients attach to. */
static __always_inline int from_client(struct xdp_md *ctx, struct packet *p)
{
	__u32 attachment = identify_attachment(p), over = 0;
	struct binding *b;

	p->key.kind = INGRESS_FORWARD;
	p->key.attachment = attachment;
	if (p->shape == SHAPE_FLOW && attachment) {
		b = find_binding(p, INGRESS_FORWARD, attachment);
		over = b && is_over(b);
		if (b && !(over && is_initial_syn(p)))
			return send_along_path(ctx, p, b, INGRESS_FORWARD);
	}
	return classify_miss(ctx, p, over);
}
