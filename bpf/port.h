/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What is known of an interface, by its index. */
#pragma once

#include "maps.h"

static __always_inline const struct port *find_port(__u32 ifindex)
{
#pragma unroll
	for (__u32 i = 0; i < PORT_PROBES; i++) {
		__u32 place = (ifindex + i) % PORTS;
		const struct port *port = bpf_map_lookup_elem(&ports, &place);

		if (port && port->ifindex == ifindex)
			return port;
	}
	return 0;
}
