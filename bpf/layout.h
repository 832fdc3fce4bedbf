/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Keys and values that the program shares with user space. Padding is explicit; fields named ..._port and addresses are
 * in network order. A change here is a new datapath.LayoutVersion. */
#pragma once

#include <linux/types.h>

#define MAX_SEGMENTS 10
#define MAX_OVERHEAD (40 + 8 + 16 * MAX_SEGMENTS)
#define SMALL_FRAME 184
#define MAX_FRAME 2048

/* An IPv6 address, or an IPv4 address mapped into IPv6 (RFC 4291 section 2.5.5.2). */
struct address {
	__be32 word[4];
};

enum role {
	ROLE_CLIENT = 1,
	ROLE_CORE = 2,
	ROLE_INSTANCE = 4,
	ROLE_RELEASE = 8,
};

/* ports: interface index → what the interface is for. */
struct port {
	__u32 role;
	__u8 mac[6];
	__u16 pad;
};

/* attachments: longest source prefix of an interface and VLAN → attachment number. */
struct attachment_key {
	__u32 prefix_length; /* 64 + that of source */
	__u32 ingress;
	__u32 vlan;
	struct address source;
};

/* services: longest prefix of a service address → service number. Protocol and port 0: some service covers target. */
struct service_key {
	__u32 prefix_length; /* 32 + that of target */
	__u8 protocol;
	__u8 pad;
	__be16 port;
	struct address target;
};

enum binding_kind {
	INGRESS_FORWARD,
	INGRESS_REVERSE,
	EGRESS_FORWARD,
	EGRESS_REVERSE,
	BINDING_KINDS,
};

/* bindings, announced, hold_down: a tuple in its direction. */
struct binding_key {
	__u32 attachment; /* of INGRESS_FORWARD; else 0 */
	__u8 kind;
	__u8 protocol;
	__be16 source_port;
	__be16 target_port;
	__u16 pad;
	struct address source;
	struct address target;
};

enum binding_flag {
	BINDING_DRAINING = 1,
};

/* bindings: what to do with a packet, then what was seen, then whose it is. */
struct binding {
	struct address rewrite; /* new destination, or restored source */
	__u32 path;
	__u32 next_hop;
	__be32 flow_label;
	__be16 rewrite_port;
	__sum16 transport_delta; /* one's complement sum of the change to address and port */
	__sum16 network_delta;   /* the same of an IPv4 address alone */
	__u8 flags;
	__u8 tcp_flags; /* seen */
	__u32 pad0;
	__u64 last_seen; /* CLOCK_MONOTONIC ns */
	__u64 packets;
	__u64 octets;

	__u8 transaction[16];
	__u64 epoch_term;
	__u64 epoch_counter;
	__u32 shard;
	__u32 version;
	__u32 service;
	__u32 pad1;
};

/* The argument of amend: new values for an entry of this transaction. */
struct amendment {
	struct binding_key key;
	__u8 transaction[16];
	__u32 path;
	__u32 next_hop;
	__u32 shard;
	__u64 epoch_term;
	__u64 epoch_counter;
	__u32 version;
	__u32 flags;
};

/* paths: id → outer headers as octets, complete but for what depends on the packet. No state: no path. */
struct path {
	__u32 usable;
	__u32 next_hop;
	__u16 overhead; /* octets of outer; 0 on a native path */
	__u16 segments;
	__u32 pad;
	__u8 outer[MAX_OVERHEAD];
};

/* next_hops: id → neighbour. No ifindex: unresolved. */
struct next_hop {
	__u32 ifindex;
	__u8 source[6];
	__u8 target[6];
	__u16 vlan;
	__u16 mtu; /* 0: not checked */
};

enum sid_kind {
	SID_DELIVER,
	SID_RETURN,
};

/* sids: local segment → behaviour; locators: (address, port, protocol) → next hop of the instance; hosts: address of
 * locators → their protocols, bit n for protocol n. */
struct sid {
	__u32 kind;
	__u32 next_hop;
	struct address locator;
	__be16 locator_port;
	__u8 locator_protocol;
	__u8 pad;
};

struct locator_key {
	struct address locator;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

/* blocks: the one entry about the prefix that local segments are taken from. */
struct block {
	__be64 prefix[2];
	__be64 mask[2];
	__u32 enabled;
	__u32 pad;
};

/* domain: prefix of the SID space of the SR domain → 1. */
struct domain_key {
	__u32 prefix_length; /* that of target */
	struct address target;
};

/* hold_down: a key → until when its misses are dropped, and why. */
struct held_down {
	__u64 until; /* CLOCK_MONOTONIC ns */
	__u32 reason;
	__u32 pad;
};

/* epochs: shard → highest epoch seen; only user space uses it. */
struct epoch {
	__u64 term;
	__u64 counter;
};

/* state: the one entry about the pinned maps themselves; only user space uses it. */
struct incarnation {
	__u32 layout;
	__u32 pad;
	__u8 id[16];
};

enum traffic_kind {
	/* the first BINDING_KINDS are the binding kinds */
	TRAFFIC_PASSED = BINDING_KINDS,
	TRAFFIC_HELD,
	TRAFFIC_UNRESOLVED,
	TRAFFIC_KINDS,
};

struct traffic {
	__u64 packets;
	__u64 octets;
};

/* misses: a held packet; its frame follows. */
struct miss {
	__u64 received; /* CLOCK_MONOTONIC ns */
	struct binding_key key;
	__u32 service;
	__u32 ingress;
	__u32 length; /* of the frame */
	__u16 vlan;
	__u8 tcp_flags;
	__u8 over;
	__u32 pad;
};

struct small_miss {
	struct miss miss;
	__u8 frame[SMALL_FRAME];
};

struct large_miss {
	struct miss miss;
	__u8 frame[MAX_FRAME];
};

/* What user space puts before a held packet when it sends it through the private veth. */
#define RELEASE_ETHERTYPE 0x88B5 /* IEEE 802 local experimental */
#define RELEASE_MAGIC 0x4d47

struct release_header {
	__u8 target[6];
	__u8 source[6];
	__be16 ethertype;
	__be16 magic;
	__be32 ingress;
};
