package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// No document has a figure that the committed proofs have not.
func TestThePagesHaveTheFigures(t *testing.T) {
	t.Chdir("../..")
	records, err := readRecords()
	if err != nil {
		t.Fatal(err)
	}
	for page, table := range pages {
		have, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		made, err := table(records)
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		if want, err := withTable(string(have), made); err != nil || string(have) != want {
			t.Errorf("%s has other figures: run 'go -C e2e run ./proof' (%v)", page, err)
		}
	}
	for _, s := range steps {
		r := records[s.name]
		if s.page == "" {
			continue
		}
		figures := maps.Clone(r.Figures)
		if err := s.read(figures); err != nil || !maps.Equal(figures, r.Figures) {
			t.Errorf("%s has other figures than %s: run 'go -C e2e run ./proof' (%v)", s.page, recordsFile, err)
		}
	}
}

// given are the figures in the prose of the documents, outside code: those of settings and
// formats, and what follows from them. Nobody has measured one.
var given = map[string]string{
	"CHANGELOG.md":         "100 ms, 250 ms, 3 s, 10 s, 2.1 MB, 2.6 MB",
	"README.md":            "250 ms, 1 s, 2 s, 3 s, 7 s, 15 s",
	"bench/README.md":      "0.5 s, 200 times, 10,000",
	"docs/command.md":      "100 ms, 200 ms, 1 s, 3 s, 5 s, 10 s",
	"docs/get-started.md":  "2 s",
	"docs/how-it-works.md": "50 ms, 250 ms, 334 ms",
	"docs/modes.md":        "10 ms, 50 ms, 100 ms, 1 s, 3 s, 5 s, 10 s, 10.1 s, 30 s, 1 min, 1 h, 24 h, 63 bytes, 1024 bytes, 2 ×, 5 ×",
	"docs/observing.md":    "1 s, 5 s, 10 s, 15 s, 1 h, 200 bytes, 8192 bytes, 1024 terms",
	"docs/operating.md":    "100 ms, 250 ms, 3 s, 75 s, 15 minutes",
	"docs/protocol.md":     "10 s, 8 bytes, 63 bytes",
	"docs/migrating.md":    "1 s, 2 s, 3 s, 5 s, 7 s, 10 s, 15 s, 30 s, 60 s, 100 ms",
	"docs/proof.md":        "100 ms, 500 ms",
	"docs/runbook.md":      "15 minutes",
	"docs/servers.md":      "3 s, 5 s, 10 s, 12 s, 15 s, 30 s, 31 s, 60 s, 100 bytes, 0.7 ×",
	"docs/shards.md":       "10,000",
	"docs/testing.md":      "30 s",
	"e2e/BUGS.md":          "50 ms, 100 ms, 200 ms, 500 ms, 10 s",
}

var (
	code   = regexp.MustCompile("(?ms)^ *```.*?^ *```$|`[^`]*`|\\]\\([^)]*\\)")
	figure = regexp.MustCompile(`\d(?:[\d.,]*\d)?\s?(?:[nµm]?s|min|h|[KM]i?B(?:/h)?|bytes|%|×|times|terms|faults|seeds|states|writes|freezes|mutants|targets|` +
		`minutes|hours|seconds|days|statements)(?:\b|[^\w]|$)|\b\d{1,3}(?:,\d{3})+|\b\d+ of \d+|\b[Cc]ommit [0-9a-f]{7}\b`)
)

// strays returns the figures of a document that neither a table of make proof has nor given.
func strays(page, text string) (all []string, err error) {
	if pages[page] != nil {
		if text, err = withTable(text, ""); err != nil {
			return nil, err
		}
	}
	for _, found := range figure.FindAllString(code.ReplaceAllString(text, ""), -1) {
		found = strings.Join(strings.Fields(strings.TrimRight(found, ".,:;)|*- \n")), " ")
		if !slices.Contains(strings.Split(given[page], ", "), found) {
			all = append(all, found)
		}
	}
	return all, nil
}

