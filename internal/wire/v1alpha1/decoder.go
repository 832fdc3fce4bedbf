package v1alpha1

import (
	"fmt"
	"math"
	"net/netip"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/margay-net/margay/cats"
)

// decoder keeps the first error of one message; its methods check one field each and give a zero value after an error.
type decoder struct{ err error }

// fail records that field is wrong, for the reason.
func (d *decoder) fail(field string, reason cats.Reason, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: %s: %w", field, fmt.Sprintf(format, args...), reason)
	}
}

// malformed records an error that another package found in field.
func (d *decoder) malformed(field string, err error) {
	if err != nil {
		d.fail(field, cats.ReasonMalformed, "%v", err)
	}
}

// nest records the error of a message inside this one.
func (d *decoder) nest(field string, err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("%s.%w", field, err)
	}
}

// nestAt records the error of the i-th message of a list inside this one.
func (d *decoder) nestAt(field string, i int, err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("%s[%d].%w", field, i, err)
	}
}

// most checks the length of a list.
func (d *decoder) most(field string, n, most int) {
	if n > most {
		d.fail(field, cats.ReasonOversize, "%d elements, at most %d", n, most)
	}
}

// name checks the name of a node, agent, attachment, tenant or site.
func (d *decoder) name(field, s string) string {
	s, err := cats.ParseName("name", s)
	d.malformed(field, err)
	return s
}

// optionalName is name, or nothing.
func (d *decoder) optionalName(field, s string) string {
	if s == "" {
		return ""
	}
	return d.name(field, s)
}

func (d *decoder) csid(field, s string) cats.CSID {
	id, err := cats.ParseCSID(s)
	d.malformed(field, err)
	return id
}

func (d *decoder) csciid(field, s string) cats.CSCIID {
	id, err := cats.ParseCSCIID(s)
	d.malformed(field, err)
	return id
}

// text checks a text of at most most octets without control characters: it may reach a terminal.
func (d *decoder) text(field, s string, most int) string {
	if len(s) > most {
		d.fail(field, cats.ReasonOversize, "%d octets, at most %d", len(s), most)
		return ""
	}
	if !utf8.ValidString(s) {
		d.fail(field, cats.ReasonMalformed, "not UTF-8")
		return ""
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			d.fail(field, cats.ReasonMalformed, "control character %U", r)
			return ""
		}
	}
	return s
}

// label is a short text: a version, an identity of a boot, a stage.
func (d *decoder) label(field, s string) string { return d.text(field, s, 63) }

// detail is a text for a person.
func (d *decoder) detail(s string) string { return d.text("detail", s, MaxDetail) }

func (d *decoder) transaction(field string, b []byte) cats.Transaction {
	var t cats.Transaction
	if len(b) != len(t) {
		d.fail(field, cats.ReasonMalformed, "%d octets, need %d", len(b), len(t))
		return t
	}
	copy(t[:], b)
	if t.IsZero() {
		d.fail(field, cats.ReasonMalformed, "all zero")
	}
	return t
}

// address checks a unicast address of either family.
func (d *decoder) address(field string, b []byte) netip.Addr {
	a, ok := netip.AddrFromSlice(b)
	switch {
	case !ok:
		d.fail(field, cats.ReasonMalformed, "%d octets, need 4 or 16", len(b))
		return netip.Addr{}
	case a.Is4In6():
		d.fail(field, cats.ReasonMalformed, "%s is an IPv4-mapped IPv6 address", a)
	case a.IsUnspecified(), a.IsMulticast():
		d.fail(field, cats.ReasonMalformed, "%s is not a unicast address", a)
	}
	return a
}

// sid checks an SRv6 segment.
func (d *decoder) sid(field string, b []byte) netip.Addr {
	if len(b) != 16 {
		d.fail(field, cats.ReasonMalformed, "%d octets, need 16", len(b))
		return netip.Addr{}
	}
	a := netip.AddrFrom16([16]byte(b))
	if !cats.IsSID(a) {
		d.fail(field, cats.ReasonMalformed, "%s is not an IPv6 unicast address", a)
	}
	return a
}

// optionalSID is sid, or the zero Addr.
func (d *decoder) optionalSID(field string, b []byte) netip.Addr {
	if len(b) == 0 {
		return netip.Addr{}
	}
	return d.sid(field, b)
}

