package docs_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/margay-net/margay/cats"
)

// names gives what an expression finds in source, with a prefix and a suffix, each once.
func names(source, expression, prefix, suffix string) []string {
	var all []string
	for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(source, -1) {
		if name := prefix + match[1] + suffix; !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// same compares what the page lists with what the code has.
func same(t *testing.T, what string, told, there []string) {
	t.Helper()
	if len(there) == 0 {
		t.Fatalf("no %s was found in the code", what)
	}
	for _, name := range there {
		if !slices.Contains(told, name) {
			t.Errorf("the page lacks the %s %s", what, name)
		}
	}
	for i, name := range told {
		if !slices.Contains(there, name) {
			t.Errorf("there is no %s %s", what, name)
		}
		if slices.Contains(told[:i], name) {
			t.Errorf("the %s %s stands twice", what, name)
		}
	}
}

func first(table [][]string) []string {
	var all []string
	for _, cells := range table {
		all = append(all, cells[0])
	}
	return all
}

func TestMetrics(t *testing.T) {
	there := names(code(t, "../internal/app", "../internal/config", "../internal/observe"), `"(margay_[a-z_]*[a-z])"`, "", "")
	of := code(t, "../internal/app/forwarder")
	there = append(there, names(of, `\tgauge\("([a-z_]+)"`, "margay_forwarder_", "")...)
	there = append(there, names(of, `\ttotal\("([a-z_]+)"`, "margay_forwarder_", "_total")...)
	there = append(there, names(code(t, "../internal/app/cps"), `desc\("([a-z_]+)"`, "margay_cps_", "")...)
	told := first(rows(section(t, "# What to watch")))
	same(t, "metric", told, there)
	for _, mentioned := range regexp.MustCompile(`margay_[a-z_]*[a-z]\b`).FindAllString(read(t, "operations.md"), -1) {
		if !slices.Contains(there, mentioned) {
			t.Errorf("there is no metric %s", mentioned)
		}
	}
}

func TestConditions(t *testing.T) {
	var told, there []string
	for _, match := range regexp.MustCompile("(?m)^\\| (\\w+) \\| `([a-z-]+)` \\|").FindAllStringSubmatch(section(t, "# What to watch"), -1) {
		told = append(told, match[1]+" "+match[2])
	}
	for _, daemon := range []string{"sci", "csma", "cnma", "cps", "forwarder"} {
		there = append(there, names(code(t, "../internal/app/"+daemon), `ealth\.Condition\("([a-z-]+)"\)`, daemon+" ", "")...)
	}
	same(t, "condition", told, there)
}

func TestAuditEvents(t *testing.T) {
	source := code(t, "../internal/app", "../internal/trust", "../internal/forwarder", "../internal/cps", "../internal/observe/audit")
	same(t, "audit event", first(rows(section(t, "# Audit log"))),
		names(source, `(?:Event: |Event = |Record\(|(?:RecordFrom|\.refused)\([^\n]*?, )"([a-z-]+)"`, "", ""))
}

func TestReasons(t *testing.T) {
	var there []string
	for _, reason := range cats.Reasons() {
		there = append(there, reason.String())
	}
	same(t, "reason", first(rows(section(t, "# Reasons"))), there)
}
