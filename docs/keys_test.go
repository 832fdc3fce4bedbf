package docs_test

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/margay-net/margay/internal/config"
)

// TestKeys compares keys, and which of them are required, with what the loader takes.
func TestKeys(t *testing.T) {
	common := rows(section(t, "Keys that every daemon has"))
	for _, f := range files {
		t.Run(f.name, func(t *testing.T) {
			table := rows(section(t, ": "+f.name))
			if f.run != nil {
				table = append(table, common...)
			}
			told := map[string][]string{}
			for _, cells := range table {
				told[cells[0]] = cells
			}
			known, example := probe(t, f)
			for key, k := range known {
				cells, ok := told[key]
				switch {
				case !ok && !k.group:
					t.Errorf("the table lacks %s", key)
				case ok && (cells[2] == "required") != k.required:
					t.Errorf("%s: the default is %q; required: %t", key, cells[2], k.required)
				}
				if !slices.Contains(example, key) {
					t.Errorf("the example lacks %s", key)
				}
			}
			for key := range told {
				if _, ok := known[key]; !ok {
					t.Errorf("there is no key %s", key)
				}
			}
		})
	}
}

// key is what is known of a key.
type key struct {
	required bool
	group    bool // of keys; those in it have rows of their own
}

const unknown = "no-such-key" // that no file has

var (
	unknownKey = regexp.MustCompile(`^unknown key "` + unknown + `": known here: (.*)$`)
	missingKey = regexp.MustCompile(`: key "([^"]+)" is missing$`)
)

// probe asks the loader which keys a file may and must have: in place of each group of keys in the example in turn, it is
// given a key that cannot be, whose refusal names those that can. Keys in lists have the form services[].cs_id.
func probe(t *testing.T, f file) (known map[string]key, example []string) {
	t.Helper()
	directory := install(t)
	content := read(t, filepath.Join(directory, f.name))
	var tree yaml.MapSlice
	if err := yaml.UnmarshalWithOptions([]byte(content), &tree, yaml.UseOrderedMap()); err != nil {
		t.Fatal(err)
	}
	known = map[string]key{}
	groups(tree, "", func(path string, group yaml.MapSlice) {
		for _, item := range group {
			_, isGroup := item.Value.(yaml.MapSlice)
			k := known[join(path, item.Key.(string))]
			k.group = isGroup
			known[join(path, item.Key.(string))] = k
			example = append(example, join(path, item.Key.(string)))
		}
		emptied := replace(tree, "", path, yaml.MapSlice{{Key: unknown, Value: 0}})
		changed, err := yaml.Marshal(emptied)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(directory, f.name), string(changed))
		var refusal *config.Error
		if err := f.load(directory); !errors.As(err, &refusal) {
			t.Fatalf("with %s in %q: %v", unknown, path, err)
		}
		asked := false
		for _, fault := range refusal.Faults {
			if match := unknownKey.FindStringSubmatch(fault.Text); match != nil {
				asked = true
				for _, name := range strings.Split(match[1], ", ") {
					if k, has := known[join(path, name)]; !has {
						known[join(path, name)] = k
					}
				}
			}
			if match := missingKey.FindStringSubmatch(fault.Text); match != nil {
				k := known[join(path, match[1])]
				k.required = true
				known[join(path, match[1])] = k
			}
		}
		if !asked {
			t.Fatalf("the loader takes %s in %q: %v", unknown, path, refusal)
		}
	})
	return known, example
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// groups calls visit for each group of keys, and for the longest of those of a list.
func groups(tree yaml.MapSlice, path string, visit func(string, yaml.MapSlice)) {
	visit(path, tree)
	for _, item := range tree {
		inner := join(path, item.Key.(string))
		switch value := item.Value.(type) {
		case yaml.MapSlice:
			groups(value, inner, visit)
		case []any:
			for _, element := range value {
				if group, ok := element.(yaml.MapSlice); ok {
					groups(group, inner+"[]", visit)
				}
			}
		}
	}
}

// replace gives the tree with other in place of every group at a path.
func replace(tree yaml.MapSlice, path, at string, other yaml.MapSlice) yaml.MapSlice {
	if path == at {
		return other
	}
	var out yaml.MapSlice
	for _, item := range tree {
		inner := join(path, item.Key.(string))
		switch value := item.Value.(type) {
		case yaml.MapSlice:
			item.Value = replace(value, inner, at, other)
		case []any:
			var list []any
			for _, element := range value {
				if group, ok := element.(yaml.MapSlice); ok {
					element = replace(group, inner+"[]", at, other)
				}
				list = append(list, element)
			}
			item.Value = list
		}
		out = append(out, item)
	}
	return out
}

var (
	fixedKeys = regexp.MustCompile(`config\.Fixed\(current, next, ([^)]*)\)`)
	quoted    = regexp.MustCompile(`"([a-z_]+)"`)
)

// TestReload compares what the page says of reloads with the keys that the daemons refuse to change.
func TestReload(t *testing.T) {
	for _, f := range files {
		if f.source == "" {
			continue
		}
		var fixed []string
		for _, call := range fixedKeys.FindAllStringSubmatch(code(t, "../internal/app/"+f.source), -1) {
			for _, name := range quoted.FindAllStringSubmatch(call[1], -1) {
				fixed = append(fixed, name[1])
			}
		}
		if len(fixed) == 0 {
			t.Errorf("%s: no call of config.Fixed in internal/app/%s", f.name, f.source)
		}
		for _, cells := range rows(section(t, ": "+f.name)) {
			top, _, _ := strings.Cut(strings.ReplaceAll(cells[0], "[]", ""), ".")
			want := "yes"
			if slices.Contains(fixed, top) {
				want = "no"
			}
			if len(cells) != 4 || cells[3] != want {
				t.Errorf("%s: %s: the row is %q, reload is %s", f.name, cells[0], cells, want)
			}
		}
	}
}
