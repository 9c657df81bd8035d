package main

import (
	"fmt"
	"strings"
)

// migrationLocks are the locks of migrations that are compared: as the test names them, and as the document does.
var migrationLocks = []struct{ name, says string }{
	{"goose", "this, goose's `SessionLocker`"},
	{"golang-migrate", "this, golang-migrate"},
	{"locker", "this, goose's `Locker`"},
	{"goose-session", "goose, its session locker"},
	{"goose-table", "goose, its table locker, lease 2 s"},
	{"golang-migrate-own", "golang-migrate, its own"},
}

// lockCosts are the columns of that table.
var lockCosts = []struct{ name, says string }{
	{"frozen", "frozen: the next goes on after"}, {"index", "deadlock beside `CREATE INDEX CONCURRENTLY`"},
	{"killed", "killed: two at work"}, {"wal", "WAL while it waits"}}

func lockFigure(lock, cost string) string { return strings.ReplaceAll(lock, "-", "_") + "_" + cost }

// lockFigures are the patterns of what the test of the locks says.
func lockFigures() (patterns []string) {
	for _, l := range migrationLocks {
		pattern := `compared ` + l.name + `:`
		for i, c := range lockCosts {
			if i > 0 {
				pattern += ` \|`
			}
			pattern += ` (?P<` + lockFigure(l.name, c.name) + `>[^|\n]+?)`
		}
		patterns = append(patterns, `(?m)`+pattern+`$`)
	}
	return patterns
}

// lockTable is the table of docs/migrations.md.
func lockTable(records map[string]record) (string, error) {
	r := records["migrations"]
	var b strings.Builder
	b.WriteString("| lock")
	for _, c := range lockCosts {
		b.WriteString(" | " + c.says)
	}
	b.WriteString(" |\n|---|---|---|---|---|\n")
	for _, l := range migrationLocks {
		b.WriteString("| " + l.says)
		for _, c := range lockCosts {
			b.WriteString(" | " + r.Figures[lockFigure(l.name, c.name)])
		}
		b.WriteString(" |\n")
	}
	fmt.Fprintf(&b, "\nMeasured by `make proof STEPS=migrations` at commit %s, with leases of 2 s.\n", r.Commit)
	return b.String(), nil
}

// recipes is the table of docs/recipes.md.
func recipes(records map[string]record) (string, error) {
	r := records["ticks"]
	f := func(name string) string { return thousands(r.Figures[name]) }
	var b strings.Builder
	b.WriteString("| recipe | what a test found |\n|---|---|\n")
	fmt.Fprintf(&b, "| ticks | %s ticks, each done once, over %s kills and %s hand-overs |\n", f("ticks"), f("kills"), f("handovers"))
	fmt.Fprintf(&b, "| a warm deputy | first useful work %s after `kill -9`; %s without it, with a cache that takes %s to load |\n", f("warm"), f("cold"), strings.Replace(f("cache"), "s", " s", 1))
	fmt.Fprintf(&b, "\nMeasured by `make proof STEPS=ticks` at commit %s.\n", r.Commit)
	return b.String(), nil
}
