package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A result is what noticed a mutation.
type result struct {
	mutation
	tests      []string
	simulation []string
}

func (r result) caught() bool { return len(r.tests)+len(r.simulation) > 0 }

func (r result) String() string {
	if !r.caught() {
		return "NOT NOTICED"
	}
	return fmt.Sprintf("%d tests (%s); simulation %s", len(r.tests), first(r.tests), first(r.simulation))
}

func first(names []string) string {
	if len(names) == 0 {
		return "–"
	}
	return names[0]
}

var (
	failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	seed   = regexp.MustCompile(`(?m)seed (\d+):`)
	panics = regexp.MustCompile(`(?m)^panic: (.*?)( \[|$)`)
)

// failing runs tests and returns the names of those that fail.
func failing(dir string, args ...string) (names []string, err error) {
	out, failure := goTest(dir, args...)
	if failure == nil {
		return nil, nil
	}
	if strings.Contains(out, "[build failed]") {
		return nil, fmt.Errorf("a mutation does not compile:\n%s", out)
	}
	if found := seed.FindStringSubmatch(out); found != nil {
		return []string{"seed " + found[1]}, nil
	}
	for _, found := range failed.FindAllStringSubmatch(out, -1) {
		names = append(names, found[1])
	}
	if strings.Contains(out, "panic: test timed out") {
		names = []string{"hangs"}
	}
	if found := panics.FindStringSubmatch(out); found != nil && len(names) == 0 {
		names = append(names, "panic: "+found[1])
	}
	if len(names) == 0 {
		names = append(names, "fails: "+strings.TrimSpace(out[max(0, len(out)-200):]))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// write makes the table.
func write(results []result) string {
	var b strings.Builder
	caught, simulated := 0, 0
	var rows strings.Builder
	for _, r := range results {
		if r.caught() {
			caught++
		}
		if len(r.simulation) > 0 {
			simulated++
		}
		fmt.Fprintf(&rows, "| %s | `%s` | %s | %s |\n", r.what, r.file, byTests(r.tests), first(r.simulation))
	}
	fmt.Fprintf(&b, `# Mutations

`+"`make mutate`"+` wrote this page. It breaks the library on purpose, in one way after the other
([e2e/mutation/mutations.txt](../e2e/mutation/mutations.txt)). For each it runs the tests of
internal/session, internal/pace, elector, sqlmock_test and electortest, each package up to its first failure,
and %d seeds of the simulation.

**Of %d mutations %d were noticed, %d of them by the simulation.** A dash means that nothing failed: the simulation
looks at what is promised, and not all that is broken breaks a promise that soon.

| what is broken | where | noticed by tests | simulation |
|---|---|---|---|
%s`, *seeds, len(results), caught, simulated, rows.String())
	return b.String()
}

func byTests(names []string) string {
	switch len(names) {
	case 0:
		return "–"
	case 1:
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}
