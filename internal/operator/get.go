package operator

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	api "github.com/margay-net/margay/api/margayv1alpha1"
)

// view is one kind of thing that the C-PS lists.
type view struct {
	name, alias, short string
	columns            []column
	ask                func(ctx context.Context, c api.OperatorServiceClient, q query, page func(proto.Message) error) error
	fill               func(*table, proto.Message)
	ofService          bool // takes --service
	limited            bool // takes --limit
}

// query is what is asked for.
type query struct {
	service string // CS-ID; empty: all
	limit   uint64 // rows; 0: all
}

func getCommand(o *options) *cobra.Command {
	var f viewFlags
	command := &cobra.Command{Use: "get", Short: "Show services, instances, paths, bindings, forwarders or counters"}
	flags := command.PersistentFlags()
	flags.StringVarP(&f.format, "output", "o", "", "instead of a table: json|yaml, one document; wide: more columns")
	flags.BoolVarP(&f.watch, "watch", "w", false, "show it again every second until interrupted")
	long := command.Short + ".\n"
	var verbs []*cobra.Command
	for _, v := range []*view{servicesView(), instancesView(), pathsView(), bindingsView(), forwardersView()} {
		verbs = append(verbs, v.command(o, &f))
		long += v.help()
	}
	command.Long = strings.TrimSpace(long + countersHelp())
	return group(command, append(verbs, countersCommand(o, &f))...)
}

func (v *view) command(o *options, f *viewFlags) *cobra.Command {
	var q query
	command := &cobra.Command{
		Use: v.name, Aliases: []string{v.alias}, Short: v.short, Long: strings.TrimSpace(v.short + ".\n" + columnsHelp(v.columns)), Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.show(c, func(ctx context.Context, w io.Writer) error {
				d, err := o.domain()
				if err != nil {
					return err
				}
				return d.AskCPS(ctx, func(ctx context.Context, cps api.OperatorServiceClient) error {
					return v.show(ctx, cps, q, w, f.format)
				})
			})
		},
	}
	if v.ofService {
		command.Flags().StringVar(&q.service, "service", "", "only of this CS-ID")
	}
	if v.limited {
		command.Flags().Uint64Var(&q.limit, "limit", 0, "most rows (default: all)")
	}
	return command
}

// show writes the answer of the C-PS, a table page by page as it comes.
func (v *view) show(ctx context.Context, cps api.OperatorServiceClient, q query, w io.Writer, format string) error {
	var whole proto.Message
	p := printer{w: w, wide: format == formatWide}
	var last *table
	err := v.ask(ctx, cps, q, func(page proto.Message) error {
		if isDocument(format) {
			if whole == nil {
				whole = page
				return nil
			}
			proto.Merge(whole, page)
			return nil
		}
		if last != nil {
			last.footer = ""
			if err := p.finish(last); err != nil {
				return err
			}
		}
		last = &table{columns: v.columns}
		v.fill(last, page)
		return nil
	})
	switch {
	case err != nil:
		return err
	case isDocument(format):
		return encode(w, format, document(whole))
	}
	return p.finish(last)
}

// help is the part of `margay get --help` on this view.
func (v *view) help() string { return viewHelp(v.name, v.short, v.columns) }

func viewHelp(name, short string, columns []column) string {
	return fmt.Sprintf("\n%s: %s.\n%s", name, short, columnsHelp(columns))
}

// columnsHelp explains columns, a line for each.
func columnsHelp(columns []column) string {
	width := 0
	for _, c := range columns {
		width = max(width, utf8.RuneCountInString(c.name))
	}
	var text strings.Builder
	for _, c := range columns {
		wide := ""
		if c.wide {
			wide = " (-o wide)"
		}
		fmt.Fprintf(&text, "  %-*s  %s%s\n", width, c.name, c.meaning, wide)
	}
	return text.String()
}

// known gives an error unless the C-PS has the service in its catalogue.
func known(ctx context.Context, c api.OperatorServiceClient, service string) error {
	answer, err := c.ListServices(ctx, &api.ListServicesRequest{})
	if err != nil {
		return err
	}
	return inCatalogue(answer, service)
}

func inCatalogue(catalogue *api.ListServicesResponse, service string) error {
	var all []string
	for _, s := range catalogue.GetServices() {
		all = append(all, s.GetService().GetCsId())
	}
	if slices.Contains(all, service) {
		return nil
	}
	if len(all) == 0 {
		return fmt.Errorf("the C-PS knows no service %q: its catalogue is empty", service)
	}
	return fmt.Errorf("the C-PS knows no service %q; it has %s", service, strings.Join(all, ", "))
}
