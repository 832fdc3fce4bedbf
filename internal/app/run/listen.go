package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// Listeners are where a daemon accepts channels.
type Listeners []net.Listener

// Listen opens all addresses, or none.
func Listen(addresses []endpoint.Address) (Listeners, error) {
	var all Listeners
	for _, address := range addresses {
		l, err := trust.Listen(address)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, l)
	}
	return all, nil
}

// Addresses gives where they listen: useful where a configured port was 0.
func (l Listeners) Addresses() []net.Addr {
	addresses := make([]net.Addr, len(l))
	for i, one := range l {
		addresses[i] = one.Addr()
	}
	return addresses
}

// Serve has server answer at each of them, from goroutines of group, until it is stopped. What ends one before that is
// given to failed.
func (l Listeners) Serve(server *grpc.Server, group *sync.WaitGroup, failed func(error)) {
	for _, one := range l {
		group.Go(func() {
			if err := server.Serve(one); err != nil {
				failed(fmt.Errorf("listen on %s: %w", one.Addr(), err))
			}
		})
	}
}

// Close closes those that their server has not closed already.
func (l Listeners) Close() (err error) {
	for _, one := range l {
		err = errors.Join(err, IgnoreClosed(one.Close()))
	}
	return err
}

// IgnoreClosed takes the error of closing what is closed already for none.
func IgnoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// IgnoreCanceled takes the cause of a context that was ended on purpose for no error.
func IgnoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
