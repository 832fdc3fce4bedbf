package forwarder

import (
	"errors"
	"fmt"

	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/datapath/kernel"
	core "github.com/margay-net/margay/internal/forwarder"
	"github.com/margay-net/margay/internal/forwarder/journal"
)

// Unload takes out everything that a forwarder leaves in force when its agent ends: programs, pinned maps, the private
// pair, what is answered for service addresses. Its flows end. The agent must not run.
func Unload(c Config) error {
	boot, err := bootID()
	if err != nil {
		return fmt.Errorf("identity of the kernel's boot: %w", err)
	}
	j, last, _, err := journal.Open(string(c.State), boot)
	if err != nil {
		return err
	}
	names := releaseNames(string(c.Name))
	err = errors.Join(unproxy(names.Program), datapath.Unload(string(c.Pins)), kernel.RemoveRelease(names))
	if err == nil { // an entry of the journal would be put back at the next start
		err = j.Compact(journal.Contents{Restored: core.Restored{Epochs: last.Epochs}})
	}
	return errors.Join(err, j.Close())
}

// unproxy stops the answers for service addresses.
func unproxy(program string) error {
	p, err := kernel.NewProxy(program)
	if err != nil {
		return err
	}
	return errors.Join(p.SetServiceAddresses(nil, nil), p.Close())
}
