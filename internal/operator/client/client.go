// Package client calls the C-PS and the forwarders of a domain as an operator or a client of it does: it loads the
// configuration of the margay command, makes one call at a time, and says what failed as a sentence for a person.
package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
)

// Config is the configuration of the margay command.
type Config struct {
	TLS        config.TLS    `yaml:"tls"`
	CPS        config.Peer   `yaml:"cps"`
	Forwarders []config.Peer `yaml:"forwarders,omitempty"`
}

// Domain is a loaded configuration with its credentials.
type Domain struct {
	Config
	file        string
	timeout     time.Duration
	credentials *trust.Credentials
}

// Load reads a configuration file and the certificate that it names. The timeout is the longest wait for each answer;
// 0: as long as the caller's context.
func Load(file string, timeout time.Duration) (*Domain, error) {
	c, err := config.Load[Config](file)
	if err != nil {
		return nil, err
	}
	credentials, err := trust.Load(c.TLS)
	if err != nil {
		return nil, err
	}
	return &Domain{Config: c, file: file, timeout: timeout, credentials: credentials}, nil
}

// AskCPS runs an exchange with the C-PS. Failures of its calls become an *Error.
func (d *Domain) AskCPS(ctx context.Context, exchange func(context.Context, api.OperatorServiceClient) error) error {
	return d.ask(ctx, trust.CPS, d.CPS, func(connection *grpc.ClientConn) error {
		return exchange(ctx, api.NewOperatorServiceClient(connection))
	})
}

// AskForwarder runs an exchange with a forwarder of the configuration. Failures of its calls become an *Error.
func (d *Domain) AskForwarder(ctx context.Context, name string, exchange func(context.Context, api.ForwarderServiceClient) error) error {
	for _, peer := range d.Forwarders {
		if string(peer.Name) == name {
			return d.ask(ctx, trust.Forwarder, peer, func(connection *grpc.ClientConn) error {
				return exchange(ctx, api.NewForwarderServiceClient(connection))
			})
		}
	}
	return fmt.Errorf("forwarder %s is not in %s: add it under forwarders with its address", name, d.file)
}

// ask dials a peer, runs one exchange with it and hangs up.
func (d *Domain) ask(ctx context.Context, role trust.Role, peer config.Peer, exchange func(*grpc.ClientConn) error) error {
	connection, err := d.credentials.Dial(peer.Address, d.credentials.Peer(role, string(peer.Name)), nil, grpc.WithUnaryInterceptor(d.bounded))
	if err != nil {
		return err
	}
	defer connection.Close()
	return explain(role, peer, exchange(connection))
}

// bounded ends a call that is not answered in time.
func (d *Domain) bounded(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if d.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.timeout)
		defer cancel()
	}
	return call(ctx, method, request, reply, connection, options...)
}
