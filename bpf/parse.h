/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Parsing: Ethernet, VLAN, IPv4, IPv6 with extension headers, TCP and UDP. It reads nothing that it has not checked to
 * be inside the frame, and inside the IP packet. */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"

#define MAX_EXTENSION_HEADERS 6
#define SRH_TYPE 4
#define MAX_OFFSET 0x3fff
#define MAX_PACKET (MAX_OFFSET - ETH_HLEN - 8) /* the longest IP packet that is looked at, behind two VLAN tags */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define IPV4_MORE_OR_OFFSET 0x3fff
#define IPV4_OFFSET 0x1fff

enum shape {
	SHAPE_OTHER,  /* not TCP or UDP over IP */
	SHAPE_FLOW,   /* TCP or UDP: key is complete */
	SHAPE_BROKEN, /* IP whose transport header is cut off, a fragment, or at odds with itself: addresses are valid */
};

/* What is known of the packet at hand. Offsets are from the start of the frame. */
struct packet {
	struct binding_key key; /* protocol 0: it cannot be known */
	__u32 l3;     /* offset of the IP header */
	__u32 l4;     /* offset of the TCP or UDP header */
	__u32 length; /* of the IP packet, its header included */
	__u32 vlan;   /* tag; two tags: outer << 16 | inner */
	__u8 version; /* 4, 6; 0: not IP */
	__u8 shape;
	__u8 next;          /* IPv6: the first next-header value */
	__u8 walked;        /* IPv6: the extension headers could be read to their end */
	__u8 source_routed; /* IPv6: among them is a segment routing header */
	__u8 has_ports;     /* the key has the ports, also where the shape is broken */
	__u8 tcp_flags;     /* TCP: the flags octet */
	__u8 traffic_class; /* of the IP header */
	__u8 hop_limit;
	__u8 released;
	const struct port *port; /* that the frame is on; its MAC is the kernel's */
	const struct port *origin; /* that the packet came in on, also when it was held */
	__u32 ingress;             /* the interface index of origin */
	__u32 role;              /* of ingress */
	__u32 place;             /* of the binding that was found */
};

static __always_inline void *frame_start(struct xdp_md *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *frame_end(struct xdp_md *ctx)
{
	return (void *)(long)ctx->data_end;
}

/* Gives the octet at offset, which the caller knows to be at most MAX_OFFSET; the verifier forgets that with a value
 * that went through the stack, so it is told again. */
static __always_inline void *octet(struct xdp_md *ctx, __u64 offset)
{
	asm volatile("%0 &= 0x3fff" : "+r"(offset));
	return frame_start(ctx) + offset;
}

static __always_inline void map_ipv4(struct address *a, __be32 ipv4)
{
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = bpf_htonl(0xffff);
	a->word[3] = ipv4;
}

static __always_inline int is_same(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] && a->word[3] == b->word[3];
}

/* Tells whether all of the IP packet is in the frame. */
static __always_inline int is_whole(struct xdp_md *ctx, const struct packet *p)
{
	return p->length <= MAX_PACKET && octet(ctx, p->l3 + p->length) <= frame_end(ctx);
}

/* Such an address never is on the wire (RFC 4291); taken for an IPv4 address it would match what it must not. */
static __always_inline int is_mapped(const struct address *a)
{
	return !a->word[0] && !a->word[1] && a->word[2] == bpf_htonl(0xffff);
}

