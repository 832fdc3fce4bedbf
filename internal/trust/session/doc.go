// Package session keeps long-lived sessions over gRPC bidirectional streams between authenticated programs: a Table is
// the end that accepts them, at most one a peer, a Client the end that opens one and opens it again.
//
// What is sent waits in a bounded queue. A session whose peer does not take it fast enough ends with ErrSlow, so that
// nobody ever waits for a slow peer; whoever uses a session resynchronizes when the next one opens.
package session

import "errors"

// ErrSlow ends a session whose peer does not take what is sent to it.
var ErrSlow = errors.New("the peer does not take what is sent to it fast enough")

var (
	errReplaced = errors.New("a later session of this peer took its place")
	errEnded    = errors.New("the call ended")
)