// Whoever measures something for a document adds a step, and has the table written.
func TestNoDocumentHasAFigureOfItsOwn(t *testing.T) {
	t.Chdir("../..")
	documents, err := filepath.Glob("docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatal(documents, err)
	}
	for _, page := range append(documents, "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "bench/README.md", "e2e/BUGS.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found, err := strays(page, string(text))
		if err != nil || len(found) > 0 {
			t.Errorf("%s has %q outside the tables of make proof: %v", page, found, err)
		}
		for _, wrong := range []string{"takes 57 ms", "in 99.1 % of", "65 of 66 tests", "at commit 1234567", "12,345 writes"} {
			if found, _ := strays(page, string(text)+wrong); len(found) != 1 {
				t.Errorf("%s may say %q", page, wrong)
			}
		}
	}
}

func TestFiguresAreFound(t *testing.T) {
	s := step{patterns: []string{`(?P<count_weak>ok  without)`, `(?P<states>\d+) states`, `version (?P<list_versions>\S+)`}}
	got, err := s.figures("ok  without\nok  without\n5 states\n6 states\nversion 14.1\nversion 15.2\n")
	if err != nil || got["weak"] != "2" || got["states"] != "6" || got["versions"] != "14.1, 15.2" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := s.figures("6 states"); err == nil {
		t.Error("a missing figure is no error")
	}
}

// A bar in a command would begin another cell.
func TestEachRowOfTheEvidenceHasFourCells(t *testing.T) {
	t.Chdir("../..")
	records, err := readRecords()
	if err != nil {
		t.Fatal(err)
	}
	table, err := evidence(records)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table) {
		if bars := strings.Count(line, "|") - strings.Count(line, `\|`); bars != 0 && bars != 5 {
			t.Errorf("%d bars: %s", bars, line)
		}
	}
}

func TestTheMistakesAreRead(t *testing.T) {
	page := "## Terms lost by mistake\n\n| system | a | b | commit |\n| --- | ---: | ---: | ---: |\n| pgelector default, pgx | none | %s | 1234567 |\n"
	for cell, want := range map[string]string{"none": "none, under each of 2 strains", "**7**": "none (a); **7** (b)"} {
		cells := map[string]string{}
		if err := mistakeCells(strings.ReplaceAll(page, "%s", cell), cells); err != nil || cells[mistakes] != want || cells[mistakesAt] != "1234567" {
			t.Errorf("got %v, %v, want %q", cells, err, want)
		}
	}
	if err := mistakeCells("", map[string]string{}); err == nil {
		t.Error("a page without them is no error")
	}
}

func TestTheCostsOfFailoversAreRead(t *testing.T) {
	page := "| `crash` | async | 3 | 70 ms | 1.2 s | 42 ms | 83 ms | 2.5 s | 293 | 0 | 0 |\n" +
		"- an election whose leader lived had one again soon after its route led to a primary: held. 67 times; median 55 ms, worst 1.1 s.\n"
	figures := map[string]string{}
	if err := failoverCells(page, figures); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"async, `crash`": "1.2 s", "async, the worst fault": "1.2 s (`crash`)", "async, two believed": "2.5 s (`crash`)", "sync, two believed": "0",
		"back, median": "55 ms", "back, worst": "1.1 s",
	} {
		if figures[name] != want {
			t.Errorf("%s: %q, not %q", name, figures[name], want)
		}
	}
	if err := failoverCells(page+"- tokens rose strictly: **BROKEN, 1 times**. 5 terms.\n", figures); err == nil {
		t.Error("a page with a broken promise has figures")
	}
}

