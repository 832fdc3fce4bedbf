package operator

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/margay-net/margay/internal/observe/audit"
)

// auditCommand is "margay audit": what can be done with the audit logs of daemons.
func auditCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "audit", Short: "Check the audit logs of daemons", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() }, // runnable, so that an unknown verb is an error
	}
	command.AddCommand(auditVerify())
	return command
}

// auditVerify reads files on this machine; it asks no daemon.
func auditVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE...",
		Short: "Follow the chain of each log: nothing was changed, removed or put in before its last record",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, files []string) error {
			var failed []error
			for _, file := range files {
				s, err := audit.Verify(file)
				if err != nil {
					failed = append(failed, err)
					continue
				}
				fmt.Fprintf(command.OutOrStdout(), "%s: %d records, the chain holds", file, s.Records)
				if s.Torn > 0 {
					fmt.Fprintf(command.OutOrStdout(), "; crashes cut short %d lines, each marked", s.Torn)
				}
				if s.Pending > 0 {
					fmt.Fprintf(command.OutOrStdout(), "; %d octets of an unfinished last line", s.Pending)
				}
				fmt.Fprintln(command.OutOrStdout())
			}
			return errors.Join(failed...)
		},
	}
}
