package client

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
)

// Error is a call that failed. It wraps the gRPC status.
type Error struct {
	Peer    string // such as "C-PS cps-1"
	Address string
	Silent  bool   // no answer came: it does not run, cannot be reached or is too slow
	Why     string // for a person
	cause   error
}

// Error is one sentence.
func (e *Error) Error() string {
	if e.Silent {
		return fmt.Sprintf("%s does not answer at %s: is it running? (%s)", e.Peer, e.Address, e.Why)
	}
	return fmt.Sprintf("%s at %s: %s", e.Peer, e.Address, e.Why)
}

// Unwrap gives the gRPC status.
func (e *Error) Unwrap() error { return e.cause }

// explain makes an Error of a gRPC status; other errors stay as they are.
func explain(role trust.Role, peer config.Peer, err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	e := &Error{Peer: title(role) + " " + string(peer.Name), Address: string(peer.Address), Why: s.Message(), cause: err}
	why, dialed := transportFault(s.Message())
	switch {
	case dialed:
		e.Why, e.Silent = why, !strings.Contains(why, permissionDenied)
	case why != "":
		e.Why = why
	case s.Code() == codes.DeadlineExceeded:
		e.Why, e.Silent = "no answer in time", true
	case s.Code() == codes.Canceled:
		e.Why = "interrupted"
	case s.Code() == codes.Unimplemented:
		e.Why = "it does not know this question: it is of another version than this program"
	default:
		e.Why = reasonOnce(s.Message())
	}
	return e
}

const permissionDenied = "permission denied"

// title is how messages name a role.
func title(role trust.Role) string {
	if role == trust.CPS {
		return "C-PS"
	}
	return string(role)
}

var (
	connectionFault = regexp.MustCompile(`connection error: desc = ("(?:[^"\\]|\\.)*")`)
	dialFault       = regexp.MustCompile(`^transport: Error while dialing: (?:dial (?:tcp|unix)(?: \S+)?: )?`)
)

// transportFault takes what went wrong out of the message of a connection that could not be made; empty: it was made.
// It tells whether nobody was reached; else the two could not agree on a channel.
func transportFault(message string) (why string, dialed bool) {
	found := connectionFault.FindStringSubmatch(message)
	if found == nil {
		return "", false
	}
	why, err := strconv.Unquote(found[1])
	if err != nil {
		why = found[1]
	}
	if prefix := dialFault.FindString(why); prefix != "" {
		return strings.TrimPrefix(why, prefix), true
	}
	return strings.TrimPrefix(why, "transport: authentication handshake failed: "), false
}

// reasonOnce takes the second naming of a reason out of a message that begins with it and, having been wrapped, ends
// with it, too.
func reasonOnce(message string) string {
	message = strings.ReplaceAll(message, "\n", ": ")
	name, rest, found := strings.Cut(message, ": ")
	if _, known := cats.ParseReason(name); !found || known != nil {
		return message
	}
	rest = strings.TrimSuffix(strings.TrimPrefix(rest, name+": "), ": "+name)
	if rest == name {
		return name
	}
	return name + ": " + rest
}
