package operator

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
)

// Config is the configuration of the margay command.
type Config struct {
	TLS        config.TLS    `yaml:"tls"`
	CPS        config.Peer   `yaml:"cps"`
	Forwarders []config.Peer `yaml:"forwarders,omitempty"`
}

// domain is a loaded configuration with its credentials.
type domain struct {
	Config
	credentials *trust.Credentials
}

func (o *options) domain() (*domain, error) {
	c, err := config.Load[Config](o.config)
	if err != nil {
		return nil, fmt.Errorf("configuration (choose another with --config or MARGAY_CONFIG): %w", err)
	}
	credentials, err := trust.Load(c.TLS)
	if err != nil {
		return nil, err
	}
	return &domain{Config: c, credentials: credentials}, nil
}

// call dials a peer, runs one exchange with it and hangs up.
func (d *domain) call(ctx context.Context, o *options, role trust.Role, peer config.Peer, exchange func(context.Context, *grpc.ClientConn) error) error {
	connection, err := d.credentials.Dial(peer.Address, d.credentials.Peer(role, string(peer.Name)), nil)
	if err != nil {
		return fmt.Errorf("%s %s at %s: %w", role, peer.Name, peer.Address, err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := exchange(ctx, connection); err != nil {
		return fmt.Errorf("%s %s at %s: %w", role, peer.Name, peer.Address, err)
	}
	return nil
}

// askCPS runs one exchange with the C-PS.
func (o *options) askCPS(ctx context.Context, exchange func(context.Context, *grpc.ClientConn) error) error {
	d, err := o.domain()
	if err != nil {
		return err
	}
	return d.call(ctx, o, trust.CPS, d.CPS, exchange)
}

// askForwarder runs one exchange with the named forwarder.
func (o *options) askForwarder(ctx context.Context, name string, exchange func(context.Context, *grpc.ClientConn) error) error {
	d, err := o.domain()
	if err != nil {
		return err
	}
	for _, peer := range d.Forwarders {
		if string(peer.Name) == name {
			return d.call(ctx, o, trust.Forwarder, peer, exchange)
		}
	}
	return fmt.Errorf("forwarder %s is not in %s: add it under forwarders with its address", name, o.config)
}
