package kernel

import "errors"

// Overrun runs f in the owner goroutine of the resolver with the smallest receive buffer that the kernel allows, so that
// what f provokes overflows it, and fails if the resolver was not told of lost notifications.
func (r *Resolver) Overrun(f func() error) error {
	if err := r.socket.SetReceiveBufferSize(1, true); err != nil {
		return err
	}
	var err error
	if e := r.do(func(t *table) { err = f(); t.overruns = 0 }); e != nil {
		return e
	}
	if err != nil {
		return err
	}
	for range 1 << 20 {
		seen := false
		if e := r.do(func(t *table) { seen = t.overruns > 0 }); e != nil {
			return e
		}
		if seen {
			return nil
		}
	}
	return errors.New("no overrun was noticed")
}
