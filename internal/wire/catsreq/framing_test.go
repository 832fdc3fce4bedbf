package catsreq

import (
	"errors"
	"strings"
	"testing"

	"github.com/margay-net/margay/cats"
)

func TestDecodeHeader(t *testing.T) {
	const option = "1E 11 " + exampleBody // 19 octets
	tests := []struct {
		name   string
		octets string
		found  bool
		reason cats.Reason
	}{
		{"padding alone", "06 00 01 04 00 00 00 00", false, 0},
		{"after Pad1 and another option", "06 03 00 C2 04 00 00 00 01 " + option + " 01 02 00 00", true, 0},
		{"payload behind the header", "06 02 " + option + " 01 01 00 1E 11 " + exampleBody, true, 0},
		{"option of skip-unknown, not ours", "06 00 1F 04 01 00 00 00", false, 0},
		{"short", "06 00 00", false, cats.ReasonMalformed},
		{"longer than what is there", "06 01 01 04 00 00 00 00", false, cats.ReasonMalformed},
		{"option overruns the header", "06 00 1E 05 01 00 00 00", false, cats.ReasonMalformed},
		{"option without length", "06 00 00 00 00 00 00 1E", false, cats.ReasonMalformed},
		{"another option overruns the header", "06 00 1F 05 01 00 00 00", false, cats.ReasonMalformed},
		{"two requests", "06 05 " + option + " " + option + " " + strings.Repeat("00 ", 8), false, cats.ReasonDuplicate},
		{"empty body", "06 00 1E 00 00 00 00 00", false, cats.ReasonMalformed},
		{"bad body", "06 00 1E 04 02 00 00 00", false, cats.ReasonVersion},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, found, err := DecodeHeader(unhex(t, test.octets))
			if test.reason != cats.ReasonNone && !errors.Is(err, test.reason) || test.reason == cats.ReasonNone && err != nil {
				t.Fatalf("error %v, want %s", err, test.reason)
			}
			if found != test.found || found && r != *example() || !found && r != (Request{}) {
				t.Fatalf("found %t, request %+v", found, r)
			}
		})
	}
}

// Every length of a body makes a header that is a multiple of 8 octets and is read again.
func TestHeaderPadding(t *testing.T) {
	for n := 1; n <= 63; n++ {
		in := &Request{Identity: Identity{Kind: KindName, Name: cats.CSID(strings.Repeat("a", n))}}
		header, err := EncodeHeader(17, in)
		if err != nil {
			t.Fatal(err)
		}
		if len(header)%8 != 0 || len(header) != 8*(int(header[1])+1) || header[0] != 17 {
			t.Fatalf("name of %d octets: header of %d octets, % X", n, len(header), header[:2])
		}
		out, found, err := DecodeHeader(header)
		if err != nil || !found || out != *in {
			t.Fatalf("name of %d octets: request %+v, found %t, error %v", n, out, found, err)
		}
	}
}

func TestDecodeEnvelope(t *testing.T) {
	tests := []struct {
		name   string
		octets string
		length int
		reason cats.Reason
	}{
		{"nothing", "", 0, 0},
		{"application data", "47 45 54 20 2F", 0, 0},
		{"less than the magic", "43 41 54", 0, 0},
		{"lower case", "63 61 74 73 00 11 " + exampleBody, 0, 0},
		{"magic at another position is not searched", "00 43 41 54 53 00 11 " + exampleBody, 0, 0},
		{"whole", "43 41 54 53 00 11 " + exampleBody, 23, 0},
		{"no length", "43 41 54 53 00", 0, cats.ReasonMalformed},
		{"overrun", "43 41 54 53 00 12 " + exampleBody, 0, cats.ReasonMalformed},
		{"body too short", "43 41 54 53 00 03 01 00 00", 0, cats.ReasonMalformed},
		{"body too long", "43 41 54 53 01 00 01 00 00 00 FF FA " + strings.Repeat("00", 250), 0, cats.ReasonMalformed},
		{"bad body", "43 41 54 53 00 04 01 80 00 00", 0, cats.ReasonMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, length, err := DecodeEnvelope(unhex(t, test.octets))
			if test.reason != cats.ReasonNone && !errors.Is(err, test.reason) || test.reason == cats.ReasonNone && err != nil {
				t.Fatalf("error %v, want %s", err, test.reason)
			}
			if length != test.length || length > 0 && r != *example() || length == 0 && r != (Request{}) {
				t.Fatalf("length %d, request %+v", length, r)
			}
		})
	}
}
