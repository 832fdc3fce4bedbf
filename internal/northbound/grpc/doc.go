// Package grpc carries metric and network updates from C-SMAs and C-NMAs to the C-PS, and its feedback back, over a gRPC
// bidirectional stream each (C-SMA section 6.1): Client is the end of the source, Server that of the C-PS.
//
// The channel is mutual TLS. On top of it every update is signed, with the Ed25519 key of the source's certificate over
// the canonical octets of the whole update, and has a timestamp and a nonce, which the Server checks before anybody else
// sees the update (C-SMA section 8.3). The identifier of the key is the name of the source.
package grpc
