package config

import (
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// place is a position in the file.
type place struct{ line, column int }

// decoder walks a syntax tree beside a value and gathers every fault, which the library's own decoder, that stops at
// the first, does not.
type decoder struct {
	directory string
	faults    []Fault
	places    map[string]place // of each path that the file has
}

type defaulter interface{ Defaults() }
type validator interface{ Validate() []Problem }

// parse gives the one document's tree.
func (d *decoder) parse(data []byte) (ast.Node, bool) {
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			d.fault(placeOf(syntax.GetToken()), "not YAML: %s", syntax.GetMessage())
		} else {
			d.fault(place{1, 1}, "not YAML: %v", err)
		}
		return nil, false
	}
	var body ast.Node
	for _, document := range file.Docs {
		if document.Body == nil {
			continue
		}
		if body != nil {
			d.fault(start(document.Body), "a second document: need one document a file")
			return nil, false
		}
		body = document.Body
	}
	if body == nil {
		d.fault(place{1, 1}, "the file is empty")
		return nil, false
	}
	return body, true
}

func (d *decoder) root(n ast.Node, value any) {
	v := reflect.ValueOf(value).Elem()
	d.places[""] = start(n)
	d.value(n, v, "")
}

func (d *decoder) fault(at place, format string, args ...any) {
	d.faults = append(d.faults, Fault{Line: at.line, Column: at.column, Text: fmt.Sprintf(format, args...)})
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{1, 1}
	}
	return place{t.Position.Line, t.Position.Column}
}

// value decodes n into v and tells whether it found no fault on the way; what Validate finds does not count.
func (d *decoder) value(n ast.Node, v reflect.Value, path string) bool {
	at := d.places[path]
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		d.fault(at, "%s: anchors, aliases, tags and merge keys are not supported: write the value out", label(path))
		return false
	case *ast.NullNode, nil:
		d.fault(at, "%s has no value: give one or remove the key", label(path))
		return false
	}
	if parse := textParser(v); parse != nil {
		return d.text(n, at, path, func(s string) error { return parse(s, d.directory) })
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(n, v.Elem(), path)
	case reflect.Struct:
		return d.structure(n, v, path)
	case reflect.Slice:
		return d.sequence(n, v, path)
	case reflect.Map:
		return d.dictionary(n, v, path)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.fault(at, "%s: need true or false, have %s", label(path), kind(n))
			return false
		}
		v.SetBool(b.Value)
		return true
	case reflect.String:
		return d.text(n, at, path, func(s string) error { v.SetString(s); return nil })
	}
	return d.number(n, v, at, path)
}

// text hands the scalar's text, as written, to set: a number or a Boolean may stand for text without quotes.
func (d *decoder) text(n ast.Node, at place, path string, set func(string) error) bool {
	s, ok := scalar(n)
	if !ok {
		d.fault(at, "%s: need one value, have %s", label(path), kind(n))
		return false
	}
	if err := set(s); err != nil {
		d.fault(at, "%s: %v", label(path), err)
		return false
	}
	return true
}

func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func (d *decoder) number(n ast.Node, v reflect.Value, at place, path string) bool {
	var err error
	switch _, isInteger := n.(*ast.IntegerNode); {
	case v.CanInt() && isInteger:
		err = setInteger(v, n.GetToken().Value)
	case v.CanUint() && isInteger:
		err = setUnsigned(v, n.GetToken().Value)
	case v.CanInt(), v.CanUint():
		err = fmt.Errorf("need a whole number, have %s", kind(n))
	case v.CanFloat():
		err = setFloat(v, n)
	default:
		panic(fmt.Sprintf("config: a field of type %s at %q cannot be configured", v.Type(), path))
	}
	if err != nil {
		d.fault(at, "%s: %v", label(path), err)
	}
	return err == nil
}

func setInteger(v reflect.Value, text string) error {
	bits := v.Type().Bits()
	i, err := strconv.ParseInt(text, 0, bits)
	if err != nil {
		return fmt.Errorf("need a whole number from %d to %d, have %s", int64(-1)<<(bits-1), int64(1)<<(bits-1)-1, excerpt(text))
	}
	v.SetInt(i)
	return nil
}

func setUnsigned(v reflect.Value, text string) error {
	bits := v.Type().Bits()
	u, err := strconv.ParseUint(text, 0, bits)
	if err != nil {
		return fmt.Errorf("need a whole number from 0 to %d, have %s", ^uint64(0)>>(64-bits), excerpt(text))
	}
	v.SetUint(u)
	return nil
}

func setFloat(v reflect.Value, n ast.Node) error {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		f, err := strconv.ParseFloat(n.GetToken().Value, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("need a decimal number, have %s", excerpt(n.GetToken().Value))
		}
		v.SetFloat(f)
		return nil
	}
	return fmt.Errorf("need a decimal number, have %s", kind(n))
}