func (d *decoder) port(field string, p uint32) uint16 {
	if p < 1 || p > math.MaxUint16 {
		d.fail(field, cats.ReasonMalformed, "%d, need 1 to 65535", p)
	}
	return uint16(p)
}

func (d *decoder) protocol(field string, p uint32) cats.Protocol {
	if p != uint32(cats.TCP) && p != uint32(cats.UDP) {
		d.fail(field, cats.ReasonMalformed, "protocol %d, need 6 (TCP) or 17 (UDP)", p)
	}
	return cats.Protocol(p)
}

// positive checks a number that may not be zero.
func (d *decoder) positive(field string, v uint64) {
	if v == 0 {
		d.fail(field, cats.ReasonMalformed, "0, need a positive number")
	}
}

// uint8 checks a number that has to fit one octet.
func (d *decoder) uint8(field string, v uint32) uint8 {
	if v > math.MaxUint8 {
		d.fail(field, cats.ReasonMalformed, "%d, at most 255", v)
	}
	return uint8(v)
}

// loss checks parts per million of a measurement.
func (d *decoder) loss(field string, v uint32) uint32 {
	if v > maxPPM {
		d.fail(field, cats.ReasonRange, "%d, at most %d", v, maxPPM)
	}
	return v
}

// atMost checks a duration in ms.
func (d *decoder) atMost(field string, ms uint64, most time.Duration) time.Duration {
	if ms > uint64(most/time.Millisecond) {
		d.fail(field, cats.ReasonMalformed, "%d ms, at most %s", ms, most)
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

const (
	maxPPM      = 1_000_000
	maxAge      = 7 * 24 * time.Hour
	maxTTL      = 24 * time.Hour
	maxInterval = time.Hour
	maxDuration = time.Duration(math.MaxInt64 / int64(time.Millisecond) * int64(time.Millisecond))
)

// enumIn reads an enumeration whose message form is one above the cats form, so that zero is "not set"; names is the
// generated table of its values.
func enumIn[C ~uint8, P ~int32](d *decoder, field string, p P, names map[int32]string) C {
	if p < 1 || int(p) >= len(names) {
		d.fail(field, cats.ReasonMalformed, "value %d, need 1 to %d", p, len(names)-1)
		return 0
	}
	return C(p - 1)
}

// enumOut is the reverse of enumIn.
func enumOut[P ~int32, C ~uint8](c C) P { return P(c) + 1 }

// milliseconds gives d for a message; negative ones become 0, too long ones the longest.
func milliseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), math.MaxUint32))
}

// milliseconds64 is milliseconds for lifetimes of bindings.
func milliseconds64(d time.Duration) uint64 { return uint64(max(d.Milliseconds(), 0)) }

// encodeTransaction copies t: a message outlives the step of the core that made it.
func encodeTransaction(t cats.Transaction) []byte { return t[:] }

// octets gives a for a message; the zero Addr becomes no octets.
func octets(a netip.Addr) []byte { return a.AsSlice() }

// printable makes s fit a detail field: control characters become spaces, and it is cut at most octets.
func printable(s string, most int) string {
	out := make([]rune, 0, len(s))
	n := 0
	for _, r := range s { // an invalid octet becomes U+FFFD here
		if unicode.IsControl(r) {
			r = ' '
		}
		if n += utf8.RuneLen(r); n > most {
			break
		}
		out = append(out, r)
	}
	return string(out)
}

func optionalIn[T any](p *T) cats.Optional[T] {
	if p == nil {
		return cats.Optional[T]{}
	}
	return cats.Some(*p)
}

func optionalOut[T any](o cats.Optional[T]) *T {
	if !o.Present {
		return nil
	}
	return &o.Value
}

func (d *decoder) optionalUint8(field string, p *uint32, most uint8, reason cats.Reason) cats.Optional[uint8] {
	if p == nil {
		return cats.Optional[uint8]{}
	}
	if *p > uint32(most) {
		d.fail(field, reason, "%d, at most %d", *p, most)
	}
	return cats.Some(uint8(*p))
}

func optionalUint32(o cats.Optional[uint8]) *uint32 {
	if !o.Present {
		return nil
	}
	v := uint32(o.Value)
	return &v
}
