// Package operator has the verbs of the margay command.
package operator

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/pki"
)

// PKI is "margay pki": a small certificate authority for labs and first steps.
func PKI() *cobra.Command {
	return group(&cobra.Command{
		Use:   "pki",
		Short: "Make a lab certificate authority and issue certificates",
		Long: "Make a certificate authority in a directory, and issue certificates for the programs of its domain.\n" +
			"Meant for labs and first steps: production brings its own authority.",
	}, pkiInit(), pkiIssue())
}

func pkiInit() *cobra.Command {
	var dir, domain string
	command := &cobra.Command{
		Use:   "init",
		Short: "Make an authority: ca.crt and ca.key",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			files, err := pki.Init(dir, domain)
			if err != nil {
				return fmt.Errorf("pki init: %w", err)
			}
			fmt.Fprintf(command.OutOrStdout(), "authority of %s\ncertificate %s\nkey         %s (keep it secret)\n", domain, files.Certificate, files.Key)
			return nil
		},
	}
	command.Flags().StringVar(&dir, "dir", "pki", "`directory` of the authority")
	command.Flags().StringVar(&domain, "domain", "example.margay", "SPIFFE trust domain")
	return command
}

func pkiIssue() *cobra.Command {
	var dir string
	var options pki.Options
	command := &cobra.Command{
		Use:   "issue <role> <name>",
		Short: "Issue a certificate for a program: <role>-<name>.crt and .key",
		Long: fmt.Sprintf("Issue a certificate whose identity is spiffe://<domain>/<role>/<name>. The roles are %v.\n"+
			"The name is the one in the program's configuration: letters, digits, dots, underscores and dashes.", trust.Roles()),
		Example: "  margay pki issue forwarder IF-1\n  margay pki issue operator admin --validity 720h",
		Args:    cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			role, err := trust.ParseRole(arguments[0])
			if err != nil {
				return fmt.Errorf("pki issue: %w", err)
			}
			files, err := pki.Issue(dir, role, arguments[1], options)
			if err != nil {
				return fmt.Errorf("pki issue: %w", err)
			}
			fmt.Fprintf(command.OutOrStdout(), "certificate %s\nkey         %s\nauthority   %s\n", files.Certificate, files.Key, files.Authority)
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&dir, "dir", "pki", "`directory` of the authority")
	flags.StringVar(&options.Out, "out", "", "`directory` to write to (default: the authority's)")
	flags.DurationVar(&options.Validity, "validity", pki.DefaultValidity, "how long the certificate is valid, at most as long as the authority")
	flags.BoolVar(&options.Ed25519, "ed25519", false, "make an Ed25519 key instead of ECDSA P-256")
	flags.BoolVar(&options.Replace, "replace", false, "renew: overwrite the certificate and key that are there")
	return command
}
