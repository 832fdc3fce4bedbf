package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/impair"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// impairOptions are the flags of `margay lab impair`.
type impairOptions struct {
	delay, jitter   time.Duration
	loss, rate, way string
	queue           int
	seed            uint64
	clear, show     bool
}

func labImpair() *cobra.Command {
	var o impairOptions
	command := &cobra.Command{
		Use:   "impair LAB [NODE:INTERFACE]",
		Short: "Make a link slow, lossy or narrow",
		Long: "Make the link at an interface slow, lossy or narrow, in both directions or one, until --clear. What is said replaces\n" +
			"all that held in those directions. The link must be `impairable: true` in the topology, or the lab up with --impairable.",
		Example: "  margay lab up example --impairable\n" +
			"  margay lab impair example IF-1:core1 --delay 5ms --jitter 1ms --loss 0.1% --rate 100mbit\n" +
			"  margay lab impair example --show\n" +
			"  margay lab impair example IF-1:core1 --clear",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	f := command.Flags()
	f.DurationVar(&o.delay, "delay", 0, "of each frame, up to "+impair.MaxDelay.String())
	f.DurationVar(&o.jitter, "jitter", 0, "the delay is uniform within this much of --delay; the order is kept")
	f.StringVar(&o.loss, "loss", "", "share of the frames that are lost, such as 0.1%")
	f.StringVar(&o.rate, "rate", "", "such as 100mbit or 64kbit, of whole frames")
	f.IntVar(&o.queue, "queue", impair.DefaultQueue, "frames that wait for the rate; those beyond are dropped")
	f.Uint64Var(&o.seed, "seed", 0, "of loss and jitter, for a run that can be repeated (default: a new one)")
	f.StringVar(&o.way, "direction", string(lab.BothWays), "out: what the node sends there; in: what it gets; both")
	f.BoolVar(&o.clear, "clear", false, "end it; without an interface: everywhere")
	f.BoolVar(&o.show, "show", false, "show what holds, and counters")
	return command
}

func (o *impairOptions) run(c *cobra.Command, args []string) error {
	changed := c.Flags().Changed
	sets := changed("delay") || changed("jitter") || changed("loss") || changed("rate")
	chosen := 0
	for _, b := range []bool{sets, o.clear, o.show} {
		if b {
			chosen++
		}
	}
	switch {
	case chosen != 1:
		return errors.New("need an impairment (--delay, --jitter, --loss, --rate), or --clear, or --show")
	case sets && len(args) < 2:
		return errors.New("need NODE:INTERFACE: which link")
	case o.show && len(args) > 1:
		return errors.New("--show shows all links; leave the interface out")
	}
	way, err := lab.ParseWay(o.way)
	if err != nil {
		return fmt.Errorf("--direction: %w", err)
	}
	l, err := lab.Open(args[0])
	if err != nil {
		return err
	}
	defer l.Close()
	at := ""
	if len(args) > 1 {
		at = args[1]
	}
	switch {
	case o.show:
		return showImpairments(c.Context(), c.OutOrStdout(), l)
	case o.clear && at == "" && way != lab.BothWays:
		return errors.New("--direction: of which link?")
	case o.clear:
		return l.ClearImpairment(c.Context(), at, way)
	}
	set, err := o.impairment(changed("seed"))
	if err != nil {
		return err
	}
	if err := l.Impair(c.Context(), at, way, set); err != nil {
		return err
	}
	return showImpairments(c.Context(), c.OutOrStdout(), l)
}

func (o *impairOptions) impairment(seeded bool) (i impair.Impairment, err error) {
	i = impair.Impairment{Delay: o.delay, Jitter: o.jitter, Queue: o.queue, Seed: o.seed}
	if o.loss != "" {
		if i.Loss, err = impair.ParseLoss(o.loss); err != nil {
			return i, fmt.Errorf("--%w", err)
		}
	}
	if o.rate != "" {
		if i.Rate, err = impair.ParseRate(o.rate); err != nil {
			return i, fmt.Errorf("--%w", err)
		}
	}
	if !seeded {
		i.Seed = uint64(rand.Uint32()) // short enough to be typed again
	}
	return i, nil
}

func showImpairments(ctx context.Context, w io.Writer, l *lab.Lab) error {
	all, err := l.Impairments(ctx)
	t := &table{columns: names("FROM", "TO", "DELAY", "JITTER", "LOSS", "RATE", "QUEUE", "SEED", "FRAMES", "SENT", "LOST", "FULL", "MISSED", "REFUSED", "HELD")}
	for _, i := range all {
		loss, rate, queue := "", "", ""
		if i.Set.Loss > 0 {
			loss = impair.FormatLoss(i.Set.Loss)
		}
		if i.Set.Rate > 0 {
			rate, queue = impair.FormatRate(i.Set.Rate), fmt.Sprint(i.Set.Queue)
		}
		t.add(i.From, i.To, duration(i.Set.Delay), duration(i.Set.Jitter), loss, rate, queue, i.Set.Seed,
			i.Counts.Frames, i.Counts.Sent, i.Counts.Lost, i.Counts.Full, i.Counts.Missed, i.Counts.Refused, i.Counts.Held)
	}
	return errors.Join(t.write(w), err)
}

// duration gives an empty text for none.
func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// labImpairProcess is what the lab runs in the middle of an impaired link.
func labImpairProcess() *cobra.Command {
	var o impair.ProcessOptions
	var control, observe string
	command := &cobra.Command{
		Use: "impair-process", Short: "The process in the middle of an impaired link", Args: cobra.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Control, err = endpoint.Parse(control); err != nil {
				return fmt.Errorf("--control: %w", err)
			}
			if o.Observe, err = endpoint.Parse(observe); err != nil {
				return fmt.Errorf("--observe: %w", err)
			}
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			return impair.Process(c.Context(), o)
		},
	}
	command.Flags().StringVar(&o.A, "a", "", "interface on the side of one end")
	command.Flags().StringVar(&o.B, "b", "", "interface on the side of the other")
	command.Flags().StringVar(&control, "control", "", "where `margay lab impair` reaches it")
	command.Flags().StringVar(&observe, "observe", "", "where /metrics, /healthz and /readyz are served")
	return command
}
