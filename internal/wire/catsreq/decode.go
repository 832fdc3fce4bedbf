package catsreq

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/margay-net/margay/cats"
)

// DecodeBody reads a body. It never reads beyond b, and allocates in proportion to nothing that b claims.
func DecodeBody(b []byte) (Request, error) {
	switch {
	case len(b) < MinBody:
		return Request{}, fmt.Errorf("body of %d octets, at least %d: %w", len(b), MinBody, cats.ReasonMalformed)
	case len(b) > MaxBody:
		return Request{}, fmt.Errorf("body of %d octets, at most %d: %w", len(b), MaxBody, cats.ReasonMalformed)
	case b[0] != Version:
		return Request{}, fmt.Errorf("body of version %d, need %d: %w", b[0], Version, cats.ReasonVersion)
	case b[1] != 0:
		return Request{}, fmt.Errorf("flags 0x%02x, need 0: %w", b[1], cats.ReasonMalformed)
	}
	r := Request{Generation: binary.BigEndian.Uint16(b[2:])}
	err := elements("TLV", b[MinBody:], func(kind byte, value []byte) error {
		switch {
		case kind == typeCSID:
			return r.Identity.decode(value)
		case kind == typeNetwork:
			return decodeConstraints("network constraint", value, networkConstraints, &r.Constraints)
		case kind == typeComputing:
			return decodeConstraints("computing constraint", value, computingConstraints, &r.Constraints)
		case kind&ignorable != 0:
			return nil
		}
		return fmt.Errorf("TLV type 0x%02x is unknown and may not be ignored: %w", kind, cats.ReasonUnknownType)
	})
	if err != nil {
		return Request{}, err
	}
	return r, nil
}

// elements walks over a list of Type(1) Length(1) Value; no type may stand twice.
func elements(what string, b []byte, use func(kind byte, value []byte) error) error {
	var seen [256]bool
	for len(b) > 0 {
		if len(b) < 2 || len(b)-2 < int(b[1]) {
			return fmt.Errorf("%s 0x%02x overruns the %d octets that are left: %w", what, b[0], len(b), cats.ReasonMalformed)
		}
		kind, value := b[0], b[2:2+int(b[1])]
		if seen[kind] {
			return fmt.Errorf("%s 0x%02x stands twice: %w", what, kind, cats.ReasonDuplicate)
		}
		seen[kind] = true
		if err := use(kind, value); err != nil {
			return err
		}
		b = b[2+len(value):]
	}
	return nil
}

func (id *Identity) decode(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("CS-ID without a kind: %w", cats.ReasonMalformed)
	}
	kind, value := Kind(b[0]), b[1:]
	size := map[Kind]int{KindNumber: 4, KindIPv4: 4, KindIPv6: 16, KindName: len(value)}
	need, known := size[kind]
	switch {
	case !known:
		return fmt.Errorf("CS-ID of kind %d, need 1 to 4: %w", kind, cats.ReasonMalformed)
	case len(value) != need:
		return fmt.Errorf("CS-ID of kind %d with %d octets, need %d: %w", kind, len(value), need, cats.ReasonMalformed)
	}
	id.Kind = kind
	switch kind {
	case KindNumber:
		id.Number = binary.BigEndian.Uint32(value)
	case KindIPv4, KindIPv6:
		id.Address, _ = netip.AddrFromSlice(value) // 4 or 16 octets, checked above
	case KindName:
		name, err := cats.ParseCSID(string(value))
		if err != nil {
			return fmt.Errorf("%v: %w", err, cats.ReasonMalformed)
		}
		id.Name = name
	}
	return nil
}

func decodeConstraints(what string, b []byte, table []constraint, c *cats.Constraints) error {
	return elements(what, b, func(sub byte, value []byte) error {
		known := find(table, sub)
		switch {
		case known == nil && sub&preference != 0:
			return nil
		case known == nil:
			return fmt.Errorf("%s 0x%02x is unknown and a hard bound: %w", what, sub, cats.ReasonUnknownType)
		case len(value) != known.size():
			return fmt.Errorf("%s 0x%02x with %d octets, need %d: %w", what, sub, len(value), known.size(), cats.ReasonMalformed)
		}
		bounds := &c.Hard
		if sub&preference != 0 {
			bounds = &c.Preferences
		}
		if known.narrow != nil {
			*known.narrow(bounds) = cats.Some(value[0])
		} else {
			*known.wide(bounds) = cats.Some(binary.BigEndian.Uint32(value))
		}
		return nil
	})
}
