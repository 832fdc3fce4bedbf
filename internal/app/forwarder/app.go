package forwarder

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/app/run"
	"github.com/margay-net/margay/internal/datapath"
	core "github.com/margay-net/margay/internal/forwarder"
	"github.com/margay-net/margay/internal/journal"
	"github.com/margay-net/margay/internal/southbound/agent"
	"github.com/margay-net/margay/internal/trust"
)

const (
	mostEvents  = 256             // of one Step
	eventQueue  = 64              // session events and calls that wait for the owner before their senders do
	missQueue   = 4               // batches of held packets that wait for the owner before the reader does
	scanEvery   = time.Second     // the data plane's counters are read
	stopTimeout = 5 * time.Second // for calls that are being answered
)

// App is a running forwarder. The goroutine of Run owns what is not said to be anybody else's.
type App struct {
	base    *run.Base // anybody's
	name    string    // of the forwarder; never changes
	config  Config
	clock   clock
	system  *system // the data plane and what belongs to it
	journal *journal.Journal
	core    *core.Core
	handler *handler
	client  *agent.Client
	guard   *trust.Guard // of the servers; anybody's
	servers []*server
	metrics *metrics
	full    *exhaustion

	held    held
	totals  journal.Totals
	stored  uint64                              // sum of the totals when they were last written
	answers map[uint64]chan core.AnnounceAnswer // of announcements that the core has
	token   uint64                              // of the latest announcement
	session uint64                              // number of the session that the core knows; 0: none

	in  core.Events
	out core.Effects

	misses chan []datapath.Miss
	events chan event
	stop   chan struct{} // closed when the owner ends: nobody takes events any more
}

// event is something that another goroutine has for the owner: a call, or a thing that happened on a session.
type event struct {
	call    func()
	change  core.Session
	session uint64 // number, with SessionUp
	detail  string // of the change, for a person
	batch   *cats.SteeringBatch
}

// New opens what Run needs, and puts everything in force that was. On an error it leaves nothing open; the data plane
// goes on as it was.
func New(_ context.Context, c Config, base *run.Base) (run.App[Config], error) {
	a := &App{
		base: base, name: string(c.Name), config: c, clock: newClock(), answers: make(map[uint64]chan core.AnnounceAnswer),
		misses: make(chan []datapath.Miss, missQueue), events: make(chan event, eventQueue), stop: make(chan struct{}),
	}
	if err := a.open(); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// Run works until ctx ends. The data plane goes on afterwards.
func (a *App) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	failures := make(chan error, 1+len(a.servers))
	var reader sync.WaitGroup
	plane := a.system.plane
	reader.Go(func() {
		if err := a.readMisses(plane); err != nil {
			failures <- err
		}
	})
	helpers.Go(func() { a.client.Run(ctx) })
	for _, s := range a.servers {
		helpers.Go(func() {
			if err := s.grpc.Serve(s.listener); err != nil {
				failures <- err
			}
		})
	}
	err := a.own(ctx, failures)
	a.metrics.session.Fails("the forwarder stops")
	cancel()
	close(a.stop)
	for _, s := range a.servers {
		stopServer(s.grpc)
	}
	helpers.Wait()
	err = errors.Join(err, plane.Close()) // ends the reader
	a.system.plane = nil
	reader.Wait()
	return errors.Join(err, a.close())
}

func stopServer(s *grpc.Server) {
	timer := time.AfterFunc(stopTimeout, s.Stop)
	defer timer.Stop()
	s.GracefulStop()
}

// readMisses hands held packets to the owner until the data plane is closed.
func (a *App) readMisses(plane *datapath.Datapath) error {
	scratch := make([]datapath.Miss, 0, mostEvents)
	for {
		batch, err := plane.ReadMisses(scratch, time.Time{})
		if errors.Is(err, datapath.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case a.misses <- slices.Clone(batch):
		case <-a.stop: // the rest is dropped with the process
		}
	}
}

// hand waits until the owner takes an event, or takes none any more; then it is false.
func (a *App) hand(e event) bool {
	select {
	case a.events <- e:
		return true
	case <-a.stop:
		return false
	}
}
