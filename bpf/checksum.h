/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Incremental checksums (RFC 1624, equation 3). Deltas are one's complement sums of the octets as they lie in memory,
 * worked out by user space when it installs a binding, so that a packet costs one addition a checksum. */
#pragma once

#include <linux/types.h>
#include <bpf/bpf_endian.h>

static __always_inline __sum16 checksum_apply(__sum16 check, __u32 delta)
{
	__u32 sum = (__u16)~check + delta;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* The delta of one 16-bit word that becomes another, both in network order. */
static __always_inline __u32 checksum_delta(__be16 old, __be16 new)
{
	return (__u16)~old + (__u32)new;
}
