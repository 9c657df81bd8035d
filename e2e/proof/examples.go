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

// updatePaces are the times from one restart to the next in docs/operating.md, as Go prints them and as people write them.
var updatePaces = [][2]string{{"1m15s", "75 s"}, {"30s", "30 s"}, {"15s", "15 s"}, {"5s", "5 s"}}

// paceFigures are the patterns of the rows that the rolling updates print.
func paceFigures() (patterns []string) {
	for _, pace := range updatePaces {
		patterns = append(patterns, fmt.Sprintf(`\| %s \| (?P<without_%[1]s>[\d.]+, at most \d+) \| (?P<with_%[1]s>[\d.]+, at most \d+) \|`, pace[0]))
	}
	return patterns
}

// paces is the table of docs/operating.md.
func paces(records map[string]record) (string, error) {
	r := records["rolling"]
	var b strings.Builder
	b.WriteString("| from one restart to the next | without priorities | with priorities |\n|---|---|---|\n")
	for _, pace := range updatePaces {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", pace[1], r.Figures["without_"+pace[0]], r.Figures["with_"+pace[0]])
	}
	fmt.Fprintf(&b, "\nMeasured by `make proof STEPS=rolling` at commit %s, in virtual time, with the default timing.\n", r.Commit)
	return b.String(), nil
}