static __always_inline int is_initial_syn(const struct packet *p)
{
	return (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* Reads the transport header at l4 of a packet whose network header is sound. */
static __always_inline void parse_transport(struct xdp_md *ctx, struct packet *p)
{
	void *header = octet(ctx, p->l4), *end = frame_end(ctx);
	__u32 l4 = p->l4, room;
	__u8 protocol = p->key.protocol;
	__be16 *ports = header;

	p->shape = SHAPE_OTHER;
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return;
	p->shape = SHAPE_BROKEN;
	if (l4 > MAX_OFFSET || p->l3 + p->length < l4)
		return;
	room = p->l3 + p->length - l4;
	if (room < 4 || (void *)(ports + 2) > end)
		return;
	p->key.source_port = ports[0];
	p->key.target_port = ports[1];
	p->has_ports = 1;
	if (protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = header;

		if (room < sizeof(*tcp) || (void *)(tcp + 1) > end)
			return;
		p->tcp_flags = ((__u8 *)tcp)[13];
		if (tcp->doff < 5 || tcp->doff * 4u > room)
			return;
	} else {
		struct udphdr *udp = header;

		if (room < sizeof(*udp) || (void *)(udp + 1) > end)
			return;
		if (bpf_ntohs(udp->len) < sizeof(*udp) || bpf_ntohs(udp->len) > room)
			return;
		if (!udp->check && p->version == 6)
			return; /* RFC 8200 section 8.1 */
	}
	p->shape = SHAPE_FLOW;
}

static __always_inline void parse_ipv4(struct xdp_md *ctx, struct packet *p)
{
	struct iphdr *ip = octet(ctx, p->l3);
	__u32 header, fragment;

	if ((void *)(ip + 1) > frame_end(ctx) || ip->version != 4)
		return;
	p->version = 4;
	map_ipv4(&p->key.source, ip->saddr);
	map_ipv4(&p->key.target, ip->daddr);
	p->key.protocol = ip->protocol;
	p->traffic_class = ip->tos;
	p->hop_limit = ip->ttl;
	p->length = bpf_ntohs(ip->tot_len);
	p->shape = SHAPE_BROKEN;
	header = ip->ihl * 4;
	if (header < sizeof(*ip) || p->length < header)
		return;
	fragment = bpf_ntohs(ip->frag_off) & IPV4_MORE_OR_OFFSET;
	if (fragment & IPV4_OFFSET)
		return;
	p->l4 = p->l3 + header;
	parse_transport(ctx, p);
	if (fragment || !is_whole(ctx, p))
		p->shape = SHAPE_BROKEN;
}

static __always_inline int is_extension_header(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_FRAGMENT || next == IPPROTO_DSTOPTS ||
		   next == IPPROTO_AH;
}

/* Walks over the extension headers; gives the protocol behind them, with its offset in l4, or 0 if it cannot be known. A
 * fragment header sets *fragment to 1, or 2 where the transport header is in another fragment. What is behind an
 * authentication header must not be changed: that header is the protocol then, but the walk goes on. */
static __always_inline __u8 walk_extension_headers(struct xdp_md *ctx, struct packet *p, int *fragment)
{
	void *end = frame_end(ctx);
	__u32 offset = p->l3 + sizeof(struct ipv6hdr), limit = p->l3 + p->length;
	__u8 next = p->next, on_the_way = 0, authenticated = 0;

#pragma unroll
	for (int i = 0; i <= MAX_EXTENSION_HEADERS; i++) {
		__u8 *header = octet(ctx, offset);

		p->l4 = offset;
		if (!is_extension_header(next)) {
			p->walked = 1;
			if (on_the_way)
				return 0; /* the destination is not the last */
			return authenticated ? IPPROTO_AH : next;
		}
		if (i == MAX_EXTENSION_HEADERS || offset > MAX_OFFSET || offset + 8 > limit || header + 8 > (__u8 *)end)
			return 0;
		if (next == IPPROTO_ROUTING) {
			p->source_routed |= header[2] == SRH_TYPE;
			on_the_way |= header[3] != 0;
		}
		if (next == IPPROTO_FRAGMENT && (header[2] | (header[3] & 0xf8))) {
			*fragment = 2;
			p->walked = 1;
			return is_extension_header(header[0]) ? 0 : header[0];
		}
		if (next == IPPROTO_FRAGMENT) {
			*fragment = 1;
			offset += 8;
		} else if (next == IPPROTO_AH) {
			authenticated = 1;
			offset += (header[1] + 2) * 4;
		} else {
			offset += (header[1] + 1) * 8;
		}
		if (offset > limit)
			return 0;
		next = header[0];
	}
	return 0;
}

static __always_inline void parse_ipv6(struct xdp_md *ctx, struct packet *p)
{
	struct ipv6hdr *ip = octet(ctx, p->l3);
	int fragment = 0;

	if ((void *)(ip + 1) > frame_end(ctx) || ip->version != 6)
		return;
	__builtin_memcpy(&p->key.source, &ip->saddr, sizeof(p->key.source));
	__builtin_memcpy(&p->key.target, &ip->daddr, sizeof(p->key.target));
	if (is_mapped(&p->key.source) || is_mapped(&p->key.target))
		return;
	p->version = 6;
	p->traffic_class = (ip->priority << 4) | (ip->flow_lbl[0] >> 4);
	p->hop_limit = ip->hop_limit;
	p->next = ip->nexthdr;
	p->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	p->shape = SHAPE_BROKEN;
	p->key.protocol = walk_extension_headers(ctx, p, &fragment);
	if (!p->key.protocol || fragment == 2)
		return;
	parse_transport(ctx, p);
	if (fragment || !is_whole(ctx, p))
		p->shape = SHAPE_BROKEN;
}

/* Reads the Ethernet header and up to two VLAN tags; gives the ethertype, or 0 if the frame ends before it. */
static __always_inline __u16 parse_link(struct xdp_md *ctx, struct packet *p)
{
	struct ethhdr *ethernet = frame_start(ctx);
	void *end = frame_end(ctx);
	__be16 ethertype;

	if ((void *)(ethernet + 1) > end)
		return 0;
	ethertype = ethernet->h_proto;
	p->l3 = sizeof(*ethernet);
#pragma unroll
	for (int tags = 0; tags < 2; tags++) {
		__be16 *tag = frame_start(ctx) + sizeof(*ethernet) + 4 * tags;

		if (ethertype != bpf_htons(ETH_P_8021Q) && ethertype != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 2) > end)
			return 0;
		p->vlan = p->vlan << 16 | (bpf_ntohs(tag[0]) & 0xfff);
		p->l3 += 4;
		ethertype = tag[1];
	}
	return bpf_ntohs(ethertype);
}

static __always_inline void parse(struct xdp_md *ctx, struct packet *p)
{
	__u16 ethertype = parse_link(ctx, p);

	if (ethertype == ETH_P_IP)
		parse_ipv4(ctx, p);
	else if (ethertype == ETH_P_IPV6)
		parse_ipv6(ctx, p);
}

/* Tells whether the frame is addressed to the interface that it came in on. */
static __always_inline int is_for(struct xdp_md *ctx, const struct port *port)
{
	const __u16 *target = frame_start(ctx), *mac = (const __u16 *)port->mac;

	if ((void *)target + ETH_HLEN > frame_end(ctx))
		return 0;
	return target[0] == mac[0] && target[1] == mac[1] && target[2] == mac[2];
}
