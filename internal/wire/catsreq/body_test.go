package catsreq

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-net/margay/cats"
)

// example is the request of CP section 14: CS-ID S1 and a maximum delay of 20 ms.
func example() *Request {
	return &Request{
		Identity:    Identity{Kind: KindName, Name: "S1"},
		Constraints: cats.Constraints{Hard: cats.Bounds{MaxDelayUS: cats.Some[uint32](20_000)}},
		Generation:  1,
	}
}

const exampleBody = "01 00 00 01 01 03 04 53 31 02 06 01 04 00 00 4E 20"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The published example of the project, octet for octet, in its three framings.
func TestExample(t *testing.T) {
	for _, test := range []struct {
		name   string
		octets string
		encode func(*Request) ([]byte, error)
		decode func([]byte) (Request, error)
	}{
		{"body", exampleBody, EncodeBody, DecodeBody},
		{"mode A option", "1E 11 " + exampleBody, EncodeOption, nil},
		{
			"mode A header", "06 02 1E 11 " + exampleBody + " 01 01 00",
			func(r *Request) ([]byte, error) { return EncodeHeader(6, r) },
			func(b []byte) (Request, error) {
				r, found, err := DecodeHeader(b)
				if err == nil && !found {
					err = errors.New("no option found")
				}
				return r, err
			},
		},
		{
			"mode B envelope", "43 41 54 53 00 11 " + exampleBody, EncodeEnvelope,
			func(b []byte) (Request, error) {
				r, n, err := DecodeEnvelope(append(b, "GET / HTTP/1.1"...))
				if err == nil && n != 23 {
					err = errors.New("wrong length")
				}
				return r, err
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := unhex(t, test.octets)
			got, err := test.encode(example())
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("encoded % X, error %v, want % X", got, err, want)
			}
			if test.decode == nil {
				return
			}
			r, err := test.decode(want)
			if err != nil || r != *example() {
				t.Fatalf("decoded %+v, error %v", r, err)
			}
		})
	}
}

