/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Holding: a packet of a service without binding goes to user space as a whole, and nowhere else (CP section 8.1). */
#pragma once

#include "count.h"
#include "parse.h"

static __always_inline void describe(struct miss *m, const struct packet *p, __u32 service, __u32 over,
									 __u32 length)
{
	m->received = bpf_ktime_get_coarse_ns();
	m->key = p->key;
	m->service = service;
	m->ingress = p->ingress;
	m->length = length;
	m->vlan = p->vlan;
	m->tcp_flags = p->tcp_flags;
	m->over = over;
	m->pad = 0;
}

static __always_inline int hold(struct xdp_md *ctx, const struct packet *p, __u32 service, __u32 over)
{
	__u64 length = bpf_xdp_get_buff_len(ctx);

	if (length < ETH_HLEN)
		return drop(REASON_BAD_PACKET);
	if (length > MAX_FRAME)
		return drop(REASON_TOO_BIG);
	if (length <= SMALL_FRAME) {
		struct small_miss *m = bpf_ringbuf_reserve(&misses, sizeof(*m), 0);

		if (!m)
			return drop(REASON_HELD_FULL);
		describe(&m->miss, p, service, over, length);
		if (bpf_xdp_load_bytes(ctx, 0, m->frame, length)) {
			bpf_ringbuf_discard(m, 0);
			return drop(REASON_BAD_PACKET);
		}
		bpf_ringbuf_submit(m, 0);
	} else {
		struct large_miss *m = bpf_ringbuf_reserve(&misses, sizeof(*m), 0);

		if (!m)
			return drop(REASON_HELD_FULL);
		describe(&m->miss, p, service, over, length);
		if (bpf_xdp_load_bytes(ctx, 0, m->frame, length)) {
			bpf_ringbuf_discard(m, 0);
			return drop(REASON_BAD_PACKET);
		}
		bpf_ringbuf_submit(m, 0);
	}
	count_traffic(TRAFFIC_HELD, p->length);
	return XDP_DROP;
}
