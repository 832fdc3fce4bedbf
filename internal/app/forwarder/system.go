package forwarder

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/datapath/kernel"
	core "github.com/margay-net/margay/internal/forwarder"
)

// system is the data plane with what it needs of the kernel around it.
type system struct {
	release   *kernel.Release
	plane     *datapath.Datapath
	resolver  *kernel.Resolver
	proxy     *kernel.Proxy
	routes    *routes
	halves    *halves
	provision *provisioner
	links     map[string]linkState // of the ports, when they were last looked at
}

// linkState tells a link from another of its name.
type linkState struct {
	index int
	mac   string
}

// releaseNames names the private pair of a forwarder, unique in its network namespace.
func releaseNames(forwarder string) kernel.ReleaseConfig {
	h := fnv.New32a()
	h.Write([]byte(forwarder))
	return kernel.ReleaseConfig{Send: fmt.Sprintf("mgs%08x", h.Sum32()), Program: fmt.Sprintf("mgp%08x", h.Sum32())}
}

// prepareKernel sets what is the forwarder's business and refuses a system that it cannot work on, with everything that
// is wrong at once; what merely costs is logged.
func prepareKernel(interfaces kernel.Interfaces, log *slog.Logger) error {
	prepared := kernel.Prepare(interfaces)
	findings, err := kernel.Check(interfaces)
	if err != nil {
		return err
	}
	var hard []string
	for _, f := range findings {
		if f.Hard {
			hard = append(hard, f.String())
			continue
		}
		log.Warn("the system does not quite fit", "where", f.Where, "what", f.What, "remedy", f.Remedy)
	}
	if len(hard) > 0 {
		return fmt.Errorf("this system does not fit a forwarder:\n  %s", strings.Join(hard, "\n  "))
	}
	return prepared
}

// openSystem opens or takes over the data plane of c; full is told of each refusal for want of a free number in a table.
func openSystem(c *Config, log *slog.Logger, full func(table string)) (s *system, err error) {
	opened := &system{links: make(map[string]linkState)} // s is nil by the time an error is returned
	s = opened
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	if err := prepareKernel(c.interfaces(), log); err != nil {
		return nil, err
	}
	names := releaseNames(string(c.Name))
	if s.release, err = kernel.OpenRelease(names); err != nil {
		return nil, err
	}
	limits := datapath.Config{
		PinDir: string(c.Pins), Ports: c.ports(names.Program), Bindings: c.Bindings, Paths: 4096, NextHops: 65536,
	}
	if s.plane, err = datapath.Open(limits); err != nil {
		return nil, err
	}
	err = errors.Join(s.plane.SetReturnSID(c.ReturnSID), s.plane.SetLocalBlock(c.block()), s.plane.SetDomainBlock(c.SRDomain),
		s.plane.SetAttachments(c.planeAttachments()))
	if err != nil {
		return nil, err
	}
	if s.resolver, err = kernel.NewResolver(); err != nil {
		return nil, err
	}
	if s.proxy, err = kernel.NewProxy(names.Program); err != nil {
		return nil, err
	}
	if s.links, err = s.look(); err != nil {
		return nil, err
	}
	s.routes = newRoutes(s.plane, s.resolver, c.Source, limits, full)
	s.halves = &halves{plane: s.plane, routes: s.routes, placed: make(map[halfKey]*placed)}
	s.provision = &provisioner{plane: s.plane, routes: s.routes, proxy: s.proxy, clients: c.interfaces().Attachments}
	return s, nil
}

// restore puts in force what was in force in the last run, leaving alone what is still there, and gives the records that
// are.
func (s *system) restore(now cats.Instant, last core.Restored, log *slog.Logger) ([]core.Record, error) {
	found, err := s.plane.Entries()
	if err != nil {
		return nil, err
	}
	if err := s.routes.adopt(found); err != nil {
		return nil, err
	}
	if err := s.provision.apply(now, last.Rules()); err != nil {
		return nil, fmt.Errorf("the last provision: %w", err)
	}
	records, err := s.halves.agree(now, last.Records, found, log)
	if err != nil {
		return nil, err
	}
	return records, s.routes.sweep()
}

// raise gives the highest epochs of two sources.
func raise(a, b map[cats.Shard]cats.Epoch) map[cats.Shard]cats.Epoch {
	all := make(map[cats.Shard]cats.Epoch, len(a))
	for _, source := range []map[cats.Shard]cats.Epoch{a, b} {
		for shard, epoch := range source {
			if epoch.Compare(all[shard]) > 0 {
				all[shard] = epoch
			}
		}
	}
	return all
}

// look gives the links of the ports that exist now.
func (s *system) look() (map[string]linkState, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	found := make(map[string]linkState)
	for _, l := range links {
		found[l.Name] = linkState{l.Index, l.HardwareAddr.String()}
	}
	return found, nil
}

// attachAgain puts the program on ports that came back or changed, and tells which are missing.
func (s *system) attachAgain(c *Config) (missing []string, err error) {
	links, err := s.look()
	if err != nil {
		return nil, err
	}
	wanted := c.ports(releaseNames(string(c.Name)).Program)
	var present []datapath.Port
	changed := false
	for _, p := range wanted {
		if _, ok := links[p.Name]; ok {
			present = append(present, p)
		} else {
			missing = append(missing, p.Name)
		}
		changed = changed || links[p.Name] != s.links[p.Name]
	}
	s.links = links
	if !changed {
		return missing, nil
	}
	if err := s.plane.SetPorts(present); err != nil {
		return missing, err
	}
	if len(missing) > 0 {
		return missing, nil // the rest when they are back
	}
	if err := kernel.Prepare(c.interfaces()); err != nil {
		return nil, err
	}
	return nil, errors.Join(s.plane.SetAttachments(c.planeAttachments()), s.routes.portsChanged(), s.provision.setServices(s.provision.inForce.Services))
}

// close lets go of everything; the data plane goes on.
func (s *system) close() error {
	var errs []error
	if s.proxy != nil {
		errs = append(errs, s.proxy.Close())
	}
	if s.resolver != nil {
		errs = append(errs, s.resolver.Close())
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Close())
	}
	if s.release != nil {
		errs = append(errs, s.release.Close())
	}
	return errors.Join(errs...)
}

// bootID identifies the boot of the kernel, which pinned maps never outlive.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
