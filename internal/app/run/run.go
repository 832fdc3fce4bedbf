// Package run is what the main of every daemon shares: flags, start, signals, reload, stop and exit codes.
package run

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/observe"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/version"
)

// The exit codes.
const (
	ExitOK     = 0
	ExitFailed = 1 // it could not start, or failed while it ran
	ExitUsage  = 2 // the command line or the configuration is wrong
)

// grace is how long a daemon may take to stop after a signal.
const grace = 30 * time.Second

// App is a daemon's composition root, for the configuration C.
type App[C any] interface {
	// Run works until ctx ends, then stops in order; nil means that it did.
	Run(ctx context.Context) error
	// Prepare is a config.Prepare: it builds what the next configuration needs and gives the function that swaps it
	// in. It may be called while Run runs, and is called once at a time.
	Prepare(ctx context.Context, current, next C) (commit func(), err error)
}

// Daemon is what the main of a daemon fills in.
type Daemon[C interface{ Shared() config.Common }] struct {
	Program string                                                     // such as "margay-cps"
	Role    trust.Role                                                 // that its certificate must have
	Load    func(path string) (C, error)                               // usually config.Load[C]
	New     func(ctx context.Context, c C, base *Base) (App[C], error) // opens what Run needs; on an error leaves nothing open
	Unload  func(c C, said io.Writer) error                            // optional, --unload: takes out what the daemon leaves in force when it ends, and says what that was
	Recover func(c C, log io.Writer) (done string, err error)          // optional, --recover: ends by a person's will what keeps the daemon from its work
}

// Main runs the daemon with the process's arguments and exits.
func (d Daemon[C]) Main() { os.Exit(d.Execute(os.Args[1:], os.Stdout, os.Stderr)) }

// Execute is Main for given arguments; it gives the exit code. SIGTERM and SIGINT stop the daemon, a second one at
// once; SIGHUP reloads its configuration, all or nothing.
func (d Daemon[C]) Execute(arguments []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(d.Program, flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "/etc/margay/"+string(d.Role)+".yaml", "configuration `file`")
	shown := flags.Bool("version", false, "show which build this is, and exit")
	check := flags.Bool("check", false, "check the configuration and the certificate, and exit")
	unload, recovery := false, false
	if d.Unload != nil {
		flags.BoolVar(&unload, "unload", false, "take out what the daemon leaves in force when it ends, and exit")
	}
	if d.Recover != nil {
		flags.BoolVar(&recovery, "recover", false, "own the shard again although a forwarder has obeyed another owner, and exit; no other owner may run")
	}
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return ExitOK
		}
		return ExitUsage
	}
	if flags.NArg() > 0 {
		return d.complain(stderr, ExitUsage, fmt.Errorf("argument %q: none is expected", flags.Arg(0)))
	}
	if *shown {
		fmt.Fprintln(stdout, version.Of(d.Program))
		return ExitOK
	}
	loaded, err := d.Load(*path)
	if err != nil {
		return d.complain(stderr, ExitUsage, err)
	}
	if *check {
		if _, err := loadCredentials(d.Role, loaded.Shared()); err != nil {
			return d.complain(stderr, ExitUsage, err)
		}
		fmt.Fprintf(stdout, "%s: %s is valid\n", d.Program, *path)
		return ExitOK
	}
	if unload {
		if err := d.Unload(loaded, stdout); err != nil {
			return d.complain(stderr, ExitFailed, err)
		}
		return ExitOK
	}
	if recovery {
		done, err := d.Recover(loaded, stderr)
		if err != nil {
			return d.complain(stderr, ExitFailed, err)
		}
		fmt.Fprintf(stdout, "%s: %s\n", d.Program, done)
		return ExitOK
	}
	if err := d.start(*path, loaded, stderr); err != nil {
		return d.complain(stderr, ExitFailed, err)
	}
	return ExitOK
}

func (d Daemon[C]) complain(stderr io.Writer, code int, err error) int {
	fmt.Fprintf(stderr, "%s: %v\n", d.Program, err)
	return code
}

// start runs the daemon from base to base.
func (d Daemon[C]) start(path string, loaded C, stderr io.Writer) (err error) {
	// Signals are taken from here on, so that one that comes early stops the daemon in order too.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)

	health := &observe.Health{}
	started := health.Condition("start")
	started.Fails("the daemon is starting")
	base, err := Open(d.Role, loaded.Shared(), stderr, health)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		err = errors.Join(err, base.Close(ctx))
	}()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	cancel := func() {
		started.Fails("the daemon is stopping") // before it lets go of anything that others rely on
		end()
	}
	app, err := d.New(ctx, loaded, base)
	if err != nil {
		return err
	}
	reloader := config.NewReloader(loaded, func() (C, error) { return d.Load(path) }, prepareBoth(base, app), base.Log, base.Registry)
	started.Holds("")
	base.Log.Info("started", "config", path)
	stop := func(s os.Signal) {
		base.Log.Info("stopping: " + nameOf(s))
		cancel()
	}
	if err := supervise(ctx, cancel, stop, app.Run, reloader.Reload, signals); err != nil {
		return err
	}
	base.Log.Info("stopped")
	return nil
}

// nameOf gives the name that a signal has for a person.
func nameOf(s os.Signal) string {
	if number, ok := s.(syscall.Signal); ok {
		return cmp.Or(unix.SignalName(number), s.String())
	}
	return s.String()
}

// prepareBoth prepares the base, then the daemon.
func prepareBoth[C interface{ Shared() config.Common }](base *Base, app App[C]) config.Prepare[C] {
	return func(ctx context.Context, current, next C) (func(), error) {
		commitBase, err := base.Prepare(current.Shared(), next.Shared())
		if err != nil {
			return nil, err
		}
		commitApp, err := app.Prepare(ctx, current, next)
		if err != nil {
			return nil, err
		}
		return func() {
			commitBase()
			commitApp()
		}, nil
	}
}

// supervise runs the daemon until it ends or a signal ends it, which stop is told.
func supervise(ctx context.Context, cancel context.CancelFunc, stop func(os.Signal), run, reload func(context.Context) error, signals <-chan os.Signal) error {
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	hangups := make(chan struct{}, 1) // one waiting reload stands for all that were asked for meanwhile
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for range hangups {
			_ = reload(ctx) // it has logged and counted what went wrong; the daemon goes on as it was
		}
	})
	err := untilEnded(stop, ended, hangups, signals)
	cancel()
	close(hangups)
	if errors.Is(err, errAtOnce) || errors.Is(err, errNotInTime) {
		return err // what still runs ends with the process
	}
	reloads.Wait()
	return err
}

var (
	errAtOnce    = errors.New("stopped at once by a second signal")
	errNotInTime = fmt.Errorf("did not stop within %s of the signal", grace)
)

func untilEnded(stop func(os.Signal), ended <-chan error, hangups chan<- struct{}, signals <-chan os.Signal) error {
	var deadline <-chan time.Time
	for {
		select {
		case err := <-ended:
			return err
		case <-deadline:
			return errNotInTime
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				select {
				case hangups <- struct{}{}:
				default:
				}
			case deadline != nil:
				return errAtOnce
			default:
				deadline = time.After(grace)
				stop(s)
			}
		}
	}
}
