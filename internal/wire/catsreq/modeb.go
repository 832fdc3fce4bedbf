package catsreq

import (
	"encoding/binary"
	"fmt"

	"github.com/margay-net/margay/cats"
)

// magic begins an envelope of Mode B.
const magic = "CATS"

// EncodeEnvelope gives the envelope of Mode B.
func EncodeEnvelope(r *Request) ([]byte, error) {
	body, err := EncodeBody(r)
	if err != nil {
		return nil, err
	}
	b := binary.BigEndian.AppendUint16([]byte(magic), uint16(len(body)))
	return append(b, body...), nil
}

// DecodeEnvelope reads an envelope at the start of b, which a mapping says is its position; it never searches. length is
// that of the envelope; 0 without an error where b does not begin with one.
func DecodeEnvelope(b []byte) (r Request, length int, err error) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return Request{}, 0, nil
	}
	const head = len(magic) + 2
	if len(b) < head {
		return Request{}, 0, fmt.Errorf("envelope in %d octets, at least %d: %w", len(b), head, cats.ReasonMalformed)
	}
	length = head + int(binary.BigEndian.Uint16(b[len(magic):]))
	if len(b) < length {
		return Request{}, 0, fmt.Errorf("envelope of %d octets in %d: %w", length, len(b), cats.ReasonMalformed)
	}
	if r, err = DecodeBody(b[head:length]); err != nil {
		return Request{}, 0, err
	}
	return r, length, nil
}
