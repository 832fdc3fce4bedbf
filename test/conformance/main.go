// Command conformance prints, for every requirement of docs/requirements.md, whether a test that names it passed in the
// record that `make test` made of this commit.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	requirements := flag.String("requirements", "docs/requirements.md", "table of requirements")
	records := flag.String("records", "build/tests", "folder of `go test -json` records and the commit they are of")
	summary := flag.Bool("summary", false, "print the last line only")
	flag.Parse()
	if err := run(*requirements, *records, *summary, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(requirements, records string, summary bool, out, notes io.Writer) error {
	table, err := os.ReadFile(requirements)
	if err != nil {
		return err
	}
	ids, err := requirementIDs(string(table))
	if err != nil {
		return fmt.Errorf("%s: %w", requirements, err)
	}
	proofs, err := load(records, notes)
	if err != nil {
		return err
	}
	if err := checkNamed(ids, proofs); err != nil {
		return err
	}
	proven := 0
	for _, id := range ids {
		tests := proofs[id]
		if len(tests) > 0 {
			proven++
		}
		if summary {
			continue
		}
		if len(tests) == 0 {
			fmt.Fprintf(out, "%s open\n", id)
			continue
		}
		fmt.Fprintf(out, "%s proven %s\n", id, strings.Join(tests, " "))
	}
	fmt.Fprintf(out, "%d proven, %d open\n", proven, len(ids)-proven)
	return nil
}

var rowID = regexp.MustCompile(`(?m)^\| ((?:CP|SM)-[0-9.]+-[0-9]+) \|`)

func requirementIDs(table string) ([]string, error) {
	var ids []string
	for _, m := range rowID.FindAllStringSubmatch(table, -1) {
		if slices.Contains(ids, m[1]) {
			return nil, fmt.Errorf("requirement %s stands twice", m[1])
		}
		ids = append(ids, m[1])
	}
	if len(ids) == 0 {
		return nil, errors.New("no row starts with a requirement ID")
	}
	return ids, nil
}

// load reads every record in the folder, unless it is of another commit.
func load(folder string, notes io.Writer) (map[string][]string, error) {
	commit, err := os.ReadFile(filepath.Join(folder, "commit"))
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(notes, "conformance: no test record; run make test first")
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	head, err := exec.Command("git", "describe", "--always", "--abbrev=40", "--dirty", "--match=").Output()
	if err != nil {
		return nil, fmt.Errorf("git describe: %w", err)
	}
	if string(commit) != string(head) {
		fmt.Fprintf(notes, "conformance: the test record is of %s, this is %s; run make test\n", bytes.TrimSpace(commit), bytes.TrimSpace(head))
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	results := map[string]map[string]bool{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = collect(f, results)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return proofs(results), nil
}

// namedID finds requirement IDs in test names; go test writes spaces as underscores.
var namedID = regexp.MustCompile(`(?:CP|SM)-[0-9.]+-[0-9]+`)

// collect adds each test that names a requirement, with whether it passed; a failure anywhere counts.
func collect(r io.Reader, results map[string]map[string]bool) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event struct{ Action, Package, Test string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return fmt.Errorf("not a go test -json record: %w", err)
		}
		if event.Test == "" || event.Action != "pass" && event.Action != "fail" {
			continue
		}
		last := event.Test[strings.LastIndexByte(event.Test, '/')+1:]
		for _, id := range namedID.FindAllString(last, -1) {
			if results[id] == nil {
				results[id] = map[string]bool{}
			}
			top, _, _ := strings.Cut(event.Test, "/")
			passed, seen := results[id][top]
			results[id][top] = event.Action == "pass" && (passed || !seen)
		}
	}
	return lines.Err()
}

// proofs keeps the requirements of which every naming test passed.
func proofs(results map[string]map[string]bool) map[string][]string {
	proven := map[string][]string{}
	for id, tests := range results {
		var names []string
		failed := false
		for test, passed := range tests {
			names = append(names, test)
			failed = failed || !passed
		}
		if !failed {
			slices.Sort(names)
			proven[id] = names
		}
	}
	return proven
}

// checkNamed refuses a test that names a requirement which does not exist.
func checkNamed(ids []string, proofs map[string][]string) error {
	var unknown []string
	for id, tests := range proofs {
		if !slices.Contains(ids, id) {
			unknown = append(unknown, fmt.Sprintf("%s in %s", id, strings.Join(tests, ", ")))
		}
	}
	slices.Sort(unknown)
	if len(unknown) > 0 {
		return fmt.Errorf("tests name requirements that are not in the table: %s", strings.Join(unknown, "; "))
	}
	return nil
}