func (d *decoder) sequence(n ast.Node, v reflect.Value, path string) bool {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(d.places[path], "%s: need a list, have %s", label(path), kind(n))
		return false
	}
	clean := true
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for i, element := range list.Values {
		inner := fmt.Sprintf("%s[%d]", path, i)
		d.places[inner] = start(element)
		clean = d.value(element, v.Index(i), inner) && clean
	}
	return clean
}

// dictionary decodes a mapping whose keys the file chooses.
func (d *decoder) dictionary(n ast.Node, v reflect.Value, path string) bool {
	entries, clean := d.entries(n, path)
	v.Set(reflect.MakeMapWithSize(v.Type(), len(entries)))
	for _, e := range entries {
		element := reflect.New(v.Type().Elem()).Elem()
		inner := join(path, e.key)
		if d.value(e.value, element, inner) {
			v.SetMapIndex(reflect.ValueOf(e.key).Convert(v.Type().Key()), element)
		} else {
			clean = false
		}
	}
	return clean
}

func (d *decoder) structure(n ast.Node, v reflect.Value, path string) bool {
	setDefaults(v)
	entries, clean := d.entries(n, path)
	if entries == nil {
		return false
	}
	known := fieldsOf(v)
	written := map[string]bool{}
	for _, e := range entries {
		f, ok := known[e.key]
		if !ok {
			d.fault(e.at, "unknown key %q: %s", excerpt(e.key), knownKeys(known))
			clean = false
			continue
		}
		written[e.key] = true
		clean = d.value(e.value, f.value, join(path, e.key)) && clean
	}
	for _, f := range sorted(known) {
		if !f.optional && !written[f.key] {
			d.fault(d.places[path], "%s: key %q is missing", label(path), f.key)
			clean = false
		}
	}
	if clean {
		d.validate(v, path)
	}
	return clean
}

type entry struct {
	key   string
	at    place
	value ast.Node
}

// entries gives the keys of a mapping in order, notes their places, and reports those that are written twice.
func (d *decoder) entries(n ast.Node, path string) ([]entry, bool) {
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		d.fault(d.places[path], "%s: need keys with values, have %s", label(path), kind(n))
		return nil, false
	}
	clean := true
	first := map[string]int{}
	entries := make([]entry, 0, len(pairs))
	for _, pair := range pairs {
		at := placeOf(pair.Key.GetToken())
		key, ok := scalar(pair.Key)
		if !ok {
			d.fault(at, "%s: a key must be plain text", label(path))
			clean = false
			continue
		}
		if line, twice := first[key]; twice {
			d.fault(at, "key %q is written twice, first on line %d", excerpt(key), line)
			clean = false
			continue
		}
		first[key] = at.line
		d.places[join(path, key)] = at
		entries = append(entries, entry{key, at, pair.Value})
	}
	return entries, clean
}

func (d *decoder) validate(v reflect.Value, path string) {
	check, ok := v.Addr().Interface().(validator)
	if !ok {
		return
	}
	for _, problem := range check.Validate() {
		full := join(path, problem.Path)
		d.fault(d.nearest(full), "%s: %s", label(full), problem.Text)
	}
}

// nearest gives the place of path or, where the file is silent on it, of what would hold it.
func (d *decoder) nearest(path string) place {
	for {
		if at, ok := d.places[path]; ok {
			return at
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// start gives where a node begins: at its first key if it is a block of keys, whose token is the colon after it.
func start(n ast.Node) place {
	if mapping, ok := n.(*ast.MappingNode); ok && !mapping.IsFlowStyle && len(mapping.Values) > 0 {
		return placeOf(mapping.Values[0].Key.GetToken())
	}
	if pair, ok := n.(*ast.MappingValueNode); ok {
		return placeOf(pair.Key.GetToken())
	}
	return placeOf(n.GetToken())
}

func join(path, key string) string {
	if path == "" || key == "" || key[0] == '[' {
		return path + key
	}
	return path + "." + key
}

// label names the path in a message.
func label(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys with values"
	case *ast.SequenceNode:
		return "a list"
	}
	if s, ok := scalar(n); ok {
		return strconv.Quote(excerpt(s))
	}
	return strings.ToLower(n.Type().String())
}

// mostShown is how many characters of a value a message shows.
const mostShown = 40

// excerpt is the beginning of a value, which may be a whole file that is something else.
func excerpt(s string) string {
	if characters := []rune(s); len(characters) > mostShown {
		return string(characters[:mostShown]) + "…"
	}
	return s
}

func knownKeys(known map[string]field) string {
	keys := make([]string, 0, len(known))
	for key := range known {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return "known here: " + strings.Join(keys, ", ")
}
