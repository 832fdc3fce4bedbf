// Package sealed protects updates to the C-PS on top of mutual TLS (C-SMA section 8.3): canonical octets of a whole
// update, signatures (Ed25519) and message authentication codes (HMAC-SHA256) over them, and the window that refuses
// replays.
//
// The canonical octets do not depend on the message format that carries the update, so that an update which comes over
// another transport, or through a broker, verifies alike.
package sealed