// The record of a step that has become shorter says how long the longer command took.
func TestAStepTakesTheMinutesOfItsLastRunIfTheCommandIsTheSame(t *testing.T) {
	s := step{command: "make model", minutes: 3}
	for minutes, r := range map[int]record{5: {Command: "make model", Minutes: 5}, 3: {Command: "make model RUNS=9", Minutes: 79}} {
		if got := s.about(r); got != minutes {
			t.Errorf("after %+v the step takes %d minutes, not %d", r, got, minutes)
		}
	}
	if got := s.about(record{}); got != 3 {
		t.Errorf("a step that has never run takes %d minutes", got)
	}
}

// A step runs again after a change of the library, and of its own folders.
func TestAStepIsOfItsCode(t *testing.T) {
	none, library := step{}.code(nil), []string{"internal/election/lock.go", "queries/try.sql", "go.mod", "db/try.sql.go"}
	for _, c := range []struct {
		step    string
		changes []string
		again   bool
	}{
		{"bench", append(library, "bench/main.go", "bench/internal/systems/elector.go"), true},
		{"bench", []string{"elector/own_test.go", "e2e/fleet/fleet.go", "sqlmock_test/own_test.go", "docs/modes.md", "bench/results.json", "bench/internal/report/goals.go"}, false},
		{"torture", append(library, "e2e/torture/main.go", "e2e/fleet/fleet.go"), true},
		{"torture", []string{"e2e/fleet_test.go", "bench/main.go", "cmd/pgelector/main.go", "health/health.go", "hooks/otel/otel.go", "shard/member.go", "electortest/conn.go"}, false},
		{"soak", append(library, "shard/member.go", "e2e/soak_test.go"), true},
		{"soak", []string{"cmd/pgelector/main.go", "scripts/test.sh"}, false},
		{"simulation", append(library, "electortest/conn.go", "hooks/hooks.go", "hooks/hookstest/wait.go", "shard/member.go"), true},
		{"matrix", append(library, "cmd/pgelector/main.go", "e2e/fleet_test.go", "e2e/go.mod", "scripts/test.sh"), true},
		{"matrix", []string{"README.md", "e2e/proof/proof.json", "e2e/mutation/list.txt"}, false},
		{"path", append(library, "internal/lock/confirm_test.go"), true},
		{"fuzzing", append(library, "internal/backoff/backoff_test.go", "e2e/history/proof_test.go"), true},
		{"fuzzing", []string{"e2e/fleet_test.go", "shard/own_test.go"}, false},
		{"coverage", append(library, "Makefile"), true},
	} {
		of := named(c.step)
		for _, name := range c.changes {
			if again := of.code([]string{"100644 blob 0\t" + name + "\n"}) != none; again != c.again {
				t.Errorf("a change of %s runs the step %s again: %v", name, c.step, again)
			}
		}
	}
}

func named(name string) step {
	return steps[slices.IndexFunc(steps, func(s step) bool { return s.name == name })]
}

// A change of what a step imports runs it again.
func TestAStepIsOfAllThatItImports(t *testing.T) {
	t.Chdir("..")
	for name, packages := range map[string]string{"torture": "./torture", "replay": "./replay/record", "cluster": "./ha", "simulation": "./simulation", "soak": ".", "matrix": "."} {
		all, err := exec.Command("go", "list", "-deps", "-test", packages).Output()
		if err != nil {
			t.Fatal(err)
		}
		for path := range strings.Lines(string(all)) {
			path, own := strings.CutPrefix(strings.Fields(path)[0], "github.com/pgelector/pgelector/")
			if file := path + "/any.go"; own && !strings.HasSuffix(path, ".test") && !named(name).uses(file) {
				t.Errorf("%s imports %s: a change of it must run the step again", name, path)
			}
		}
	}
	folders, err := os.ReadDir("../bench/internal") // another module
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if file := "bench/internal/" + folder.Name() + "/any.go"; folder.Name() != "report" && !named("bench").uses(file) {
			t.Errorf("the bench measures with %s: a change of it must run it again", file)
		}
	}
}
