package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-net/margay/internal/lab"
	"github.com/margay-net/margay/internal/lab/demo"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

func labCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "lab", Short: "A whole domain in network namespaces of this machine",
		PersistentPreRunE: asRoot,
	}, labUp(), labDown(), labList(), labStatus(), labStart(), labStop(), labRestart(), labExec(), labCapture(), labImpair(), labService(), labImpairProcess())
}

// asRoot refuses a verb that makes or enters namespaces to others than root.
func asRoot(c *cobra.Command, _ []string) error { return rootOnly(c.CommandPath(), os.Geteuid()) }

func rootOnly(path string, user int) error {
	if user != 0 {
		return fmt.Errorf("%s makes, enters or looks into network namespaces: run it as root", path)
	}
	return nil
}

func labUp() *cobra.Command {
	var name string
	var impairable bool
	command := &cobra.Command{
		Use:   "up TOPOLOGY",
		Short: "Bring up a topology file, or the one that comes with the program: " + lab.ExampleName,
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			topology, err := lab.LoadTopology(args[0])
			if err != nil {
				return err
			}
			for i := range topology.Links {
				topology.Links[i].Impairable = topology.Links[i].Impairable || impairable
			}
			l, err := lab.Up(c.Context(), lab.Options{Topology: topology, Name: name, Progress: c.ErrOrStderr()})
			if err != nil {
				return err
			}
			defer l.Close()
			_, err = fmt.Fprintf(c.OutOrStdout(), "lab %s is up; to look around: export MARGAY_CONFIG=%s\n", l.Name(), l.OperatorConfig())
			return err
		},
	}
	command.Flags().StringVar(&name, "name", "", "name of the lab (default: the topology's)")
	command.Flags().BoolVar(&impairable, "impairable", false, "build every link so that `margay lab impair` works on it")
	return command
}

func labDown() *cobra.Command {
	return &cobra.Command{
		Use: "down LAB", Short: "Stop its processes and all else in its namespaces; remove namespaces, pins and files", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return lab.Down(args[0], c.OutOrStdout()) },
	}
}

func labList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The labs of this machine", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			labs, err := lab.List()
			if err != nil {
				return err
			}
			t := &table{columns: names("LAB", "TOPOLOGY", "AGE", "PROCESSES")}
			for _, l := range labs {
				t.add(l.Name, l.Topology, age(uint64(time.Since(l.Created).Milliseconds())), fmt.Sprintf("%d/%d", l.Running, l.Daemons))
			}
			return t.write(c.OutOrStdout())
		},
	}
}

func labExec() *cobra.Command {
	command := &cobra.Command{
		Use:     "exec LAB NODE COMMAND [ARGUMENT...]",
		Short:   "Run a command inside a node",
		Example: "  margay lab exec example client curl -s http://192.0.2.100:443/",
		Args:    cobra.MinimumNArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			command := args[2:]
			if command[0] == "--" {
				command = command[1:]
			}
			code, err := lab.Exec(args[0], args[1], command)
			if err == nil && code != 0 {
				return ExitCode(code)
			}
			return err
		},
	}
	command.Flags().SetInterspersed(false) // what comes after LAB is the command's
	return command
}

// labService is what the lab runs at its instances.
func labService() *cobra.Command {
	var o lab.ServiceOptions
	var observe string
	command := &cobra.Command{
		Use: "service", Short: "The small service of the lab's instances: HTTP over TCP, echo over UDP", Args: cobra.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if observe != "" {
				address, err := endpoint.Parse(observe)
				if err != nil {
					return fmt.Errorf("--observe: %w", err)
				}
				o.Observe = address
			}
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			if err := lab.Service(c.Context(), o); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
	}
	command.Flags().StringVar(&o.Name, "name", "", "name of the instance, in every answer")
	command.Flags().StringSliceVar(&o.Listen, "listen", nil, "tcp:address:port or udp:address:port")
	command.Flags().StringVar(&observe, "observe", "", "where /metrics, /healthz and /readyz are served")
	return command
}

func demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "demo",
		Short:   "Run the end-to-end example of the draft's section 14 in a lab and compare every packet with it",
		Args:    cobra.NoArgs,
		PreRunE: asRoot,
		RunE:    func(c *cobra.Command, _ []string) error { return demo.Run(c.Context(), c.OutOrStdout()) },
	}
}
