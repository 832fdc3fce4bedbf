package operator

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/cats"
)

// enum is the name of an enumeration's value in a table.
func enum(v protoreflect.Enum) string {
	if text := enumText(v.Descriptor(), v.Number()); text != "" {
		return text
	}
	return "-"
}

// states are the enumerations whose values the drafts write in capitals.
var states = []protoreflect.Name{
	"ServiceState", "DeploymentState", "Health", "ReportingState", "Validity", "FlowState", "BindingResult", "Half",
}

// enumText is the name of a value as people write it: states in capitals, anything else in lower case with hyphens,
// as in configuration files. It is empty where the value is not set, and the number where this program does not know it.
func enumText(d protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	if n == 0 {
		return ""
	}
	value := d.Values().ByNumber(n)
	if value == nil {
		return fmt.Sprint(n)
	}
	unset := string(d.Values().ByNumber(0).Name())
	name := strings.TrimPrefix(string(value.Name()), strings.TrimSuffix(unset, "UNSPECIFIED"))
	if slices.Contains(states, d.Name()) {
		return name
	}
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
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

// health is the health that a row still tells of: what a source reported says nothing any more once the row has expired
// or was withdrawn.
func health(r *api.InstanceReport) string {
	switch r.GetValidity() {
	case api.Validity_VALIDITY_EXPIRED:
		return enum(api.Health_HEALTH_UNKNOWN)
	case api.Validity_VALIDITY_WITHDRAWN:
		return "-"
	}
	return enum(r.GetHealth())
}

// delay is the network delay of an NST row.
func delay(p *api.PathRow) string {
	if !p.GetReachable() {
		return "-"
	}
	return micros(uint64(p.GetMetrics().GetDelayUs()))
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
