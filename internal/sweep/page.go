package main

import (
	"fmt"
	"path"
	"strings"
)

// write makes the page.
func write(mutants []mutant, known *verdicts) string {
	var table, rows strings.Builder
	var all, found, untried int
	for _, p := range swept {
		in, of := 0, 0
		for _, m := range mutants {
			if path.Dir(m.file) != p {
				continue
			}
			of++
			switch v := known.get(m); {
			case v.noticed():
				in++
			case v == "":
				untried++
			default:
				fmt.Fprintf(&rows, "| `%s:%d` | `%s` | %s | %s |\n", m.file, m.line, strings.ReplaceAll(m.code, "|", `\|`), m.change, v)
			}
		}
		fmt.Fprintf(&table, "| %s | %d | %d |\n", p, of, in)
		all, found = all+of, found+in
	}
	return fmt.Sprintf(`# The sweep

`+"`make sweep`"+` wrote this page. It breaks the library in every way that a few rules make: each condition always holds,
or never does; each comparison takes equals the other way; each call, defer, go, send, receive and assignment is left
out. For each it runs the tests that reach the place and need no database: those of internal/pace, fault, vitals and
session, elector, electortest and sqlmock_test, each up to its first failure, and 300 seeds of the simulation.
[Mutations](mutations.md) are chosen by hand, and each must be noticed; these are not chosen.

**Of %d mutants %d were noticed (%.1f %% of those that were tried); %d were not tried.**

| package | mutants | noticed |
|---|---|---|
%s
## Not noticed

Of some, only the tests on a real PostgreSQL could tell, which are not run here. Others change nothing that can be seen: a guard
against a race that the next line settles as well, a shortcut, a border that falls between two instants. "Not reached" also
means that the tests came by and it would have made no difference.

| where | code | what it does | |
|---|---|---|---|
%s`, all, found, 100*float64(found)/float64(max(all-untried, 1)), untried, table.String(), rows.String())
}
