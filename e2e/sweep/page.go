package main

import (
	"fmt"
	"path"
	"strings"
)

// A tally sorts the mutants by what became of them.
type tally struct {
	planted, noticed map[string]int // of a package
	untried          int
	explained        [][]mutant // for each reason
	unexplained      []mutant
}

func count(mutants []mutant, known *verdicts, reasons []reason) tally {
	c := tally{planted: map[string]int{}, noticed: map[string]int{}, explained: make([][]mutant, len(reasons))}
	because := map[string]int{}
	for i, r := range reasons {
		for _, key := range r.of {
			because[key] = i
		}
	}
	for _, m := range mutants {
		p := path.Dir(m.file)
		c.planted[p]++
		i, hasReason := because[m.key()]
		switch v := known.get(m); {
		case v.noticed():
			c.noticed[p]++
		case v == "":
			c.untried++
		case hasReason:
			c.explained[i] = append(c.explained[i], m)
		default:
			c.unexplained = append(c.unexplained, m)
		}
	}
	return c
}

func sum(of map[string]int) (n int) {
	for _, count := range of {
		n += count
	}
	return n
}

const intro = `# The sweep

` + "`make sweep`" + ` wrote this page. It breaks the library in every way that a few rules make: each condition always holds,
or never does; each comparison takes equals the other way; each call, defer, go, send, receive and assignment is left
out. For each it runs the tests that reach the place and need no database: those of internal/pace, fault, vitals and
session, elector, electortest and sqlmock_test, each up to its first failure, and 300 seeds of the simulation.
[Mutations](mutations.md) are chosen by hand, and each must be noticed; these are not chosen. One that is not noticed
either wants a test, or there is a reason below why it is no bug.

`

// write makes the page.
func (c tally) write(reasons []reason) string {
	var out strings.Builder
	out.WriteString(intro)
	all, noticed := sum(c.planted), sum(c.noticed)
	explained := all - noticed - c.untried - len(c.unexplained)
	fmt.Fprintf(&out, "**Of %d mutants %d were noticed; for %d there is a reason why not, and %d want a test. %d were not tried.**\n\n", all, noticed, explained, len(c.unexplained), c.untried)
	out.WriteString("| package | mutants | noticed |\n|---|---|---|\n")
	for _, p := range swept {
		fmt.Fprintf(&out, "| %s | %d | %d |\n", p, c.planted[p], c.noticed[p])
	}
	section(&out, "Wants a test", c.unexplained)
	for i, r := range reasons {
		section(&out, r.text, c.explained[i])
	}
	return out.String()
}

func section(out *strings.Builder, title string, mutants []mutant) {
	if len(mutants) == 0 {
		return
	}
	fmt.Fprintf(out, "\n## %s\n\n| package | line | code | |\n|---|---|---|---|\n", title)
	for _, m := range mutants {
		fmt.Fprintf(out, "| %s | %s:%d | `%s` | %s |\n", path.Dir(m.file), path.Base(m.file), m.line, strings.ReplaceAll(m.code, "|", `\|`), m.change)
	}
}
