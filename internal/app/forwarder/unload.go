package forwarder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"

	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/datapath/kernel"
	core "github.com/margay-net/margay/internal/forwarder"
	"github.com/margay-net/margay/internal/journal"
)

// Unload takes out everything that a forwarder leaves in force when its agent ends: programs, pinned maps, the private
// pair, what is answered for service addresses. Its flows end. The agent must not run. What is gone already is no error;
// each thing that was removed, or was not there, is said.
func Unload(c Config, said io.Writer) error {
	boot, err := bootID()
	if err != nil {
		return fmt.Errorf("identity of the kernel's boot: %w", err)
	}
	j, last, _, err := journal.Open(string(c.State), boot)
	if err != nil {
		return err
	}
	names := releaseNames(string(c.Name))
	err = errors.Join(unproxy(names.Program, said), unpin(string(c.Pins), said), unpair(names, said))
	if err == nil { // an entry of the journal would be put back at the next start
		err = j.Compact(journal.Contents{Restored: core.Restored{Epochs: last.Epochs}})
	}
	if err == nil {
		say(said, len(last.Records), "records of bindings in %s", c.State)
	}
	return errors.Join(err, j.Close())
}

// say tells how many of something were removed. That nobody could read it is not worth an error.
func say(to io.Writer, n int, what string, arguments ...any) {
	what = fmt.Sprintf(what, arguments...)
	if n == 0 {
		fmt.Fprintf(to, "nothing to remove: %s\n", what)
		return
	}
	fmt.Fprintf(to, "removed: %s (%d)\n", what, n)
}

// unproxy stops the answers for service addresses.
func unproxy(program string, said io.Writer) error {
	p, err := kernel.NewProxy(program)
	if err != nil {
		return err
	}
	routes, entries, err := p.Count()
	if err == nil {
		err = p.SetServiceAddresses(nil, nil)
	}
	if err == nil {
		say(said, routes, "routes of service addresses")
		say(said, entries, "proxy entries of service addresses")
	}
	return errors.Join(err, p.Close())
}

// unpin detaches the program and removes the pins.
func unpin(directory string, said io.Writer) error {
	pins, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading pins: %w", err)
	}
	if err := datapath.Unload(directory); err != nil {
		return err
	}
	say(said, len(pins), "pinned programs, links and maps in %s", directory)
	return nil
}

// unpair removes the private pair.
func unpair(names kernel.ReleaseConfig, said io.Writer) error {
	found := 0
	for _, name := range []string{names.Send, names.Program} {
		if _, err := net.InterfaceByName(name); err == nil {
			found++
		}
	}
	if err := kernel.RemoveRelease(names); err != nil {
		return err
	}
	say(said, found, "private interfaces %s and %s", names.Send, names.Program)
	return nil
}
