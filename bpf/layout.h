/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Keys and values that the program shares with user space. Padding is explicit; fields named ..._port and addresses are
 * in network order. A change here is a new cats.LayoutVersion. */
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

/* ports: what an interface is for. It is in one of PORT_PROBES places from its index on, modulo PORTS. Where all clients
 * of the interface are of one attachment, its first prefix of each family is here, and attachments need not be searched
 * for what is in it. */
#define PORTS 1024
#define PORT_PROBES 4

struct port {
	__u32 ifindex; /* 0: none */
	__u32 role;
	__u8 mac[6];
	__u16 pad;
	__u32 attachment; /* 0: to be searched for */
	__u32 vlan;
	__be32 prefix4;
	__be32 mask4;
	__u64 prefix6[2]; /* in network order */
	__u64 mask6[2];
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

/* A tuple in its direction: what a packet is looked up by. Key of announced and hold_down. */
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

/* What the tag of a place in the table says; user space alone writes it. */
enum binding_tag {
	TAG_NEVER,       /* nothing from here on: a search ends */
	TAG_QUARANTINED, /* removed; a program that found it before may still use it */
	TAG_FREE,        /* removed, and reusable; a search goes on */
	TAG_LIVE = 4,    /* set: an entry, and the other bits are of its hash */
};

/* bindings: open addressing, one cache line an entry. An entry is in the first PROBES places from where its hash points.
 * User space writes tag last, when everything else is there. */
#define PROBES 128
#define LAST_SEEN_SHIFT 22

struct binding {
	__u32 tag;
	__u32 attachment;
	__u64 pair; /* IPv4: source, target. IPv6: sum of the key; the addresses are in the record */
	__be16 source_port;
	__be16 target_port;
	__u8 kind; /* enum binding_kind, with BINDING_IPV6 */
	__u8 protocol;
	__u8 flags;
	__u8 tcp_flags; /* seen; the program sets them */
	__u32 record; /* place in records */
	__u32 onward; /* path of INGRESS_FORWARD and EGRESS_REVERSE, next hop of INGRESS_REVERSE */
	__be32 rewrite; /* IPv4: new destination, or restored source */
	__be16 rewrite_port;
	__sum16 transport_delta; /* one's complement sum of the change to address and port */
	__be32 flow_label;
	__u32 last_seen; /* CLOCK_MONOTONIC, in units of 2^LAST_SEEN_SHIFT ns */
	__u64 packets;
	__u64 octets;
};

#define BINDING_IPV6 4 /* beside the kind */

/* touched: a bit a place, set by a packet of its entry and cleared by user space when it reads the entry, so that it need
 * not read those that nothing came for. */

/* records: one cache line of what the program needs of an IPv6 entry, one of what user space alone needs of any. */
struct record {
	struct address source;
	struct address target;
	struct address rewrite;
	__u64 pad[2];

	__u8 transaction[16];
	__u64 epoch_term;
	__u64 epoch_counter;
	__u32 shard;
	__u32 version;
	__u32 service;
	__u32 pad1;
	__u64 pad2[2];
};

/* Constants of the binding table, known when the program is loaded. */
#define SECRETS 16

struct table_parameters {
	__u64 secret[SECRETS];
	__u32 homes; /* places that a hash may point to: each other one */
	__u32 pad;
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
	__u32 bindings; /* capacity */
	__u8 id[16];
	__u64 secret[SECRETS]; /* of the hash of bindings */
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
