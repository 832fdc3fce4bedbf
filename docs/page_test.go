package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// section gives what stands below the heading that ends with title, up to the next heading.
func section(t *testing.T, title string) string {
	t.Helper()
	rest := read(t, "operations.md")
	heading := regexp.MustCompile(`(?m)^#.*` + regexp.QuoteMeta(title) + `\n`).FindStringIndex(rest)
	if heading == nil {
		t.Fatalf("operations.md has no heading that ends with %q", title)
	}
	rest = rest[heading[1]:]
	if end := regexp.MustCompile(`(?m)^##+ `).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// rows gives the cells of the table rows that begin with something in backticks, which is the first cell.
func rows(text string) [][]string {
	var all [][]string
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "| `") {
			cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			cells[0] = strings.Trim(cells[0], "`")
			all = append(all, cells)
		}
	}
	return all
}

// code gives all Go source below the directories but tests.
func code(t *testing.T, directories ...string) string {
	t.Helper()
	var all strings.Builder
	for _, directory := range directories {
		err := filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				all.WriteString(read(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
