/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The data plane of a forwarder: one program on each of its interfaces. Ingress (CP sections 8.1 and 8.4): classify,
 * hold, rewrite, encapsulate. Egress: end the encapsulation, verify, deliver. Return (CP section 8.6): encapsulate to
 * the owner, restore the source there. Whatever is none of these goes to the kernel untouched. */
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
const enum binding_tag *binding_tags __attribute__((unused));

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* An IPv6 packet from the network, perhaps to a segment of this forwarder. */
static __always_inline int to_segment(struct xdp_md *ctx, struct packet *p)
{
	const struct sid *sid = find_sid(p);

	if (!sid)
		return is_encapsulated(p) && is_in_local_block(p) ? drop(REASON_UNKNOWN_SID) : CONTINUE;
	return process_segment(ctx, p, sid);
}

/* What comes in from outside the SR domain carries no segment routing header (RFC 8754 section 5.1), nor headers that
 * one may be hidden behind. */
static __always_inline int refuse_source_routed(const struct packet *p)
{
	if (p->source_routed)
		return drop(REASON_UNAUTHORIZED);
	return p->walked ? CONTINUE : drop(REASON_BAD_PACKET);
}

/* Nor is it for a segment of any node. A packet with a binding does not come here: that was to a service or a client. */
static __always_inline int refuse_to_domain(const struct packet *p)
{
	if (is_in_domain(p) || find_sid(p) || (is_encapsulated(p) && is_in_local_block(p)))
		return drop(REASON_UNAUTHORIZED);
	return CONTINUE;
}

static __always_inline int forward(struct xdp_md *ctx, struct packet *p)
{
	int action;

	if (p->version == 6) {
		action = p->role & ROLE_CORE ? to_segment(ctx, p) : refuse_source_routed(p);
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
	return p->version == 6 ? refuse_to_domain(p) : CONTINUE;
}

SEC("xdp")
int margay(struct xdp_md *ctx)
{
	__u32 ingress = ctx->ingress_ifindex;
	const struct port *port = find_port(ingress);
	struct packet p = {};
	int action;

	if (!port)
		return XDP_PASS;
	p.port = port;
	p.origin = port;
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