func TestDecodeBody(t *testing.T) {
	some32, some8 := cats.Some[uint32], cats.Some[uint8]
	hard := func(b cats.Bounds) Request { return Request{Constraints: cats.Constraints{Hard: b}} }
	wish := func(b cats.Bounds) Request { return Request{Constraints: cats.Constraints{Preferences: b}} }
	tests := []struct {
		name   string
		octets string
		want   Request
		reason cats.Reason
	}{
		{"nothing but a head", "01 00 FF FE", Request{Generation: 0xFFFE}, 0},
		{"number", "01 00 00 00 01 05 01 00 00 00 07", Request{Identity: Identity{Kind: KindNumber, Number: 7}}, 0},
		{"IPv4", "01 00 00 00 01 05 02 C0 00 02 64", Request{Identity: Identity{Kind: KindIPv4, Address: netip.MustParseAddr("192.0.2.100")}}, 0},
		{
			"IPv6", "01 00 00 00 01 11 03 20 01 0D B8 00 00 00 00 00 00 00 00 00 00 00 64",
			Request{Identity: Identity{Kind: KindIPv6, Address: netip.MustParseAddr("2001:db8::64")}}, 0,
		},
		{
			"every network bound", "01 00 00 00 02 1E 01 04 00 00 00 01 02 04 00 00 00 02 03 04 00 00 00 03 04 04 00 00 00 04 05 04 00 00 00 05",
			hard(cats.Bounds{
				MaxDelayUS: some32(1), MaxJitterUS: some32(2), MinBandwidthKbps: some32(3), MaxLossPPM: some32(4), MaxRealDelayUS: some32(5),
			}), 0,
		},
		{
			"every computing bound", "01 00 00 00 03 18 01 04 00 00 00 01 02 04 00 00 00 02 03 04 00 00 00 03 04 01 04 05 01 05",
			hard(cats.Bounds{
				MinSlots: some32(1), MaxComputingTimeMS: some32(2), MaxPrice: some32(3), MinSecurity: some8(4), MinReputation: some8(5),
			}), 0,
		},
		{"wanted price", "01 00 00 00 03 06 86 04 00 00 00 09", wish(cats.Bounds{TargetPrice: some32(9)}), 0},
		{
			"bound beside preference", "01 00 00 00 02 0C 01 04 00 00 00 14 81 04 00 00 00 0A",
			Request{Constraints: cats.Constraints{
				Hard: cats.Bounds{MaxDelayUS: some32(20)}, Preferences: cats.Bounds{MaxDelayUS: some32(10)},
			}}, 0,
		},
		{"TLVs in another order", "01 00 00 00 02 06 01 04 00 00 00 01 01 05 01 00 00 00 07", Request{
			Identity: Identity{Kind: KindNumber, Number: 7}, Constraints: cats.Constraints{Hard: cats.Bounds{MaxDelayUS: some32(1)}},
		}, 0},
		{"zero is a bound", "01 00 00 00 02 06 01 04 00 00 00 00", hard(cats.Bounds{MaxDelayUS: some32(0)}), 0},
		{"empty constraints", "01 00 00 00 02 00 03 00", Request{}, 0},
		{"unknown ignorable TLV", "01 00 00 00 FF 02 AB CD", Request{}, 0},
		{"unknown preference", "01 00 00 00 02 03 FF 01 00", Request{}, 0},

		{"empty", "", Request{}, cats.ReasonMalformed},
		{"short head", "01 00 00", Request{}, cats.ReasonMalformed},
		{"version 0", "00 00 00 00", Request{}, cats.ReasonVersion},
		{"version 2", "02 00 00 00", Request{}, cats.ReasonVersion},
		{"flags", "01 01 00 00", Request{}, cats.ReasonMalformed},
		{"TLV without length", "01 00 00 00 01", Request{}, cats.ReasonMalformed},
		{"TLV overruns the body", "01 00 00 00 01 06 01 00 00 00 07", Request{}, cats.ReasonMalformed},
		{"ignorable TLV overruns the body", "01 00 00 00 FF 03 AB CD", Request{}, cats.ReasonMalformed},
		{"sub-TLV overruns its TLV", "01 00 00 00 02 05 01 04 00 00 00 01", Request{}, cats.ReasonMalformed},
		{"sub-TLV without length", "01 00 00 00 02 01 01", Request{}, cats.ReasonMalformed},
		{"unknown TLV", "01 00 00 00 04 00", Request{}, cats.ReasonUnknownType},
		{"TLV type 0", "01 00 00 00 00 00", Request{}, cats.ReasonUnknownType},
		{"unknown hard network bound", "01 00 00 00 02 06 06 04 00 00 00 01", Request{}, cats.ReasonUnknownType},
		{"unknown hard computing bound", "01 00 00 00 03 03 07 01 00", Request{}, cats.ReasonUnknownType},
		{"wanted price as a hard bound", "01 00 00 00 03 06 06 04 00 00 00 09", Request{}, cats.ReasonUnknownType},
		{"CS-ID twice", "01 00 00 00 01 03 04 53 31 01 03 04 53 31", Request{}, cats.ReasonDuplicate},
		{"ignorable TLV twice", "01 00 00 00 FF 00 FF 00", Request{}, cats.ReasonDuplicate},
		{"bound twice", "01 00 00 00 02 0C 01 04 00 00 00 01 01 04 00 00 00 01", Request{}, cats.ReasonDuplicate},
		{"preference twice", "01 00 00 00 02 0C 81 04 00 00 00 01 81 04 00 00 00 01", Request{}, cats.ReasonDuplicate},
		{"unknown preference twice", "01 00 00 00 02 04 FF 00 FF 00", Request{}, cats.ReasonDuplicate},
		{"CS-ID without kind", "01 00 00 00 01 00", Request{}, cats.ReasonMalformed},
		{"CS-ID of kind 0", "01 00 00 00 01 01 00", Request{}, cats.ReasonMalformed},
		{"CS-ID of kind 5", "01 00 00 00 01 02 05 00", Request{}, cats.ReasonMalformed},
		{"short number", "01 00 00 00 01 04 01 00 00 07", Request{}, cats.ReasonMalformed},
		{"IPv4 of 16 octets", "01 00 00 00 01 11 02 20 01 0D B8 00 00 00 00 00 00 00 00 00 00 00 64", Request{}, cats.ReasonMalformed},
		{"IPv6 of 4 octets", "01 00 00 00 01 05 03 C0 00 02 64", Request{}, cats.ReasonMalformed},
		{"empty name", "01 00 00 00 01 01 04", Request{}, cats.ReasonMalformed},
		{"name outside the alphabet", "01 00 00 00 01 03 04 53 20", Request{}, cats.ReasonMalformed},
		{"name of 64 octets", "01 00 00 00 01 41 04 " + strings.Repeat("53", 64), Request{}, cats.ReasonMalformed},
		{"short bound", "01 00 00 00 02 05 01 03 00 00 01", Request{}, cats.ReasonMalformed},
		{"long octet", "01 00 00 00 03 04 04 02 00 01", Request{}, cats.ReasonMalformed},
		{"more than 255 octets", "01 00 00 00 FF FA " + strings.Repeat("00", 250), Request{}, cats.ReasonMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := DecodeBody(unhex(t, test.octets))
			if test.reason != cats.ReasonNone {
				if !errors.Is(err, test.reason) || got != (Request{}) {
					t.Fatalf("request %+v, error %v, want %s", got, err, test.reason)
				}
				return
			}
			if err != nil || got != test.want {
				t.Fatalf("request %+v, error %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestEncodeBodyRefuses(t *testing.T) {
	for name, r := range map[string]*Request{
		"name outside the alphabet":    {Identity: Identity{Kind: KindName, Name: "a b"}},
		"IPv4 kind of an IPv6 address": {Identity: Identity{Kind: KindIPv4, Address: netip.MustParseAddr("2001:db8::1")}},
		"IPv6 kind of no address":      {Identity: Identity{Kind: KindIPv6}},
		"unknown kind":                 {Identity: Identity{Kind: 5}},
		"wanted price as hard bound":   {Constraints: cats.Constraints{Hard: cats.Bounds{TargetPrice: cats.Some[uint32](1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := EncodeBody(r); !errors.Is(err, cats.ReasonMalformed) {
				t.Fatalf("octets % X, error %v", b, err)
			}
		})
	}
}
