package client

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
)

func TestErrors(t *testing.T) {
	peer := config.Peer{Address: "10.0.0.1:7443", Name: "cps-1"}
	plain := errors.New("from the caller")
	for _, c := range []struct {
		err    error
		want   string
		silent bool
	}{
		{plain, "from the caller", false},
		{status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:7443: connect: connection refused"`),
			"C-PS cps-1 does not answer at 10.0.0.1:7443: is it running? (connect: connection refused)", true},
		{status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial unix /run/x: connect: permission denied"`),
			"C-PS cps-1 at 10.0.0.1:7443: connect: permission denied", false},
		{status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: cps/x refused: expected \"cps/y\""`),
			`C-PS cps-1 at 10.0.0.1:7443: cps/x refused: expected "cps/y"`, false},
		{status.Error(codes.DeadlineExceeded, `latest balancer error: connection error: desc = "transport: Error while dialing: dial tcp: lookup nowhere: no such host"`),
			"C-PS cps-1 does not answer at 10.0.0.1:7443: is it running? (lookup nowhere: no such host)", true},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), "C-PS cps-1 does not answer at 10.0.0.1:7443: is it running? (no answer in time)", true},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), "C-PS cps-1 at 10.0.0.1:7443: error reading from server: EOF", false},
		{status.Error(codes.Unimplemented, "unknown method X"),
			"C-PS cps-1 at 10.0.0.1:7443: it does not know this question: it is of another version than this program", false},
		{status.Error(codes.InvalidArgument, "malformed: limit: malformed"), "C-PS cps-1 at 10.0.0.1:7443: malformed: limit", false},
	} {
		err := explain(trust.CPS, peer, c.err)
		var e *Error
		if err.Error() != c.want || errors.As(err, &e) && (e.Silent != c.silent || status.Code(err) != status.Code(c.err)) {
			t.Errorf("%v: %v\nwant %s", c.err, err, c.want)
		}
	}
	if err := explain(trust.Forwarder, peer, nil); err != nil {
		t.Error(err)
	}
}
