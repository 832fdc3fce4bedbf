package operator

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-net/margay/internal/lab"
)

// labReady bounds how long a process may take to be ready.
const labReady = time.Minute

var statusColumns = []column{
	{name: "NAME", meaning: "of the process"},
	{name: "ROLE", meaning: "what it is; service: what stands for a service at an instance"},
	{name: "NODE", meaning: "namespace in which it runs"},
	{name: "PID", meaning: "-: it does not run"},
	{name: "LOG", meaning: "file of what it says"},
	{name: "READY", meaning: "yes, or the conditions of its /readyz that do not hold"},
}

func labStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status LAB", Short: "The processes of a lab: which run, which are ready, and their log files", Args: cobra.ExactArgs(1),
		Long: "The processes of a lab: which run, which are ready, and their log files.\n" + columnsHelp(statusColumns),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := lab.Status(c.Context(), args[0])
			if err != nil {
				return err
			}
			return writeStatus(c.OutOrStdout(), all)
		},
	}
}

func writeStatus(w io.Writer, all []lab.DaemonStatus) error {
	t := &table{columns: statusColumns}
	for _, d := range all {
		pid, ready := "-", "-"
		if d.PID > 0 {
			pid = fmt.Sprint(d.PID)
			switch {
			case d.Ready:
				ready = "yes"
			case d.Answers:
				ready = d.Lacks
			default:
				ready = "it does not answer"
			}
		}
		t.add(d.Name, d.Role, d.Node, pid, d.Log, ready)
	}
	return t.write(w)
}

func labStart() *cobra.Command {
	return labProcess("start", "Start a process that does not run, and wait until it is ready", true, (*lab.Lab).Start)
}

func labStop() *cobra.Command {
	return labProcess("stop", "Stop a process, as SIGTERM does; a forwarder's data plane goes on", false,
		func(l *lab.Lab, _ context.Context, name string) error { return l.Stop(name) })
}

func labRestart() *cobra.Command {
	return labProcess("restart", "Stop a process, start it again, and wait until it is ready", true, (*lab.Lab).Restart)
}

// labProcess is a verb on one process of a lab.
func labProcess(verb, short string, runs bool, do func(*lab.Lab, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " LAB PROCESS", Short: short, Example: "  margay lab " + verb + " example EF-2", Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			l, err := lab.Open(args[0])
			if err != nil {
				return err
			}
			defer l.Close()
			ctx, cancel := context.WithTimeoutCause(c.Context(), labReady, fmt.Errorf("waited %s", labReady))
			defer cancel()
			if err := do(l, ctx, args[1]); err != nil {
				return err
			}
			d, err := l.Daemon(args[1])
			if err != nil {
				return err
			}
			said := d.Name + " stopped"
			if runs {
				said = fmt.Sprintf("%s ready, pid %d", d.Name, d.PID)
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), said)
			return err
		},
	}
}
