package forwarder

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/datapath"
	core "github.com/margay-net/margay/internal/forwarder"
	"github.com/margay-net/margay/internal/journal"
	"github.com/margay-net/margay/internal/southbound/agent"
)

// open opens everything in the order in which each needs the one before.
func (a *App) open() (err error) {
	boot, err := bootID()
	if err != nil {
		return fmt.Errorf("identity of the kernel's boot: %w", err)
	}
	var last journal.Contents
	var report journal.Report
	if a.journal, last, report, err = journal.Open(string(a.config.State), boot); err != nil {
		return err
	}
	a.tell(report)
	a.full = newExhaustion(a.base.Log)
	if a.system, err = openSystem(&a.config, a.base.Log, a.full.refused); err != nil {
		return err
	}
	if err := a.takeOver(boot, last); err != nil {
		return err
	}
	a.handler = &handler{app: a}
	a.client = agent.NewClient(agent.ClientOptions{
		Credentials: a.base.Trust, Peer: a.config.CPS, Audit: a.base.Audit, Handler: a.handler,
	})
	if a.servers, err = a.listen(); err != nil {
		return err
	}
	a.metrics = newMetrics(a)
	return a.scan(a.system.plane.Usage)
}

// tell says what the journal lost.
func (a *App) tell(report journal.Report) {
	if report.Torn > 0 {
		a.base.Log.Warn("the journal ended in the middle of an entry, which is left out", "octets", report.Torn, "why", report.Why)
		a.base.Audit.Record("journal-torn", a.name, string(a.config.State), cats.ReasonNone,
			fmt.Sprintf("%d octets left out: %s", report.Torn, report.Why))
	}
	if report.OtherBoot {
		a.base.Log.Info("the kernel was booted anew: bindings of the last boot are gone with it", "bindings", report.Discarded)
	}
}

// takeOver puts in force what was in force, and makes the core from it.
func (a *App) takeOver(boot string, last journal.Contents) error {
	pinned, err := a.system.plane.Epochs()
	if err != nil {
		return err
	}
	last.Epochs = raise(last.Epochs, pinned)
	for shard, epoch := range last.Epochs {
		if err := a.system.plane.RaiseEpoch(shard, epoch); err != nil {
			return err
		}
	}
	if last.Records, err = a.system.restore(a.clock.now(), last.Restored, a.base.Log); err != nil {
		return err
	}
	if err := a.journal.Compact(last); err != nil {
		return err
	}
	a.totals = last.Totals
	if a.totals.Drops == nil {
		a.totals.Drops = make(map[cats.Reason]uint64)
	}
	a.stored = a.totals.Sum()
	a.held.frames = make(map[uint64]frame)
	cfg := core.Config{
		Name: a.name, BootID: boot, LayoutVersion: cats.LayoutVersion, ReturnSID: a.config.ReturnSID,
		Capabilities: cats.Capabilities{Encapsulations: cats.EncapNone | cats.EncapSRv6, MaxSegments: datapath.MaxSegments},
		Attachments:  a.config.coreAttachments(), Limits: a.config.Limits.core(),
	}
	rand.Read(cfg.Identity[:]) // never fails
	a.core = core.New(a.clock.now(), cfg, last.Restored)
	a.base.Log.Info("data plane in force", "bindings", len(last.Records), "ports", len(a.system.plane.Ports()))
	return nil
}

// close lets go of what open opened, as far as it came.
func (a *App) close() error {
	var errs []error
	for _, s := range a.servers {
		s.grpc.Stop()
		errs = append(errs, run.IgnoreClosed(s.listener.Close()))
	}
	if a.system != nil {
		errs = append(errs, a.system.close())
	}
	if a.journal != nil {
		errs = append(errs, a.journal.Close())
	}
	return errors.Join(errs...)
}
