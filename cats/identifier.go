package cats

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// CSID names one service wherever its instances are; unambiguous in the domain and without structure (RFC 10053). It
// is a token of [A-Za-z0-9._:-], 1 to 63 octets.
type CSID string

// ParseCSID checks s against the alphabet and length of a CS-ID.
func ParseCSID(s string) (CSID, error) {
	if err := checkToken("CS-ID", s, 63, "._:-"); err != nil {
		return "", err
	}
	return CSID(s), nil
}

// CSCIID names one service contact instance; opaque to the C-PS, which never reads a locator out of it. It is a token
// of [A-Za-z0-9._:-] and square brackets, 1 to 127 octets.
type CSCIID string

// ParseCSCIID checks s against the alphabet and length of a CSCI-ID.
func ParseCSCIID(s string) (CSCIID, error) {
	if err := checkToken("CSCI-ID", s, 127, "._:-[]"); err != nil {
		return "", err
	}
	return CSCIID(s), nil
}

// ParseName checks the name of a node, agent, attachment, tenant or site: [A-Za-z0-9._-], 1 to 63 octets, so that it
// can stand in a SPIFFE path.
func ParseName(what, s string) (string, error) {
	if err := checkToken(what, s, 63, "._-"); err != nil {
		return "", err
	}
	return s, nil
}

func checkToken(what, s string, most int, punctuation string) error {
	if s == "" || len(s) > most {
		return fmt.Errorf("%s %q: need 1 to %d octets, have %d", what, s, most, len(s))
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(punctuation, c) >= 0 {
			continue
		}
		return fmt.Errorf("%s %q: octet %d (%q) is not a letter, a digit or one of %q", what, s, i+1, c, punctuation)
	}
	return nil
}

// Transaction correlates a client request with its decision, path request, path result, binding and counters (CP
// section 13.4). The ingress makes it: 8 octets that name the forwarder's boot, 8 of a counter. It is also the trace
// identifier.
type Transaction [16]byte

// IsZero tells whether t was never set.
func (t Transaction) IsZero() bool { return t == Transaction{} }

// String gives the 32 hexadecimal digits of t.
func (t Transaction) String() string { return hex.EncodeToString(t[:]) }

// Shard numbers the part of the domain that one C-PS core owns.
type Shard uint32

// Epoch orders the owners of a shard: Term grows with every owner, Counter within one. A forwarder refuses what comes
// from a lower epoch than the highest it has seen (CP section 13.2).
type Epoch struct {
	Term    uint64
	Counter uint64
}

// Compare gives -1, 0 or +1 as e is below, equal to or above o.
func (e Epoch) Compare(o Epoch) int {
	switch {
	case e.Term < o.Term, e.Term == o.Term && e.Counter < o.Counter:
		return -1
	case e == o:
		return 0
	}
	return 1
}

// String gives "term.counter".
func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Term, e.Counter) }

// Fence says that whoever owns a shard by the local store may decide nothing: a forwarder has obeyed an owner that it does
// not come after, so that the store is not the one that last owned the shard. It stands until a person recovers the shard
// (CP section 13.2). The zero Fence: there is none.
type Fence struct {
	Highest   Epoch  // that a forwarder has obeyed
	Forwarder string // its name
}

// IsZero tells whether there is no fence.
func (f Fence) IsZero() bool { return f == Fence{} }

// Instant is a point on a process's monotonic clock in nanoseconds, anchored at start to the Unix epoch: differences
// are monotonic, absolute values are within the clock error at start.
type Instant int64
