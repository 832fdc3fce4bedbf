package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var (
	oneMachine   = Machine{Kernel: "6.18.1", CPU: "one", Cores: 2, Go: "go1.26"}
	otherMachine = Machine{Kernel: "6.18.2", CPU: "one", Cores: 2, Go: "go1.26"}
)

func names(f *File) []string {
	var all []string
	for _, r := range f.Results {
		all = append(all, r.Name)
	}
	return all
}

// saved writes a file with one result of each of two areas.
func saved(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sub", "results.json")
	f := &File{Machine: oneMachine}
	f.merge("second", []Result{{Name: "second.a", Value: 1.23456, Unit: "us", Runs: 3, Min: 1, Max: 2}})
	f.merge("first", []Result{{Name: "first.old", Value: 2}, {Name: "first.kept", Value: 3}})
	if err := f.save(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMergeReplacesOneAreaAndKeepsTheOthers(t *testing.T) {
	f, err := load(saved(t))
	if err != nil {
		t.Fatal(err)
	}
	if lost := f.moveTo(oneMachine); lost != 0 {
		t.Errorf("lost %d results on the same machine", lost)
	}
	f.merge("first", []Result{{Name: "first.kept", Value: 4}, {Name: "first.new", Value: 5}})
	if got, want := names(f), []string{"first.kept", "first.new", "second.a"}; !reflect.DeepEqual(got, want) {
		t.Errorf("results %v, want %v", got, want)
	}
	if f.Results[0].Value != 4 {
		t.Errorf("first.kept is %v, want the new value 4", f.Results[0].Value)
	}
	if want := (Result{Name: "second.a", Value: 1.235, Unit: "us", Runs: 3, Min: 1, Max: 2}); f.Results[2] != want {
		t.Errorf("the other area's result is %+v, want %+v", f.Results[2], want)
	}
}

func TestResultsOfAnotherMachineAreLeftOut(t *testing.T) {
	f, err := load(saved(t))
	if err != nil {
		t.Fatal(err)
	}
	if lost := f.moveTo(otherMachine); lost != 3 || len(f.Results) != 0 || f.Machine != otherMachine {
		t.Errorf("lost %d, left %v of %s", lost, names(f), f.Machine)
	}
}

func TestLoad(t *testing.T) {
	t.Run("no file is an empty one", func(t *testing.T) {
		f, err := load(filepath.Join(t.TempDir(), "none"))
		if err != nil || len(f.Results) != 0 {
			t.Errorf("got %v, %v", f, err)
		}
	})
	t.Run("another file is refused and stays", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "notes.txt")
		if err := os.WriteFile(path, []byte("notes"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v does not name %s", err, path)
		}
	})
}

func TestPrintShowsRatios(t *testing.T) {
	f := &File{Machine: oneMachine, Results: []Result{
		{Name: "a.x", Value: 10, Unit: "ns", Min: 9, Max: 11, Runs: 3, Ratio: 2.5, RatioTo: "a.y"}, {Name: "a.y", Value: 4, Unit: "ns"},
	}}
	var out bytes.Buffer
	if err := f.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Linux 6.18.1, 2 × one, go1.26", "a.x   10     ns    9    11   3     2.5    a.y", "a.y   4"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}

func TestChoose(t *testing.T) {
	all, err := choose("")
	if err != nil || len(all) != len(areas) {
		t.Errorf("no name gives %d areas, %v", len(all), err)
	}
	one, err := choose("firstpacket, datapath")
	if err != nil || len(one) != 2 || one[0].name != "firstpacket" {
		t.Errorf("got %d areas, %v", len(one), err)
	}
	if _, err := choose("datapath,speed"); err == nil || !strings.Contains(err.Error(), `"speed"`) {
		t.Errorf("an unknown area gives error %v", err)
	}
}
