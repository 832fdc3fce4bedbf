package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Result is one figure.
type Result struct {
	Name    string  `json:"name"`  // "area.result"
	Value   float64 `json:"value"` // median of the runs, or what the name says of all their samples
	Unit    string  `json:"unit"`
	RatioTo string  `json:"ratio_to,omitempty"` // the result of the same run that Ratio is to; empty: none
	Ratio   float64 `json:"ratio,omitempty"`
	Runs    int     `json:"runs"`
	Min     float64 `json:"min"` // of the runs, in Unit
	Max     float64 `json:"max"`
}

// area is the area that a result belongs to.
func (r *Result) area() string {
	name, _, _ := strings.Cut(r.Name, ".")
	return name
}

// File is the file of results. All of them are of one machine.
type File struct {
	Machine Machine  `json:"machine"`
	Results []Result `json:"results"`
}

// load reads a file of results; one that does not exist is empty.
func load(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return &File{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("earlier results: %w", err)
	}
	var f File
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("earlier results: %s is no file of results; remove it or name another with -out: %w", path, err)
	}
	return &f, nil
}

// moveTo makes the file one of machine m, and gives how many results of another machine it loses by that.
func (f *File) moveTo(m Machine) int {
	lost := 0
	if f.Machine != m {
		lost, f.Results = len(f.Results), nil
	}
	f.Machine = m
	return lost
}

// merge replaces the results of one area and keeps all others.
func (f *File) merge(area string, results []Result) {
	f.Results = slices.DeleteFunc(f.Results, func(r Result) bool { return r.area() == area })
	for _, r := range results {
		r.Value, r.Ratio, r.Min, r.Max = round(r.Value), round(r.Ratio), round(r.Min), round(r.Max)
		f.Results = append(f.Results, r)
	}
	slices.SortStableFunc(f.Results, func(a, b Result) int { return strings.Compare(a.area(), b.area()) })
}

// round keeps four digits: no measurement here has more.
func round(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil { // never: it reads what was just written
		panic(err)
	}
	return r
}

// save replaces the file at once, so that it is never half written.
func (f *File) save(path string) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	next := path + ".new"
	if err := os.WriteFile(next, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// print writes the results as a table.
func (f *File) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n\n", f.Machine)
	fmt.Fprintln(w, "NAME\tVALUE\tUNIT\tMIN\tMAX\tRUNS\tRATIO\tTO")
	for _, r := range f.Results {
		ratio := "-"
		if r.RatioTo != "" {
			ratio = fmt.Sprintf("%.4g", r.Ratio)
		}
		fmt.Fprintf(w, "%s\t%.4g\t%s\t%.4g\t%.4g\t%d\t%s\t%s\n", r.Name, r.Value, r.Unit, r.Min, r.Max, r.Runs, ratio, r.RatioTo)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("table of results: %w", err)
	}
	return nil
}
