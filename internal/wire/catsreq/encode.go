package catsreq

import (
	"encoding/binary"
	"fmt"

	"github.com/margay-net/margay/cats"
)

// EncodeBody gives the body of r: the CS-ID, the network and the computing constraints, each list in ascending order of
// its sub types. An identity that does not fit its kind, and a wanted price as a hard bound, are cats.ReasonMalformed.
func EncodeBody(r *Request) ([]byte, error) {
	if r.Constraints.Hard.TargetPrice.Present {
		return nil, fmt.Errorf("the wanted price can only be a preference: %w", cats.ReasonMalformed)
	}
	b := binary.BigEndian.AppendUint16([]byte{Version, 0}, r.Generation)
	b, err := appendIdentity(b, &r.Identity)
	if err != nil {
		return nil, err
	}
	b = appendConstraints(b, typeNetwork, networkConstraints, &r.Constraints)
	b = appendConstraints(b, typeComputing, computingConstraints, &r.Constraints)
	if len(b) > MaxBody {
		return nil, fmt.Errorf("body of %d octets, at most %d: %w", len(b), MaxBody, cats.ReasonMalformed)
	}
	return b, nil
}

func appendIdentity(b []byte, id *Identity) ([]byte, error) {
	var value []byte
	switch id.Kind {
	case KindNone:
		return b, nil
	case KindNumber:
		value = binary.BigEndian.AppendUint32(nil, id.Number)
	case KindIPv4, KindIPv6:
		if want := map[Kind]int{KindIPv4: 32, KindIPv6: 128}[id.Kind]; id.Address.BitLen() != want {
			return nil, fmt.Errorf("address %s is not of the kind %d of this CS-ID: %w", id.Address, id.Kind, cats.ReasonMalformed)
		}
		value = id.Address.AsSlice()
	case KindName:
		if _, err := cats.ParseCSID(string(id.Name)); err != nil {
			return nil, fmt.Errorf("%v: %w", err, cats.ReasonMalformed)
		}
		value = []byte(id.Name)
	default:
		return nil, fmt.Errorf("CS-ID of kind %d, need 1 to 4: %w", id.Kind, cats.ReasonMalformed)
	}
	b = append(b, typeCSID, byte(1+len(value)), byte(id.Kind))
	return append(b, value...), nil
}

// appendConstraints appends one TLV with the bounds of table that are present, nothing where none is.
func appendConstraints(b []byte, tlv byte, table []constraint, c *cats.Constraints) []byte {
	var value []byte
	for _, set := range []struct {
		flag   byte
		bounds *cats.Bounds
	}{{0, &c.Hard}, {preference, &c.Preferences}} {
		for i := range table {
			value = table[i].append(value, set.flag, set.bounds)
		}
	}
	if len(value) == 0 {
		return b
	}
	b = append(b, tlv, byte(len(value)))
	return append(b, value...)
}

func (c *constraint) append(b []byte, flag byte, bounds *cats.Bounds) []byte {
	if c.narrow != nil {
		if o := c.narrow(bounds); o.Present {
			b = append(b, c.sub|flag, 1, o.Value)
		}
		return b
	}
	if o := c.wide(bounds); o.Present {
		b = binary.BigEndian.AppendUint32(append(b, c.sub|flag, 4), o.Value)
	}
	return b
}
