package forwarder

import (
	"context"
	"errors"
	"slices"

	"github.com/margay-net/margay/internal/config"
)

var errStops = errors.New("the forwarder stops")

// Prepare puts other attachments and interfaces in force, all or nothing, and then admits other operators and clients.
// Everything else but certificates and the log level takes a restart.
func (a *App) Prepare(_ context.Context, current, next Config) (func(), error) {
	err := config.Fixed(current, next, "cps", "listen", "state", "pins", "source", "return_sid", "block", "sr_domain", "bindings", "limits")
	if err != nil {
		return nil, err
	}
	var failure error
	ran := make(chan struct{})
	if !a.hand(event{call: func() { defer close(ran); failure = a.change(&next) }}) {
		return nil, errStops
	}
	select {
	case <-ran:
	case <-a.stop:
		return nil, errStops
	}
	if failure != nil {
		return nil, failure
	}
	// All but the roster is in force already: the kernel can refuse it, so that it had to be tried before it could be
	// promised.
	return func() { a.guard.SetRoster(next.roster()) }, nil
}

// change runs in the owner. On an error everything is as it was.
func (a *App) change(next *Config) error {
	if err := prepareKernel(next.interfaces(), a.base.Log); err != nil {
		return err
	}
	before := a.config
	if err := a.system.configure(next); err != nil {
		return errors.Join(err, a.system.configure(&before))
	}
	a.config = *next
	a.in.Attachments = next.coreAttachments()
	return nil
}

// configure puts the interfaces and attachments of c in force.
func (s *system) configure(c *Config) (err error) {
	ports := c.ports(releaseNames(string(c.Name)).Program)
	if err := s.plane.SetPorts(ports); err != nil {
		return err
	}
	if err := errors.Join(s.plane.SetAttachments(c.planeAttachments()), s.routes.portsChanged()); err != nil {
		return err
	}
	if clients := c.interfaces().Attachments; !slices.Equal(clients, s.provision.clients) {
		if err := s.provision.setClients(clients); err != nil {
			return err
		}
	}
	s.links, err = s.look()
	return err
}
