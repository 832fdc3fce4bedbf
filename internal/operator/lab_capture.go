package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/capture"
)

// captureOptions are the flags of `margay lab capture`.
type captureOptions struct {
	file  string
	count int
	time  time.Duration
	flow  string
}

func labCapture() *cobra.Command {
	var o captureOptions
	command := &cobra.Command{
		Use:   "capture LAB NODE[:INTERFACE]...",
		Short: "Show the packets that pass interfaces of nodes, as they pass, until ctrl-C",
		Long: "Show the packets that pass interfaces of nodes, in the order of their times, until ctrl-C.\n" +
			"A node without an interface stands for all of its links.",
		Example: "  margay lab capture example client IF-1:core1 EF-2:core1 B --flow 'tcp 192.0.2.10'\n" +
			"  margay lab capture example IF-1 -w if1.pcapng --for 10s\n" +
			"  margay lab capture example IF-1:core1 -w - | tshark -r -",
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0], args[1:]) },
	}
	f := command.Flags()
	f.StringVarP(&o.file, "write", "w", "", "write them to a file, too: .pcapng tells the interfaces apart, anything else is pcap; -: pcap to standard output, and no lines")
	f.IntVar(&o.count, "count", 0, "end after so many packets")
	f.DurationVar(&o.time, "for", 0, "end after this time")
	f.StringVar(&o.flow, "flow", "", "only a flow, in both directions, such as 'udp 192.0.2.10:51000' or 'tcp 192.0.2.10 192.0.2.100:443'")
	return command
}

func (o *captureOptions) run(c *cobra.Command, name string, places []string) (err error) {
	if o.count < 0 || o.time < 0 {
		return errors.New("--count and --for: need more than nothing")
	}
	v := packetView{count: o.count, lines: c.OutOrStdout()}
	if o.flow != "" {
		if v.flow, err = capture.ParseFlow(o.flow); err != nil {
			return fmt.Errorf("--flow: %w", err)
		}
	}
	l, err := lab.Open(name)
	if err != nil {
		return err
	}
	defer l.Close()
	points, err := l.Points(places...)
	if err != nil {
		return err
	}
	for _, p := range points {
		v.names = append(v.names, p.Name)
		v.width = max(v.width, len(p.Name))
	}
	ctx := c.Context()
	if o.time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.time)
		defer cancel()
	}
	closeFile, err := v.open(o.file, points)
	if err != nil {
		return err
	}
	missed, err := capture.Live(ctx, points, v.take)
	if err = errors.Join(err, closeFile()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.ErrOrStderr(), "%d packets", v.shown)
	if missed > 0 {
		_, err = fmt.Fprintf(c.ErrOrStderr(), "; %d were missed, as they came faster than they could be shown", missed)
	}
	_, ended := fmt.Fprintln(c.ErrOrStderr())
	return errors.Join(err, ended)
}

// packetView is what becomes of the packets.
type packetView struct {
	names []string // of the points
	width int      // of the longest
	flow  *capture.Flow
	file  *capture.Pcap
	lines io.Writer // nil: none
	count int       // 0: no end
	shown int
}

// open begins the capture file, if there is to be one.
func (v *packetView) open(path string, points []capture.Point) (end func() error, err error) {
	switch path {
	case "":
		return func() error { return nil }, nil
	case "-":
		v.file, err = capture.NewPcap(v.lines)
		v.lines = nil
		return func() error { return nil }, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("capture file: %w", err)
	}
	if filepath.Ext(path) == ".pcapng" {
		v.file, err = capture.NewPcapNG(file, points)
	} else {
		v.file, err = capture.NewPcap(file)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file.Close, nil
}

func (v *packetView) take(point int, f capture.Frame) error {
	line, packet := capture.Describe(f.Octets)
	if v.flow != nil && (packet == nil || !v.flow.Match(packet)) {
		return nil
	}
	if v.file != nil {
		if err := v.file.Write(point, f); err != nil {
			return err
		}
	}
	if v.lines != nil {
		way := "in "
		if f.Outgoing {
			way = "out"
		}
		if _, err := fmt.Fprintf(v.lines, "%s %-*s %s %s\n", f.At.Format("15:04:05.000000"), v.width, v.names[point], way, line); err != nil {
			return err
		}
	}
	v.shown++
	if v.shown == v.count {
		return capture.ErrEnough
	}
	return nil
}
