package operator

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// formats are the values of -o; the empty one is a table.
const formats = "json|yaml|wide"

func checkFormat(format string) error {
	switch format {
	case "", "json", "yaml", "wide":
		return nil
	}
	return fmt.Errorf("-o %s: need one of %s", format, formats)
}

// encode writes an answer as JSON or YAML, field names as in the contract.
func encode(w io.Writer, format string, answer proto.Message) error {
	octets, err := protojson.MarshalOptions{Multiline: true, UseProtoNames: true, EmitUnpopulated: true}.Marshal(answer)
	if err != nil {
		return err
	}
	if format == "yaml" {
		if octets, err = yaml.JSONToYAML(octets); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(w, strings.TrimSpace(string(octets)))
	return err
}

// table is an answer as rows of text; columns from wide on are shown with -o wide only.
type table struct {
	columns []string
	wide    int
	rows    [][]string
	footer  string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
		if row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

func (t *table) write(w io.Writer, wide bool) error {
	shown := len(t.columns)
	if !wide && t.wide > 0 {
		shown = t.wide
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, strings.Join(t.columns[:shown], "\t"))
	for _, row := range t.rows {
		fmt.Fprintln(out, strings.Join(row[:shown], "\t"))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if t.footer != "" {
		fmt.Fprintln(w, t.footer)
	}
	return nil
}

// enum gives the name of an enumeration's value without its prefix, as the drafts write it.
func enum(v fmt.Stringer, prefix string) string {
	name := strings.TrimPrefix(v.String(), prefix)
	if name == "UNSPECIFIED" {
		return "-"
	}
	return name
}

func reason(r api.Reason) string {
	if r == api.Reason_REASON_UNSPECIFIED {
		return "-"
	}
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(r.String(), "REASON_")), "_", "-")
}

func address(octets []byte) string {
	a, ok := netip.AddrFromSlice(octets)
	if !ok {
		return "-"
	}
	return a.String()
}

func addresses(list [][]byte) string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = address(a)
	}
	return strings.Join(texts, ",")
}

func endpointText(octets []byte, port uint32) string {
	a, ok := netip.AddrFromSlice(octets)
	if !ok {
		return "-"
	}
	return netip.AddrPortFrom(a, uint16(port)).String()
}

func locator(l *api.Locator) string {
	if l == nil {
		return "-"
	}
	return endpointText(l.GetAddress(), l.GetPort()) + "/" + cats.Protocol(l.GetProtocol()).String()
}

func tuple(t *api.Tuple) string {
	if t == nil {
		return "-"
	}
	return endpointText(t.GetSource().GetAddress(), t.GetSource().GetPort()) + " -> " +
		endpointText(t.GetTarget().GetAddress(), t.GetTarget().GetPort())
}

func serviceAddress(a *api.ServiceAddress) string {
	if a == nil {
		return "-"
	}
	text := address(a.GetPrefix().GetAddress())
	if ip, ok := netip.AddrFromSlice(a.GetPrefix().GetAddress()); ok && int(a.GetPrefix().GetBits()) != ip.BitLen() {
		text += fmt.Sprintf("/%d", a.GetPrefix().GetBits())
	} else if ok && ip.Is6() {
		text = "[" + text + "]"
	}
	return fmt.Sprintf("%s:%d/%s", text, a.GetPort(), cats.Protocol(a.GetProtocol()))
}

// age gives a time in milliseconds to the precision that a person needs.
func age(ms uint64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 10*time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}

func micros(us uint64) string { return fmt.Sprintf("%gms", float64(us)/1000) }

func transaction(octets []byte) string { return hex.EncodeToString(octets) }
