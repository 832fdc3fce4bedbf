package catsreq

import (
	"net/netip"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-net/margay/cats"
)

func arbitrary(t *rapid.T) Request {
	r := Request{Generation: rapid.Uint16().Draw(t, "generation")}
	switch r.Identity.Kind = Kind(rapid.IntRange(0, 4).Draw(t, "kind")); r.Identity.Kind {
	case KindNumber:
		r.Identity.Number = rapid.Uint32().Draw(t, "number")
	case KindIPv4:
		r.Identity.Address = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
	case KindIPv6:
		r.Identity.Address = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")))
	case KindName:
		r.Identity.Name = cats.CSID(rapid.StringMatching(`[A-Za-z0-9._:-]{1,63}`).Draw(t, "name"))
	}
	fillBounds(t, &r.Constraints.Hard)
	fillBounds(t, &r.Constraints.Preferences)
	r.Constraints.Hard.TargetPrice = cats.Optional[uint32]{}
	return r
}

// fillBounds sets every field of Bounds by reflection, so that a bound without an encoding fails the round trip.
func fillBounds(t *rapid.T, b *cats.Bounds) {
	v := reflect.ValueOf(b).Elem()
	for i := range v.NumField() {
		if rapid.Bool().Draw(t, "present") {
			v.Field(i).FieldByName("Present").SetBool(true)
			n := rapid.Uint32().Draw(t, "value")
			value := v.Field(i).FieldByName("Value")
			value.SetUint(uint64(n) & (1<<value.Type().Bits() - 1))
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := arbitrary(t)
		body, err := EncodeBody(&in)
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > MaxBody {
			t.Fatalf("body of %d octets", len(body))
		}
		if out, err := DecodeBody(body); err != nil || out != in {
			t.Fatalf("body: %+v became %+v, error %v", in, out, err)
		}
		header, err := EncodeHeader(6, &in)
		if err != nil {
			t.Fatal(err)
		}
		if out, found, err := DecodeHeader(header); err != nil || !found || out != in {
			t.Fatalf("mode A: %+v became %+v, found %t, error %v", in, out, found, err)
		}
		envelope, err := EncodeEnvelope(&in)
		if err != nil {
			t.Fatal(err)
		}
		if out, n, err := DecodeEnvelope(envelope); err != nil || n != len(envelope) || out != in {
			t.Fatalf("mode B: %+v became %+v, length %d, error %v", in, out, n, err)
		}
	})
}

// FuzzDecode feeds arbitrary octets to the three decoders; a request that is accepted encodes to one that is the same.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		exampleBody,
		"06 02 1E 11 " + exampleBody + " 01 01 00",
		"43 41 54 53 00 11 " + exampleBody,
		"01 00 00 00 01 11 03 20 01 0D B8 00 00 00 00 00 00 00 00 00 00 00 64 03 03 85 01 09 FF 00",
		"06 03 00 C2 04 00 00 00 01 1E 11 " + exampleBody + " 01 02 00 00",
	} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(what string, in Request) {
			body, err := EncodeBody(&in)
			if err != nil {
				t.Fatalf("%s: accepted %+v, which does not encode: %v", what, in, err)
			}
			if out, err := DecodeBody(body); err != nil || out != in {
				t.Fatalf("%s: %+v became %+v, error %v", what, in, out, err)
			}
		}
		if r, err := DecodeBody(b); err == nil {
			same("body", r)
		}
		if r, found, err := DecodeHeader(b); err == nil && found {
			same("mode A", r)
		}
		if r, n, err := DecodeEnvelope(b); err == nil && n > 0 {
			if n > len(b) {
				t.Fatalf("envelope of %d octets in %d", n, len(b))
			}
			same("mode B", r)
		}
	})
}
