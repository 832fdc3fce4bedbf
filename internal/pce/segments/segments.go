// Package segments turns a path of nodes into what its headend can activate (CP section 8.3; RFC 8986, RFC 9256).
package segments

import (
	"fmt"
	"net/netip"

	"github.com/margay-net/margay/cats"
)

// Most is the most SRv6 segments that a headend can push, 0 where it pushes none; the error says why there are none.
func Most(headend string, c cats.Capabilities) (int, error) {
	if c.Encapsulations&cats.EncapSRv6 == 0 {
		return 0, fmt.Errorf("headend %s does not encapsulate in SRv6: %w", headend, cats.ReasonCapabilityMismatch)
	}
	if c.MaxSegments == 0 {
		return 0, fmt.Errorf("headend %s can push no SRv6 segment: %w", headend, cats.ReasonCapabilityMismatch)
	}
	return int(c.MaxSegments), nil
}

// SRv6 gives the segment list of a path, the headend first: the End SID of each transit node, so that the path is pinned
// link by link, and the endpoint, which is a SID of the last node. It is at most most segments long, else the error wraps
// ReasonCapabilityMismatch. A transit node without SID is an error that names it and wraps ReasonNoPath.
func SRv6(path []cats.Node, endpoint netip.Addr, most int) ([]netip.Addr, error) {
	if need := Count(len(path) - 1); need > most {
		return nil, fmt.Errorf("%d segments are more than the %d that headend %s can push: %w", need, most, path[0].Name,
			cats.ReasonCapabilityMismatch)
	}
	list := make([]netip.Addr, 0, len(path))
	for i := 1; i < len(path)-1; i++ {
		if !path[i].SID.IsValid() {
			return nil, fmt.Errorf("transit node %s has no SID, so no path can be pinned through it: %w", path[i].Name,
				cats.ReasonNoPath)
		}
		list = append(list, path[i].SID)
	}
	return append(list, endpoint), nil
}

// Count gives how many segments a path of that many links needs.
func Count(links int) int { return max(links, 1) }
