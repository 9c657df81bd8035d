package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// pages are the documents with a table of figures, and what makes each one.
var pages = map[string]func() (string, error){
	"docs/evidence.md": evidence,
	"docs/shards.md":   groups,
	"README.md":        alternatives,
}

// The tables stand between these lines.
const begin, end = "<!-- make proof writes this table -->\n", "<!-- end -->"

func writePages() error {
	for page, table := range pages {
		have, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		want, err := withTable(string(have), table)
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// withTable returns the page with the table that it must have.
func withTable(page string, table func() (string, error)) (string, error) {
	before, rest, found := strings.Cut(page, begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return "", fmt.Errorf("it has no lines %q and %q", begin, end)
	}
	made, err := table()
	return before + begin + made + end + after, err
}

// evidence is the table of the page of evidence.
func evidence() (string, error) {
	records, err := readRecords()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| what | how much | command | commit |\n|---|---|---|---|\n")
	for _, s := range steps {
		r, proved := records[s.name]
		switch {
		case s.says == "":
			continue
		case !proved:
			return "", fmt.Errorf("%s has no figures of %s", recordsFile, s.name)
		}
		says := s.says
		for name, value := range r.Figures {
			says = strings.ReplaceAll(says, "{"+name+"}", thousands(value))
		}
		if strings.Contains(says, "{") {
			return "", fmt.Errorf("%s: no figure for %s", s.name, says)
		}
		command := s.command
		if s.repeat != "" {
			command = s.repeat
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", s.what, says, command, r.Commit)
	}
	return b.String(), nil
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
	{"pgelector, `WithStandby(Wait)`", "pgelector wait, pgx"},
	{"pgelector, `Wait`, `WithWatch`, lease 1 s", "pgelector fastest, pgx"},
	{"bare `pg_advisory_lock`", "raw lock, pgx"},
	{"lease table: goose, lease 1 s", "goose table, fastest"},
	{"lease table: vault, lease 15 s", "vault HA lock"},
	{"river, lease 15 s", "river"},
	{"etcd, default, TTL 60 s", "etcd, default"},
	{"etcd, fastest, TTL 2 s", "etcd, fastest"},
}

// alternatives is the README's table: medians of the bench, with two digits.
func alternatives() (string, error) {
	results, err := os.ReadFile("bench/RESULTS.md")
	if err != nil {
		return "", err
	}
	times := rowsUnder(string(results), "## Time without a leader")
	rest := rowsUnder(string(results), "## Cost at rest")
	var b strings.Builder
	b.WriteString("| | clean resignation | `kill -9` | process frozen | link cut | WAL at rest |\n|---|--:|--:|--:|--:|--:|\n")
	for _, c := range compared {
		row, found := times[c.system]
		if !found || len(row) < 6 {
			return "", fmt.Errorf("bench/RESULTS.md has no times of %q", c.system)
		}
		wal := "–" // etcd writes none
		if atRest, found := rest[c.system+", leading"]; found {
			wal = perHour(atRest[4])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", c.says, median(row[0]), median(row[1]), median(row[4]), median(row[5]), wal)
	}
	records, err := readRecords()
	fmt.Fprintf(&b, "\nMeasured by `make bench` at commit %s.\n", records["bench"].Commit)
	return b.String(), err
}

// groups is the table of docs/shards.md: times and costs of the bench.
func groups() (string, error) {
	results, err := os.ReadFile("bench/RESULTS.md")
	if err != nil {
		return "", err
	}
	rows := rowsUnder(string(results), "## Groups of shards")
	var b strings.Builder
	b.WriteString("| shards | members | even after a join | a leave | `kill -9` | statements/s per member | moves per restart |\n" +
		"|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, shards := range []string{"1000", "10000"} {
		row := rows[shards]
		if len(row) < 11 {
			return "", fmt.Errorf("bench/RESULTS.md has no times of %s shards", shards)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s, at most %s |\n", thousands(shards), row[0], row[2], row[3], row[4], row[5], row[9],
			strings.TrimSpace(row[10]))
	}
	records, err := readRecords()
	fmt.Fprintf(&b, "\nMeasured by `make bench` at commit %s, one sample each.\n", records["bench"].Commit)
	return b.String(), err
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

var first = regexp.MustCompile(`^\s*\*\*([\d.]+) (ms|s)\*\*`)

// median is the median of a cell, with two digits, or its first word: never, n/a.
func median(cell string) string {
	m := first.FindStringSubmatch(cell)
	if m == nil {
		word, _, _ := strings.Cut(strings.TrimSpace(cell), ",")
		return word
	}
	value, _ := strconv.ParseFloat(m[1], 64)
	unit := m[2]
	if unit == "ms" && value >= 100 {
		value, unit = value/1000, "s"
	}
	return twoDigits(value) + " " + unit
}

func perHour(bytes string) string {
	value, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(bytes), ",", ""), 64)
	if err != nil || value == 0 {
		return strings.TrimSpace(bytes)
	}
	return twoDigits(value/1e6) + " MB/h"
}

func twoDigits(value float64) string {
	switch {
	case value >= 10:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 1:
		return strconv.FormatFloat(value, 'f', 1, 64)
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}
