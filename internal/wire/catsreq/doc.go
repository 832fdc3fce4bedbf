// Package catsreq is the encoding of a CATS client request (CP section 6; draft-zhang-cats-clients-request-packet): the
// body with its TLVs, Mode A in an IPv6 extension header and Mode B in an application envelope.
//
//	body:     Version(1)=1 Flags(1)=0 RequestGeneration(2), then TLVs Type(1) Length(1) Value; at most 255 octets
//	TLV 0x01: CS-ID: Kind(1), then a number (4), an IPv4 address (4), an IPv6 address (16) or a name (1 to 63)
//	TLV 0x02: network constraints:   sub-TLVs Sub(1) Length(1) Value
//	TLV 0x03: computing constraints: sub-TLVs Sub(1) Length(1) Value
//	Mode A:   option 0x1E of a Destination Options or Hop-by-Hop Options header, with the body as its data
//	Mode B:   "CATS", the body's length (2), body
//
// All numbers are in network order. A TLV type with bit 0x80 is ignored when unknown, one without it is refused. A sub
// type with bit 0x80 is a preference, which only reorders equals, and ignored when unknown; one without it is a hard
// bound, and refused when unknown. The same sub type may stand once as a bound and once as a preference. The names of the
// three TLVs are those of the draft; the numbers are this project's.
//
// A request with any error is refused as a whole, with cats.ReasonMalformed, ReasonVersion, ReasonUnknownType or
// ReasonDuplicate.
package catsreq
