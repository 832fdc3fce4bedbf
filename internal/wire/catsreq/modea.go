package catsreq

import (
	"fmt"

	"github.com/margay-net/margay/cats"
)

// OptionType is the IPv6 option of Mode A: experimental, skipped by nodes that do not know it, not changed en route (RFC
// 4727, RFC 8200 section 4.2).
const OptionType = 0x1E

// The padding options of RFC 8200 section 4.2.
const (
	optionPad1 = 0x00
	optionPadN = 0x01
)

// EncodeOption gives the option of Mode A: type, length and body.
func EncodeOption(r *Request) ([]byte, error) {
	body, err := EncodeBody(r)
	if err != nil {
		return nil, err
	}
	return append([]byte{OptionType, byte(len(body))}, body...), nil
}

// EncodeHeader gives a whole Destination Options or Hop-by-Hop Options header with the option of r, padded to a multiple
// of 8 octets; next is the protocol of the header that follows.
func EncodeHeader(next byte, r *Request) ([]byte, error) {
	option, err := EncodeOption(r)
	if err != nil {
		return nil, err
	}
	header := append([]byte{next, 0}, option...)
	switch missing := (8 - len(header)%8) % 8; missing {
	case 0:
	case 1:
		header = append(header, optionPad1)
	default:
		header = append(header, optionPadN, byte(missing-2))
		header = append(header, make([]byte, missing-2)...)
	}
	header[1] = byte(len(header)/8 - 1)
	return header, nil
}

// DecodeHeader looks for the option of Mode A in a Destination Options or Hop-by-Hop Options header, which b begins with
// and may go beyond. found is false where there is none. Other options are passed over. A header that overruns b or
// itself is cats.ReasonMalformed, a second option of Mode A cats.ReasonDuplicate. A packet with several options headers
// has one request at most, too: that is for the caller to see.
func DecodeHeader(b []byte) (r Request, found bool, err error) {
	if len(b) < 8 {
		return Request{}, false, fmt.Errorf("options header in %d octets, at least 8: %w", len(b), cats.ReasonMalformed)
	}
	length := 8 * (int(b[1]) + 1)
	if len(b) < length {
		return Request{}, false, fmt.Errorf("options header of %d octets in %d: %w", length, len(b), cats.ReasonMalformed)
	}
	body, found, err := findOption(b[2:length])
	if err != nil || !found {
		return Request{}, false, err
	}
	if r, err = DecodeBody(body); err != nil {
		return Request{}, false, err
	}
	return r, true, nil
}

func findOption(options []byte) (body []byte, found bool, err error) {
	for len(options) > 0 {
		if options[0] == optionPad1 {
			options = options[1:]
			continue
		}
		if len(options) < 2 || len(options)-2 < int(options[1]) {
			return nil, false, fmt.Errorf("option 0x%02x overruns its header: %w", options[0], cats.ReasonMalformed)
		}
		kind, data := options[0], options[2:2+int(options[1])]
		if kind == OptionType {
			if found {
				return nil, false, fmt.Errorf("option 0x%02x stands twice: %w", kind, cats.ReasonDuplicate)
			}
			body, found = data, true
		}
		options = options[2+len(data):]
	}
	return body, found, nil
}
