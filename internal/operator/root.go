package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// DefaultConfig is where margay finds its configuration unless --config or MARGAY_CONFIG says otherwise.
const DefaultConfig = "/etc/margay/operator.yaml"

// options are the flags that every verb has.
type options struct {
	config  string
	timeout time.Duration
}

// Root is the whole command `margay`.
func Root() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:           "margay",
		Short:         "Operate a domain of Computing-Aware Traffic Steering",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	config := os.Getenv("MARGAY_CONFIG")
	if config == "" {
		config = DefaultConfig
	}
	root.PersistentFlags().StringVar(&o.config, "config", config, "configuration file (or MARGAY_CONFIG)")
	root.PersistentFlags().DurationVar(&o.timeout, "timeout", 10*time.Second, "longest wait for an answer")
	root.AddCommand(getCommand(&o), explainCommand(&o), requestCommand(&o), auditCommand(), labCommand(), demoCommand(), PKI())
	return root
}

// Main runs the command line and gives the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := Root().ExecuteContext(ctx); err != nil {
		if code := ExitCode(0); errors.As(err, &code) {
			return int(code)
		}
		fmt.Fprintln(os.Stderr, "margay:", err)
		return 1
	}
	return 0
}
