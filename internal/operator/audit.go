package operator

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/margay-net/margay/internal/observe/audit"
)

// auditCommand is "margay audit": what can be done with the audit logs of daemons.
func auditCommand() *cobra.Command {
	return group(&cobra.Command{Use: "audit", Short: "Check the audit logs of daemons"}, auditVerify())
}

// auditVerify reads files on this machine; it asks no daemon.
func auditVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE...",
		Short: "Follow the chain of each log over its rotated files: nothing was changed, removed or put in before its last record",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, files []string) error {
			var failed []error
			for _, file := range files {
				s, err := audit.Verify(file)
				if err != nil {
					failed = append(failed, err)
					continue
				}
				fmt.Fprintf(command.OutOrStdout(), "%s: %d records", file, s.Records)
				if s.Files > 1 {
					fmt.Fprintf(command.OutOrStdout(), " in %d files", s.Files)
				}
				fmt.Fprint(command.OutOrStdout(), ", the chain holds")
				if s.Before != "" {
					fmt.Fprintf(command.OutOrStdout(), "; it goes on from %s, which is not there any more", s.Before)
				}
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
