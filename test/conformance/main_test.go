package main

import (
	"slices"
	"strings"
	"testing"
)

func TestRequirementIDs(t *testing.T) {
	ids, err := requirementIDs("| ID | level |\n|---|---|\n| CP-8.1-3 | S |\n| SM-12-1 | M | and CP-1-1 |\n")
	if err != nil || !slices.Equal(ids, []string{"CP-8.1-3", "SM-12-1"}) {
		t.Fatalf("got %v, %v", ids, err)
	}
	if _, err := requirementIDs("| CP-1-1 | M |\n| CP-1-1 | M |\n"); err == nil || !strings.Contains(err.Error(), "CP-1-1 stands twice") {
		t.Fatalf("a doubled row: %v", err)
	}
	if _, err := requirementIDs("nothing"); err == nil {
		t.Fatal("an empty table was accepted")
	}
}

func TestCollect(t *testing.T) {
	record := `{"Action":"pass","Package":"p","Test":"TestPending/CP-8.1-3_joins"}
{"Action":"pass","Package":"p","Test":"TestOther/CP-8.1-3,_CP-8.1-2:_both"}
{"Action":"fail","Package":"p","Test":"TestOther/CP-10-2"}
{"Action":"pass","Package":"p","Test":"TestMore/CP-10-2"}
{"Action":"skip","Package":"p","Test":"TestSkipped/CP-1-1"}
{"Action":"pass","Package":"p"}
`
	results := map[string]map[string]bool{}
	if err := collect(strings.NewReader(record), results); err != nil {
		t.Fatal(err)
	}
	got := proofs(results)
	if !slices.Equal(got["CP-8.1-3"], []string{"TestOther", "TestPending"}) || got["CP-8.1-2"] == nil {
		t.Errorf("passing tests: %v", got)
	}
	if got["CP-10-2"] != nil {
		t.Error("a requirement with a failing test counts as proven")
	}
	if got["CP-1-1"] != nil {
		t.Error("a skipped test proves something")
	}
	if err := checkNamed([]string{"CP-8.1-3"}, got); err == nil || !strings.Contains(err.Error(), "CP-8.1-2") {
		t.Errorf("an unknown ID: %v", err)
	}
	if err := collect(strings.NewReader("ok"), results); err == nil {
		t.Error("a record that is not JSON was accepted")
	}
}
