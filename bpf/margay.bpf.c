/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The data plane of a forwarder: one program on each of its interfaces. Ingress (CP sections 8.1 and 8.4): classify,
 * hold, rewrite, encapsulate. Egress: end the encapsulation, verify, deliver. Return (CP section 8.6): encapsulate to
 * the owner, restore the source there. Whatever is none of these goes to the kernel untouched. */
#include "amend.h"
#include "decap.h"
#include "release.h"
#include "reverse.h"

/* Kept in BTF for user space, which reads and writes them. */
const struct miss *miss_layout __attribute__((unused));
const struct release_header *release_layout __attribute__((unused));
const enum reason *reasons __attribute__((unused));
const enum role *roles __attribute__((unused));
const enum traffic_kind *traffic_kinds __attribute__((unused));
const enum sid_kind *sid_kinds __attribute__((unused));
const enum binding_kind *binding_kinds __attribute__((unused));
const enum binding_flag *binding_flags __attribute__((unused));

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* An IPv6 packet to a segment of this forwarder, which only the network may send. */
static __always_inline int to_segment(struct xdp_md *ctx, struct packet *p)
{
	const struct sid *sid = find_sid(p);

	if (!sid)
		return is_encapsulated(p) && is_in_local_block(p) ? drop(REASON_UNKNOWN_SID) : CONTINUE;
	if (!(p->role & ROLE_CORE))
		return drop(REASON_UNAUTHORIZED);
	return process_segment(ctx, p, sid);
}

static __always_inline int forward(struct xdp_md *ctx, struct packet *p)
{
	int action;

	if (p->version == 6 && (p->role & ROLE_CORE)) {
		action = to_segment(ctx, p);
		if (action != CONTINUE)
			return action;
	}
	if (p->role & ROLE_CLIENT) {
		action = from_client(ctx, p);
		if (action != CONTINUE)
			return action;
	}
	if (p->role & ROLE_INSTANCE) {
		action = from_instance(ctx, p);
		if (action != CONTINUE)
			return action;
	}
	if (p->role & ROLE_CORE)
		return from_core(ctx, p);
	return p->version == 6 ? to_segment(ctx, p) : CONTINUE;
}

SEC("xdp")
int margay(struct xdp_md *ctx)
{
	__u32 ingress = ctx->ingress_ifindex;
	const struct port *port = bpf_map_lookup_elem(&ports, &ingress);
	struct packet p = {};
	int action;

	if (!port)
		return XDP_PASS;
	p.port = port;
	p.ingress = ingress;
	p.role = port->role;
	if (p.role & ROLE_RELEASE) {
		if (!is_release(ctx))
			return pass(bpf_xdp_get_buff_len(ctx));
		if (take_up_released(ctx, &p))
			return drop(REASON_UNAUTHORIZED);
	} else if (!is_for(ctx, port)) {
		return pass(bpf_xdp_get_buff_len(ctx));
	}
	parse(ctx, &p);
	action = p.version ? forward(ctx, &p) : CONTINUE;
	if (action != CONTINUE)
		return action;
	if (p.released)
		return drop(REASON_NO_BINDING);
	return pass(bpf_xdp_get_buff_len(ctx));
}
