package catsreq

import (
	"github.com/margay-net/margay/cats"
)

// The TLV types of a body.
const (
	typeCSID      = 0x01
	typeNetwork   = 0x02
	typeComputing = 0x03
	ignorable     = 0x80 // of a TLV type: ignored when unknown
	preference    = 0x80 // of a sub type: a preference, ignored when unknown
)

// constraint is a sub-TLV: its number, and the bound that it sets. Exactly one of the two fields is used.
type constraint struct {
	sub            byte
	wide           func(*cats.Bounds) *cats.Optional[uint32] // value of 4 octets
	narrow         func(*cats.Bounds) *cats.Optional[uint8]  // value of 1 octet
	preferenceOnly bool
}

// size gives the octets of the value.
func (c *constraint) size() int {
	if c.narrow != nil {
		return 1
	}
	return 4
}

var networkConstraints = []constraint{
	{sub: 1, wide: func(b *cats.Bounds) *cats.Optional[uint32] { return &b.MaxDelayUS }},
	{sub: 2, wide: func(b *cats.Bounds) *cats.Optional[uint32] { return &b.MaxJitterUS }},
	{sub: 3, wide: func(b *cats.Bounds) *cats.Optional[uint32] { return &b.MinBandwidthKbps }},
	{sub: 4, wide: func(b *cats.Bounds) *cats.Optional[uint32] { return &b.MaxLossPPM }},
	{sub: 5, wide: func(b *cats.Bounds) *cats.Optional[uint32] { return &b.MaxRealDelayUS }},
}

var computingConstraints = []constraint{
	{sub: 1, wide: func(b *cats.Bounds) *cats.Optional[uint32] { return &b.MinSlots }},
	{sub: 2, wide: func(b *cats.Bounds) *cats.Optional[uint32] { return &b.MaxComputingTimeMS }},
	{sub: 3, wide: func(b *cats.Bounds) *cats.Optional[uint32] { return &b.MaxPrice }},
	{sub: 4, narrow: func(b *cats.Bounds) *cats.Optional[uint8] { return &b.MinSecurity }},
	{sub: 5, narrow: func(b *cats.Bounds) *cats.Optional[uint8] { return &b.MinReputation }},
	{sub: 6, wide: func(b *cats.Bounds) *cats.Optional[uint32] { return &b.TargetPrice }, preferenceOnly: true},
}

// find gives the constraint of a sub type, nil where it is unknown. A hard bound on something that is a preference only
// is unknown.
func find(table []constraint, sub byte) *constraint {
	for i := range table {
		if c := &table[i]; c.sub == sub&^preference && (sub&preference != 0 || !c.preferenceOnly) {
			return c
		}
	}
	return nil
}
