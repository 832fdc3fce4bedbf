package operator

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/margay-net/margay/cats"
)

// The values of -o; the empty one is a table or text.
const (
	formatJSON = "json"
	formatYAML = "yaml"
	formatWide = "wide"
)

func checkFormat(format string, known ...string) error {
	if format == "" || slices.Contains(known, format) {
		return nil
	}
	return fmt.Errorf("-o %s: need one of %s", format, strings.Join(known, "|"))
}

func isDocument(format string) bool { return format == formatJSON || format == formatYAML }

// encode writes one document: objects, lists ([]any) and what encoding/json makes one value of.
func encode(w io.Writer, format string, document any) error {
	text, err := appendJSON(nil, document, "\n")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if format == formatYAML {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = w.Write(text)
	return err
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value any
}

// appendJSON writes a value as JSON; newline is a line break and the indentation of the line on which it begins.
func appendJSON(text []byte, value any, newline string) ([]byte, error) {
	switch value := value.(type) {
	case object:
		return appendAll(text, '{', '}', len(value), newline, func(text []byte, i int, newline string) ([]byte, error) {
			text, err := appendJSON(text, value[i].name, newline)
			if err != nil {
				return nil, err
			}
			return appendJSON(append(text, ": "...), value[i].value, newline)
		})
	case []any:
		return appendAll(text, '[', ']', len(value), newline, func(text []byte, i int, newline string) ([]byte, error) {
			return appendJSON(text, value[i], newline)
		})
	}
	octets, err := json.Marshal(value)
	return append(text, octets...), err
}

// appendAll writes what stands between two brackets, each on a line of its own.
func appendAll(text []byte, open, end byte, n int, newline string, one func([]byte, int, string) ([]byte, error)) (_ []byte, err error) {
	text = append(text, open)
	for i := range n {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, newline+"  "...)
		if text, err = one(text, i, newline+"  "); err != nil {
			return nil, err
		}
	}
	if n > 0 {
		text = append(text, newline...)
	}
	return append(text, end), nil
}

// document makes the members of a message for a person or a script, in the order of the contract and with its field
// names: addresses and segments as text, transactions as hexadecimal digits, protocols and enumerations by name, numbers
// as numbers. Messages and optional fields that are absent are left out.
func document(m proto.Message) object { return messageObject(m.ProtoReflect()) }

func messageObject(m protoreflect.Message) object {
	fields := m.Descriptor().Fields()
	o := make(object, 0, fields.Len())
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue
		}
		o = append(o, member{string(f.Name()), fieldValue(f, m.Get(f))})
	}
	return o
}

func fieldValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case f.IsList():
		list := make([]any, v.List().Len())
		for i := range list {
			list[i] = oneValue(f, v.List().Get(i))
		}
		return list
	case f.IsMap():
		entries := object{}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			entries = append(entries, member{k.String(), oneValue(f.MapValue(), v)})
			return true
		})
		slices.SortFunc(entries, func(a, b member) int { return strings.Compare(a.name, b.name) })
		return entries
	}
	return oneValue(f, v)
}

func oneValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return messageObject(v.Message())
	case protoreflect.EnumKind:
		return enumText(f.Enum(), v.Enum())
	case protoreflect.BytesKind:
		return octetsText(f.Name(), v.Bytes())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if x := v.Float(); math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Sprint(x)
		}
	}
	if f.Name() == "protocol" && f.Kind() == protoreflect.Uint32Kind {
		return protocolText(uint32(v.Uint()))
	}
	return v.Interface()
}

// protocolText is "tcp" or "udp", the number of any other protocol, or empty where none is set.
func protocolText(protocol uint32) string {
	switch {
	case protocol == 0:
		return ""
	case protocol > math.MaxUint8:
		return fmt.Sprint(protocol)
	}
	return cats.Protocol(protocol).String()
}

// octetsText writes octets: addresses, prefixes and segments as addresses, anything else in hexadecimal digits.
func octetsText(field protoreflect.Name, octets []byte) string {
	switch field {
	case "transaction", "request": // these may have the length of an address
	default:
		if a, ok := netip.AddrFromSlice(octets); ok {
			return a.String()
		}
	}
	return hex.EncodeToString(octets)
}
