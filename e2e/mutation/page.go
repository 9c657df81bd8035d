package main

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
)

// A tally counts and groups the mutants by result.
type tally struct {
	planted, noticed map[string]int // by package
	untried          int
	explained        [][]mutant // by reason
	unexplained      []mutant
}

func count(mutants []mutant, known *results, reasons []reason) tally {
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

const intro = `# Mutations

` + "`make mutate`" + ` wrote this page. It breaks the library on purpose and checks that a test notices. It runs the tests that
need no server, package by package, until one fails: those of internal/backoff, pgerr and session, elector,
sqlmock_test, 300 seeds of the simulation, and electortest.

`

const rulesHeading = "\n## Mutants of rules\n"

const introRules = rulesHeading + `
` + "`make mutate RULES=1`" + ` tries these as well. Each condition always holds, or never does; each comparison treats equals the
other way; each call, defer, go, send, receive and assignment is left out. A mutant that no test notices either needs a
test, or the reason why it is not a bug is below.

`

// writeList begins the page.
func writeList(list []listed) string {
	var out strings.Builder
	out.WriteString(intro)
	fmt.Fprintf(&out, "**Tests notice %[2]d of %[1]d mutants written by hand.**\n\n| what is broken | where | noticed by |\n|---|---|---|\n", len(list), len(list)-missedOf(list))
	for _, m := range list {
		fmt.Fprintf(&out, "| %s | `%s` | %s |\n", m.what, m.file, strings.TrimPrefix(string(m.result), noticed))
	}
	return out.String()
}

// writeRules ends the page.
func writeRules(c tally, reasons []reason) string {
	var out strings.Builder
	out.WriteString(introRules)
	all, seen := sum(c.planted), sum(c.noticed)
	explained := all - seen - c.untried - len(c.unexplained)
	fmt.Fprintf(&out, "**Tests notice %[2]d of %[1]d mutants. %[3]d have a reason why not, %[4]d need a test, and %[5]d were not tried.**\n\n", all, seen, explained, len(c.unexplained), c.untried)
	out.WriteString("| package | mutants | noticed |\n|---|---|---|\n")
	for _, p := range broken {
		fmt.Fprintf(&out, "| %s | %d | %d |\n", p, c.planted[p], c.noticed[p])
	}
	section(&out, "Needs a test", c.unexplained)
	for i, r := range reasons {
		section(&out, r.text, c.explained[i])
	}
	return out.String()
}

func section(out *strings.Builder, title string, mutants []mutant) {
	if len(mutants) == 0 {
		return
	}
	fmt.Fprintf(out, "\n### %s\n\n| package | line | code | |\n|---|---|---|---|\n", title)
	for _, m := range mutants {
		fmt.Fprintf(out, "| %s | %s:%d | `%s` | %s |\n", path.Dir(m.file), path.Base(m.file), m.line, strings.ReplaceAll(m.code, "|", `\|`), m.change)
	}
}

//go:embed reasons.txt
var reasonsText string

// A reason explains why some mutants that the tests do not notice are not bugs.
type reason struct {
	text string
	of   []string // the keys of the mutants
}

// parseReasons parses the reasons: a line that begins with # is a reason, and the lines after
// it are the keys of its mutants.
func parseReasons(text string) (all []reason, err error) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if reasonFor, ok := strings.CutPrefix(line, "# "); ok {
			all = append(all, reason{text: reasonFor})
			continue
		}
		if len(all) == 0 || seen[line] {
			return nil, fmt.Errorf("want one reason for %q", line)
		}
		seen[line] = true
		last := &all[len(all)-1]
		last.of = append(last.of, line)
	}
	return all, nil
}

// needless returns the keys that have a reason without need: their mutants are noticed or do
// not exist.
func needless(reasons []reason, mutants []mutant, known *results) (keys []string) {
	wants := map[string]bool{}
	for _, m := range mutants {
		wants[m.key()] = !known.get(m).noticed()
	}
	for _, r := range reasons {
		for _, key := range r.of {
			if !wants[key] {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
