/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Release: a held packet comes back through the private veth and goes on as if it had just arrived (CP section 8.4). */
#pragma once

#include "count.h"
#include "parse.h"
#include "port.h"

static __always_inline int is_release(struct xdp_md *ctx)
{
	struct release_header *header = frame_start(ctx);

	return (void *)(header + 1) <= frame_end(ctx) && header->ethertype == bpf_htons(RELEASE_ETHERTYPE) &&
		   header->magic == bpf_htons(RELEASE_MAGIC);
}

/* Strips the header that user space put before the frame, and takes over the ingress that it names; -1 if no client
 * can come in there any more. */
static __always_inline int take_up_released(struct xdp_md *ctx, struct packet *p)
{
	struct release_header *header = frame_start(ctx);
	const struct port *port;

	if ((void *)(header + 1) > frame_end(ctx))
		return -1;
	p->ingress = bpf_ntohl(header->ingress);
	port = find_port(p->ingress);
	if (!port || !(port->role & ROLE_CLIENT))
		return -1;
	p->origin = port;
	p->role = ROLE_CLIENT;
	p->released = 1;
	return bpf_xdp_adjust_head(ctx, sizeof(*header));
}
