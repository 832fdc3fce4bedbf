package config

import (
	"reflect"
	"slices"
	"strings"
)

// field is one key of a struct.
type field struct {
	key      string
	order    int
	optional bool
	value    reflect.Value
}

// fieldsOf lists what a struct can be configured with, by key; the keys of an inlined struct are its holder's.
func fieldsOf(v reflect.Value) map[string]field {
	fields := map[string]field{}
	addFields(v, fields)
	return fields
}

func addFields(v reflect.Value, fields map[string]field) {
	for i := range v.NumField() {
		key, rest, tagged := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		options := strings.Split(rest, ",")
		switch {
		case slices.Contains(options, "inline"):
			addFields(v.Field(i), fields)
		case key != "" && key != "-":
			fields[key] = field{key, len(fields), tagged && slices.Contains(options, "omitempty"), v.Field(i)}
		}
	}
}

func sorted(fields map[string]field) []field {
	list := make([]field, 0, len(fields))
	for _, f := range fields {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b field) int { return a.order - b.order })
	return list
}

// setDefaults calls the Defaults method of v's structs, the inlined ones first.
func setDefaults(v reflect.Value) {
	for i := range v.NumField() {
		if strings.HasSuffix(v.Type().Field(i).Tag.Get("yaml"), ",inline") {
			setDefaults(v.Field(i))
		}
	}
	if d, ok := v.Addr().Interface().(defaulter); ok {
		d.Defaults()
	}
}
