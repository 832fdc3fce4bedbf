package catsreq

import (
	"net/netip"

	"github.com/margay-net/margay/cats"
)

// Version is the version of the body that this package reads and writes.
const Version = 1

// The least and most octets of a body.
const (
	MinBody = 4
	MaxBody = 255
)

// Kind is the form in which a request names its service.
type Kind uint8

// The kinds. KindNone: the request has no CS-ID, its destination address names the service.
const (
	KindNone   Kind = 0
	KindNumber Kind = 1 // the catalogue's stable number
	KindIPv4   Kind = 2 // the service that owns this address
	KindIPv6   Kind = 3 // the service that owns this address
	KindName   Kind = 4 // the CS-ID itself
)

// Identity is the CS-ID of a request; only the field of its kind is set.
type Identity struct {
	Kind    Kind
	Number  uint32
	Address netip.Addr
	Name    cats.CSID
}

// Request is the metadata of a client request.
type Request struct {
	Identity    Identity
	Constraints cats.Constraints
	Generation  uint16 // of the client's request, serial arithmetic
}
