package operator

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// group is a command that only has verbs below it: alone it shows its help, and an unknown verb is an error that
// suggests others.
func group(command *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	command.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownVerb(c, args[0])
	}
	command.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	command.AddCommand(verbs...)
	return command
}

func unknownVerb(c *cobra.Command, verb string) error {
	c.SuggestionsMinimumDistance = 2
	var known []string
	for _, v := range c.Commands() {
		if v.IsAvailableCommand() {
			known = append(known, v.Name())
		}
	}
	text := fmt.Sprintf("unknown command %q for %q", verb, c.CommandPath())
	if like := c.SuggestionsFor(verb); len(like) > 0 {
		text += "; did you mean " + strings.Join(like, " or ") + "?"
	}
	return fmt.Errorf("%s; it has %s", text, strings.Join(known, ", "))
}

// withUsage makes errors of arguments and flags end in the command's usage line, for it and all below it.
func withUsage(command *cobra.Command) {
	check := command.Args
	grouped := command.HasSubCommands()
	command.Args = func(c *cobra.Command, args []string) error {
		if check != nil {
			if err := check(c, args); err != nil {
				if grouped {
					return err // the verbs that it has are named
				}
				return usageError(c, err)
			}
		}
		if err := c.ValidateRequiredFlags(); err != nil {
			return usageError(c, err)
		}
		return nil
	}
	command.SetFlagErrorFunc(usageError)
	for _, c := range command.Commands() {
		withUsage(c)
	}
}

func usageError(c *cobra.Command, err error) error {
	return fmt.Errorf("%w\nusage: %s", err, c.UseLine())
}
