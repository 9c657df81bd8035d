package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/figures"
)

// pages are the documents with a table of figures, and what makes each one.
var pages = map[string]func(map[string]record) (string, error){
	"docs/evidence.md":   evidence,
	"docs/migrations.md": lockTable,
	"docs/operating.md":  paces,
	"docs/recipes.md":    recipes,
	"docs/servers.md":    failovers,
	"docs/shards.md":     groups,
	"README.md":          alternatives,
}

// The tables stand between these lines.
const begin, end = "<!-- make proof writes this table -->\n", "<!-- end -->"

func writePages() error {
	records, err := readRecords()
	if err != nil {
		return err
	}
	for page, table := range pages {
		have, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		made, err := table(records)
		want, bad := withTable(string(have), made)
		if err = errors.Join(err, bad); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// withTable returns the page with the table that it must have.
func withTable(page, table string) (string, error) {
	before, rest, found := strings.Cut(page, begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return "", fmt.Errorf("it has no lines %q and %q", begin, end)
	}
	return before + begin + table + end + after, nil
}

// evidence is the table of the page of evidence.
func evidence(records map[string]record) (string, error) {
	var b strings.Builder
	b.WriteString("| what | how much | command | commit |\n|---|---|---|---|\n")
	for _, s := range steps {
		r := records[s.name]
		what, says := s.what, s.says
		for name, value := range r.Figures {
			what = strings.ReplaceAll(what, "{"+name+"}", thousands(value))
			says = strings.ReplaceAll(says, "{"+name+"}", thousands(value))
		}
		switch {
		case says == "":
			continue
		case r.Commit == "":
			says = "nothing yet"
		case strings.Contains(what+says, "{"):
			return "", fmt.Errorf("%s: no figure for %s", s.name, says)
		}
		commit := r.Commit
		if r.Failed != "" { // one word: the page has a limit
			commit += "<br>**failed:**&nbsp;" + r.Failed
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", what, says, strings.ReplaceAll(s.repeats(r), "|", `\|`), commit)
	}
	fmt.Fprintf(&b, "| **[Terms lost by mistake](../bench/RESULTS.md#terms-lost-by-mistake)** "+
		"| %s | `go -C bench run . -keep -parts mistakes` | %s |\n", records["bench"].Figures[mistakes], records["bench"].Figures[mistakesAt])
	minutes := 0
	for _, s := range steps {
		minutes += records[s.name].Minutes
	}
	fmt.Fprintf(&b, "\n`make proof`, without the last row, took %d minutes on two cores.\n", minutes)
	return b.String(), nil
}

// The figures of the mistakes of this library's default, which are counted in a run of their own, and their commit.
const mistakes, mistakesAt = "terms lost by mistake", "terms lost by mistake, commit"

// mistakeCells reads these.
func mistakeCells(page string, cells map[string]string) error {
	rows := rowsUnder(page, "## Terms lost by mistake")
	heads, row := rows["system"], rows[compared[0].system]
	if len(heads) < 2 || len(row) != len(heads) {
		return errors.New("bench/RESULTS.md has no terms lost by mistake")
	}
	last := len(row) - 1
	cells[mistakesAt] = strings.TrimSpace(row[last])
	said := row[:last]
	if same := slices.Compact(slices.Clone(said)); len(same) == 1 {
		cells[mistakes] = fmt.Sprintf("%s, under each of %d strains", same[0], last)
		return nil
	}
	for i, strain := range heads[:last] {
		said[i] += " (" + strain + ")"
	}
	cells[mistakes] = strings.Join(said, "; ")
	return nil
}

// repeats is the command with which a reader gets such figures as a record has. The step may be
// longer or shorter by now.
func (s step) repeats(r record) string {
	switch {
	case r.Command != "" && r.Command != s.command:
		return r.Command
	case s.repeat != "":
		return s.repeat
	}
	return s.command
}

var long = regexp.MustCompile(`^\d{4,}$`)

// thousands groups the digits of an integer.
func thousands(value string) string {
	if !long.MatchString(value) {
		return value
	}
	for i := len(value) - 3; i > 0; i -= 3 {
		value = value[:i] + "," + value[i:]
	}
	return value
}

// compared are the rows of the README's table, and the system of bench/RESULTS.md for each.
var compared = []struct{ says, system string }{
	{"pgelector, default", "pgelector default, pgx"},
	{"pgelector, `WithTakeover(Wait)`", "pgelector wait, pgx"},
	{"pgelector, `Wait`, lease 1 s", "pgelector fastest, pgx"},
	{"bare `pg_advisory_lock`", "raw lock, pgx"},
	{"lease table: goose, lease 1 s", "goose table, fastest"},
	{"lease table: vault, lease 15 s", "vault HA lock"},
	{"river, lease 15 s", "river"},
	{"etcd, default, TTL 60 s", "etcd, default"},
	{"etcd, fastest, TTL 2 s", "etcd, fastest"},
	{"Consul, default, TTL 15 s", "consul, default"},
	{"Consul, fastest, TTL 10 s", "consul, fastest"},
	{"client-go, default, lease 15 s", "client-go, default"},
	{"client-go, fastest, lease 1 s", "client-go, fastest"},
}

// The columns of the README's table with times, and the faults of the bench.
var gaps = []struct{ says, fault string }{
	{"clean resignation", "clean resignation"}, {"`kill -9`", "kill -9"}, {"process frozen", "SIGSTOP"}, {"link cut", "black-holed link"}}

// wal is the last column, and where bench/RESULTS.md has it.
const wal, walCell = "WAL at rest", 4

// The columns of the table of groups, and those of bench/RESULTS.md.
var moves = []struct {
	says string
	cell int
}{{"members", 0}, {"even after a join", 2}, {"a leave", 3}, {"`kill -9`", 4}, {"statements/s per member", 5}, {"moves per restart", 9}}

var crowds = []string{"1000", "10000"}

// benchCells reads the figures of bench/RESULTS.md that the documents have.
func benchCells(page string, cells map[string]string) error {
	samples, err := figures.Read("bench/results.json")
	if err != nil {
		return err
	}
	rest, groups := rowsUnder(page, "## Cost at rest"), rowsUnder(page, "## Groups of shards")
	for _, c := range compared {
		for _, gap := range gaps {
			median, err := samples.Median(c.system, gap.fault)
			if err != nil {
				return err
			}
			cells[c.says+", "+gap.says] = figures.Duration(median)
		}
		cells[c.says+", "+wal] = "–" // etcd, Consul and Kubernetes write none
		if atRest, found := rest[c.system+", leading"]; found {
			cells[c.says+", "+wal] = perHour(atRest[walCell])
		}
	}
	for _, shards := range crowds {
		row := groups[shards]
		if len(row) < 11 {
			return fmt.Errorf("bench/RESULTS.md has no times of %s shards", shards)
		}
		for _, move := range moves {
			cells[shards+" shards, "+move.says], _, _ = strings.Cut(row[move.cell], ",") // the median
		}
		cells[shards+" shards, moves per restart"] += ", at most " + strings.TrimSpace(row[10])
	}
	return mistakeCells(page, cells)
}

// alternatives is the README's table: medians of the bench, with two digits.
func alternatives(records map[string]record) (string, error) {
	var b strings.Builder
	b.WriteString("|")
	for _, gap := range gaps {
		b.WriteString(" | " + gap.says)
	}
	b.WriteString(" | " + wal)
	b.WriteString(" |\n|---|--:|--:|--:|--:|--:|\n")
	for _, c := range compared {
		b.WriteString("| " + c.says)
		for _, gap := range gaps {
			b.WriteString(" | " + records["bench"].Figures[c.says+", "+gap.says])
		}
		b.WriteString(" | " + records["bench"].Figures[c.says+", "+wal] + " |\n")
	}
	fmt.Fprintf(&b, "\nMeasured by `make bench` at commit %s.\n", records["bench"].Commit)
	return b.String(), nil
}

// groups is the table of docs/shards.md: times and costs of the bench.
func groups(records map[string]record) (string, error) {
	var b strings.Builder
	b.WriteString("| shards")
	for _, move := range moves {
		b.WriteString(" | " + move.says)
	}
	b.WriteString(" |\n|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, shards := range crowds {
		b.WriteString("| " + thousands(shards))
		for _, move := range moves {
			b.WriteString(" | " + records["bench"].Figures[shards+" shards, "+move.says])
		}
		b.WriteString(" |\n")
	}
	fmt.Fprintf(&b, "\nMeasured by `make bench` at commit %s: medians.\n", records["bench"].Commit)
	return b.String(), nil
}

// modes are the rows of the table of failovers, and their names in e2e/ha/RESULTS.md.
var modes = []struct{ says, name string }{
	{"asynchronous", "async"},
	{"the same, through HAProxy", "proxied"},
	{"synchronous", "sync"},
	{"the same, `WithSynchronousStandby`", "guarded"},
}

var (
	failoverRow = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (\\w+) \\| \\d+ \\| [^|]+ \\| ([^|]+) \\| [^|]* \\| [^|]* \\| ([^|]+) \\|")
	routeBack   = regexp.MustCompile(`soon after its route led to a primary: held\. \d+ times; median ([^,]+), worst (\d+ ms|\d+\.\d s)\.`)
)

// failoverCells reads the costs of failovers: the longest of each mode.
func failoverCells(page string, figures map[string]string) error {
	longest := map[string]time.Duration{}
	keepLongest := func(name, text, fault string) {
		if length, err := time.ParseDuration(strings.ReplaceAll(text, " ", "")); err == nil && length > longest[name] {
			longest[name], figures[name] = length, text+" (`"+fault+"`)"
		}
	}
	for _, m := range modes {
		figures[m.name+", two believed"] = "0"
	}
	for _, row := range failoverRow.FindAllStringSubmatch(page, -1) {
		fault, mode := row[1], row[2]
		if fault == "crash" || fault == "switchover" {
			figures[mode+", `"+fault+"`"] = row[3]
		}
		keepLongest(mode+", the worst fault", row[3], fault)
		keepLongest(mode+", two believed", row[4], fault)
	}
	back := routeBack.FindStringSubmatch(page)
	if back == nil || strings.Contains(page, "BROKEN") {
		return errors.New("e2e/ha/RESULTS.md has broken promises, or does not say how soon somebody led again")
	}
	figures["back, median"], figures["back, worst"] = back[1], back[2]
	return nil
}

// failovers is the table of docs/servers.md.
func failovers(records map[string]record) (string, error) {
	figures := records["cluster"].Figures
	var b strings.Builder
	b.WriteString("| replication | `crash` | `switchover` | the worst fault | two believed |\n|---|---|---|---|---|\n")
	for _, m := range modes {
		fmt.Fprintf(&b, "| %s (%s)", m.says, m.name)
		for _, cost := range []string{"`crash`", "`switchover`", "the worst fault", "two believed"} {
			figure, found := figures[m.name+", "+cost]
			if !found { // a short run does not come to each fault
				figure = "not tried"
			}
			b.WriteString(" | " + figure)
		}
		b.WriteString(" |\n")
	}
	fmt.Fprintf(&b, "\nIf the last leader lives, somebody leads within %s of its route reaching a primary (median %s).\n",
		figures["back, worst"], figures["back, median"])
	cluster := steps[slices.IndexFunc(steps, func(s step) bool { return s.name == "cluster" })]
	fmt.Fprintf(&b, "Measured by `%s` at commit %s.\n", cluster.repeats(records["cluster"]), records["cluster"].Commit)
	return b.String(), nil
}

// rowsUnder returns the cells of the first table under a heading, by their first column.
func rowsUnder(page, heading string) map[string][]string {
	_, section, _ := strings.Cut(page, heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string][]string{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | "); len(cells) > 1 {
			rows[strings.TrimSpace(cells[0])] = cells[1:]
		}
	}
	return rows
}

func perHour(bytes string) string {
	value, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(bytes), ",", ""), 64)
	if err != nil || value == 0 {
		return strings.TrimSpace(bytes)
	}
	return figures.TwoDigits(value/1e6) + " MB/h"
}
