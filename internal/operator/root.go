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

	"github.com/margay-net/margay/internal/operator/client"
	"github.com/margay-net/margay/internal/version"
)

// DefaultConfig is where margay finds its configuration unless --config or MARGAY_CONFIG says otherwise.
const DefaultConfig = "/etc/margay/operator.yaml"

// Config is the configuration of the margay command.
type Config = client.Config

// options are the flags that every verb has.
type options struct {
	config  string
	timeout time.Duration
}

// domain loads the configuration.
func (o *options) domain() (*client.Domain, error) {
	d, err := client.Load(o.config, o.timeout)
	if err != nil {
		return nil, fmt.Errorf("configuration (choose another with --config or MARGAY_CONFIG): %w", err)
	}
	return d, nil
}

// Root is the whole command `margay`.
func Root() *cobra.Command {
	var o options
	root := group(&cobra.Command{
		Use:           "margay",
		Short:         "Operate a domain of Computing-Aware Traffic Steering",
		Version:       version.Of("margay"),
		SilenceUsage:  true,
		SilenceErrors: true,
	}, getCommand(&o), explainCommand(&o), requestCommand(&o), auditCommand(), labCommand(), demoCommand(), PKI())
	root.SetVersionTemplate("{{.Version}}\n")
	config := os.Getenv("MARGAY_CONFIG")
	if config == "" {
		config = DefaultConfig
	}
	root.PersistentFlags().StringVar(&o.config, "config", config, "configuration file (or MARGAY_CONFIG)")
	root.PersistentFlags().DurationVar(&o.timeout, "timeout", 10*time.Second, "longest wait for an answer")
	withUsage(root)
	return root
}

// ExitCode is the exit code of a command that has said all that there is to say: margay explain of a request that would
// be refused, or what margay lab exec ran.
type ExitCode int

// Error gives the code.
func (e ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

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
