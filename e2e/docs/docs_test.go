// Package docs checks the documents: the table of options against package elector, links,
// figures, lengths, and the names of tests.
package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests use the same relative paths as the pages in docs/.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../docs"); err != nil {
		panic(err)
	}
	m.Run()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestThePageOfModesListsEachOption(t *testing.T) {
	var inCode, inTable []string
	files, err := filepath.Glob("../elector/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		inCode = append(inCode, found(t, file, `(?m)^func (With[A-Za-z]+)\(`)...)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(With[A-Za-z]+)\\(").FindAllStringSubmatch(section(t, "Options"), -1) {
		inTable = append(inTable, row[1])
	}
	slices.Sort(inCode)
	slices.Sort(inTable)
	if !slices.Equal(inCode, inTable) {
		t.Errorf("the code has  %v\nthe table has %v", inCode, inTable)
	}
}

// Each row names a figure of the table and its constant.
func TestThePageOfModesHasTheConstants(t *testing.T) {
	constants := constants(t, "../elector/options.go", "../elector/health.go", "../internal/lease/lease.go", "../internal/election/source.go")
	table := section(t, "Options")
	for _, c := range []struct{ row, says, name, value string }{
		{"WithLease", "| 10 s |", "defaultLease", "10 * time.Second"},
		{"WithLease", "| 1 s to 24 h, in whole", "minLease", "time.Second"},
		{"WithLease", "| 1 s to 24 h, in whole", "maxLease", "24 * time.Hour"},
		{"WithHeartbeatInterval", "lease/5", "heartbeatShare", "5"},
		{"WithHeartbeatInterval", "| at least 50 ms;", "minHeartbeat", "50 * time.Millisecond"},
		{"WithHeartbeatInterval", "at most 30 s", "maxHeartbeat", "30 * time.Second"},
		{"WithHeartbeatInterval", "lease/10", "marginShare", "10"},
		{"WithDrain", "| lease/5 |", "drainShare", "5"},
		{"WithRetryInterval", "| 3 s; 1 s with `Poll`", "defaultRetry", "3 * time.Second"},
		{"WithRetryInterval", "| 3 s; 1 s with `Poll`", "defaultPollRetry", "time.Second"},
		{"WithDeputyInterval", "| 100 ms,", "defaultDeputyInterval", "100 * time.Millisecond"},
		{"WithRetryInterval", "| 10 ms to 24 h |", "minRetry", "10 * time.Millisecond"},
		{"WithRetryInterval", "| 10 ms to 24 h |", "maxRetry", "24 * time.Hour"},
		{"WithBackoff", "else 1 s;", "defaultBackoff", "time.Second"},
		{"WithBackoff", "; 5 × that, at most 24 h |", "backoffGrowth", "5"},
		{"WithHealth", "minimum 0.5", "defaultMinimum", "0.5"},
		{"WithHealth", "a check each 1 s", "defaultInterval", "time.Second"},
		{"WithHealth", "3 in a row", "defaultInARow", "3"},
		{"WithHealth", "interval 10 ms to 1 h", "minInterval", "10 * time.Millisecond"},
		{"WithHealth", "interval 10 ms to 1 h", "maxInterval", "time.Hour"},
		{"WithHealth", "1 to 1000 in a row", "maxInARow", "1000"},
		{"WithCandidateID", "1 to 63 bytes", "maxCandidateID", "63"},
		{"", "1 to 1024 bytes", "maxElectionBytes", "1024"},
	} {
		if constants[c.name] != c.value {
			t.Errorf("%s is %q, and modes.md says %q", c.name, constants[c.name], c.says)
		}
		if !regexp.MustCompile(`(?m)^.*` + c.row + `.*` + regexp.QuoteMeta(c.says)).MatchString(table) {
			t.Errorf("%s is %s, but modes.md does not say %q of %s", c.name, c.value, c.says, c.row)
		}
	}
}

// Each row names a figure of docs/observing.md, of its picture or of the page, and its constant.
func TestTheRostersFiguresMatchTheConstants(t *testing.T) {
	constants := constants(t, "../roster/options.go", "../roster/ledger.go", "../roster/roster.go", "../roster/look.go", "../roster/writer.go",
		"../dashboard/options.go", "../dashboard/watch.go", "../dashboard/page.go", "../dashboard/text.go")
	documents := read(t, "observing.md") + read(t, "pictures/roster.svg") + strings.ReplaceAll(read(t, "../dashboard/dashboard.go"), "//", "")
	for _, c := range []struct{ says, name, value string }{
		{"publish interval (15 s)", "defaultInterval", "15 * time.Second"},
		{"and each 15 s", "defaultInterval", "15 * time.Second"},
		{"`WithPublishInterval` takes 1 s to 1 h", "minInterval", "time.Second"},
		{"`WithPublishInterval` takes 1 s to 1 h", "maxInterval", "time.Hour"},
		{"**A write has 5 s**", "maxTimeout", "5 * time.Second"},
		{"At most 1024 terms wait", "maxWaiting", "1024"},
		{"at most 1024 terms", "maxWaiting", "1024"},
		{"the last three intervals", "silentAfter", "3"},
		{"`WithRetention(30 days, 10 000 terms)`", "defaultAge", "30 * 24 * time.Hour"},
		{"`WithRetention(30 days, 10 000 terms)`", "defaultKeep", "10_000"},
		{"gone, for a day", "forgetAfter", "24 * time.Hour"},
		{"up to 1000 rows of each table once per hour", "maxRemoved", "1000"},
		{"up to 1000 rows of each table once per hour", "cleanUpEvery", "time.Hour"},
		{"refreshes itself each 10 s", "defaultRefresh", "10 * time.Second"},
		{"asks once per second", "freshFor", "time.Second"},
		{"After 5 s the page abandons", "lookTimeout", "5 * time.Second"},
		{"doubles, up to 5 min", "maxPause", "5 * time.Minute"},
		{"stuck, or 16", "maxStuckLooks", "16"},
		{"cut to 200 bytes", "maxText", "200"},
		{"20 pairs of metadata", "maxPairs", "20"},
		{"128 KiB of metadata in all", "maxOnPage", "128 << 10"},
		{"A page has 50 elections", "perPage", "50"},
		{"has at most 8192 bytes", "maxMetadata", "8 << 10"},
	} {
		if constants[c.name] != c.value || !strings.Contains(strings.Join(strings.Fields(documents), " "), c.says) {
			t.Errorf("%s is %q, but docs/observing.md, its picture or dashboard's doc comment must say %q", c.name, constants[c.name], c.says)
		}
	}
}

// constants returns the constants of the files, as written there.
func constants(t *testing.T, files ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range files {
		for _, line := range regexp.MustCompile(`(?m)^(?:\s+|const )([A-Za-z]+)\s+= ([^/\n]*[^/\s])`).FindAllStringSubmatch(read(t, name), -1) {
			all[line[1]] = line[2]
		}
	}
	return all
}

// pages returns the paths of the documents and of the results that they link to.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md", "../SECURITY.md"}
	for _, pattern := range []string{"*.md", "../e2e/*/RESULTS.md", "../e2e/BUGS.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, more...)
	}
	return all
}

func section(t *testing.T, heading string) string {
	t.Helper()
	_, from, found := strings.Cut(read(t, "modes.md"), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("modes.md has no section %q", heading)
	}
	text, _, _ := strings.Cut(from, "\n## ")
	return text
}

func TestThePageOfFeaturesNamesWhatExists(t *testing.T) {
	exists := map[string]bool{}
	for _, pattern := range []string{"../*/*.go", "../*/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, name := range found(t, file, `(?m)^(?:func |type |func \([^)]*\) |\t)([A-Z]\w+)\b`) {
				exists[name] = true
			}
		}
	}
	names := found(t, "features.md", "`(?:[A-Za-z]+\\.)?([A-Z]\\w+)`")
	if len(names) < 30 {
		t.Errorf("the page names only %q", names)
	}
	for _, name := range names {
		if !exists[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// A line of the page names the tests that assert it. They run on a real server, or in memory if the line says so.
func TestEachFeatureNamesATestOfTheKindThatItSays(t *testing.T) {
	there := testFiles(t)
	list, _, _ := strings.Cut(read(t, "features.md"), "\n## The tests behind")
	lines := strings.Split(list, "\n- ")[1:]
	if len(lines) < 40 {
		t.Errorf("the page has only %d lines", len(lines))
	}
	test := regexp.MustCompile("`(Test[A-Z]\\w*)`")
	for _, line := range lines {
		line, _, _ = strings.Cut(line, "\n\n")
		names := test.FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			t.Errorf("no test asserts %q", line)
		}
		for _, name := range names {
			file := there[name[1]]
			real := strings.HasPrefix(file, "../e2e/") || strings.HasPrefix(file, "../examples/")
			if inMemory := strings.Contains(line, "in memory: `"); file == "" || real == inMemory {
				t.Errorf("%s is in %q, and the line says in memory: %v", name[1], file, inMemory)
			}
		}
	}
}

// The pattern of a command in a document matches a test.
func TestEveryPatternOfTheDocsMatchesATest(t *testing.T) {
	there := testFiles(t)
	patterns := 0
	for _, page := range pages(t) {
		for _, match := range regexp.MustCompile(`\bRUN='?([\w|\\]+)`).FindAllStringSubmatch(read(t, page), -1) {
			for part := range strings.SplitSeq(strings.ReplaceAll(match[1], "\\", ""), "|") {
				patterns++
				if !slices.ContainsFunc(slices.Collect(maps.Keys(there)), func(name string) bool { return strings.Contains(name, part) }) {
					t.Errorf("%s: RUN=%s: no test has %q in its name", page, match[1], part)
				}
			}
		}
	}
	if patterns < 8 {
		t.Errorf("the documents have only %d patterns", patterns)
	}
}

// testFiles returns the file of each test.
func testFiles(t *testing.T) map[string]string {
	t.Helper()
	there := map[string]string{}
	for _, pattern := range []string{"../*/*_test.go", "../*/*/*_test.go", "../*/*/*/*_test.go", "../*/*/*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, name := range found(t, file, `(?m)^func ((?:Test|Fuzz)\w+)`) {
				there[name] = file
			}
		}
	}
	return there
}

// The badges are texts: no service computes them.
func TestTheBadgesSayWhatIsTested(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	majors := regexp.MustCompile(`(?m)^supported="(?:\d+ )+(\d+)"$`).FindStringSubmatch(read(t, "../scripts/matrix.sh"))
	oldest := regexp.MustCompile(`(?m)^const oldestServer = (\d+)0000 `).FindStringSubmatch(read(t, "../internal/preflight/check.go"))
	if version == nil || majors == nil || oldest == nil {
		t.Fatal("no version of Go in go.mod, no majors in scripts/matrix.sh, or no oldest server in the check")
	}
	readme := read(t, "../README.md")
	if want := "PostgreSQL " + oldest[1] + " or newer"; !strings.Contains(readme, want) || !strings.Contains(read(t, "servers.md"), want) {
		t.Errorf("the README, or the page of servers, does not say %q", want)
	}
	for _, badge := range []string{
		fmt.Sprintf("![Go %s or newer](https://img.shields.io/badge/Go-%[1]s_or_newer-", version[1]),
		fmt.Sprintf("![PostgreSQL %s to %s](https://img.shields.io/badge/PostgreSQL-%[1]s_to_%[2]s-", oldest[1], majors[1]), // 14 is of matrix.sh, too
	} {
		if !strings.Contains(readme, badge) {
			t.Errorf("the README has no badge %s", badge)
		}
	}
}

// The README says that it runs every test.
func TestMakeTestRunsTheTestsOfEachModule(t *testing.T) {
	script := read(t, "../scripts/test.sh")
	modules, err := filepath.Glob("../*/go.mod")
	below, errBelow := filepath.Glob("../*/*/go.mod")
	if err != nil || errBelow != nil || len(modules) < 4 || len(below) < 3 {
		t.Fatal(modules, below, err, errBelow)
	}
	for _, file := range append(modules, below...) {
		if module := strings.TrimPrefix(filepath.Dir(file), "../"); !regexp.MustCompile(`(?m)^ *(for module in|tested) .*\b` + module + `\b`).MatchString(script) {
			t.Errorf("scripts/test.sh does not run the tests of %s", module)
		}
	}
}

// Who copies the first program reads all of it.
func TestTheFirstProgramIsShort(t *testing.T) {
	_, program, found := strings.Cut(read(t, "../README.md"), "\nfunc main() {\n")
	body, _, ends := strings.Cut(program, "\n}\n")
	const limit = 20
	if lines := strings.Count(body, "\n") + 1; !found || !ends || lines > limit {
		t.Errorf("the README's first program has %d lines in main, want at most %d", lines, limit)
	}
}

// A newcomer reads the whole README, and one page for a question.
func TestTheReadmeAndThePagesAreShort(t *testing.T) {
	for page, limit := range map[string]int{"../README.md": 1500, "../CONTRIBUTING.md": 2500, "get-started.md": 880, "modes.md": 1450, "testing.md": 710,
		"fencing.md": 1200, "servers.md": 1960, "command.md": 1345, "how-it-works.md": 1560, "evidence.md": 640, "comparison.md": 700, "questions.md": 420, "operating.md": 1185, "runbook.md": 1600, "features.md": 745, "threats.md": 930,
		"observing.md": 2270, "migrating.md": 2200, "shards.md": 555, "recipes.md": 520, "migrations.md": 620, "protocol.md": 925, "proof.md": 900, "decisions.md": 700} {
		if n := len(strings.Fields(read(t, page))); n > limit {
			t.Errorf("%s has %d words, want at most %d", page, n, limit)
		}
	}
	all, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	const limit, proseLimit = 23_500, 12_300
	total, prose := 0, 0
	for _, page := range all {
		text := read(t, page)
		total += len(strings.Fields(text))
		prose += len(strings.Fields(notProse.ReplaceAllString(text, "")))
	}
	if total > limit || prose > proseLimit {
		t.Errorf("the pages have %d words together, and %d of prose; want at most %d and %d", total, prose, limit, proseLimit)
	}
}

// notProse is code, output, and rows of tables.
var notProse = regexp.MustCompile("(?ms)^ *```.*?^ *```$|^ *\\|[^\n]*")

var (
	link    = regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)" ]+)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
)

// A path of the machine that measured, or that somebody wrote on, says nothing to a reader.
func TestNoDocumentNamesADirectoryOfAMachine(t *testing.T) {
	machine := regexp.MustCompile(`(?:^|[^\w.])/(?:tmp|work|home|root|Users)/\S*`)
	for _, page := range append(pages(t), "../bench/RESULTS.md", "../bench/README.md", "../bench/results.json") {
		if found := machine.FindString(read(t, page)); found != "" {
			t.Errorf("%s names %q", page, strings.TrimSpace(found))
		}
	}
	if machine.FindString("`go run . -out /tmp/results`") == "" {
		t.Error("a path is not found")
	}
}

func TestEveryLinkOfTheDocsHasATarget(t *testing.T) {
	for _, page := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, page), ""), -1) {
			if err := follow(page, match[1]); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

func follow(page, to string) error {
	if strings.HasPrefix(to, "https://") {
		return nil
	}
	file, anchor, _ := strings.Cut(to, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
	}
	text, err := os.ReadFile(target)
	if info, statErr := os.Stat(target); statErr == nil && info.IsDir() && anchor == "" {
		return nil
	}
	if err != nil || anchor == "" {
		return err
	}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		if slug(h[1]) == anchor {
			return nil
		}
	}
	return fmt.Errorf("%s has no heading for #%s", target, anchor)
}

// slug returns the anchor that GitHub generates for a heading.
func slug(heading string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// found returns the groups of a pattern's matches in a file, sorted.
func found(t *testing.T, file, pattern string) (all []string) {
	t.Helper()
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
		all = append(all, strings.Join(match[1:], " "))
	}
	slices.Sort(all)
	return all
}

// Tests of the packages compare the packages' tables with the code.
func TestTheTableOfMetricsMatchesThePackages(t *testing.T) {
	for _, tt := range []struct{ page, source, code string }{
		{"(?m)^\\| `(pgelector_\\w+)` \\|[^|]*\\| (\\w+) \\|", "../hooks/prometheus/prometheus.go", `(?m)^//\t(pgelector_\w+) +(gauge|counter|histogram) `},
		{"(?m)^\\| `pgelector_\\w+` \\| `(pgelector[\\w.]+)` \\| (\\w+) \\|", "../hooks/otel/otel.go", `(?m)^//\t(pgelector\.[\w.]+) +(gauge|counter|histogram) `},
	} {
		page, code := found(t, "observing.md", tt.page), found(t, tt.source, tt.code)
		if len(code) == 0 || !slices.Equal(page, code) {
			t.Errorf("the page has %q\n%s has %q", page, tt.source, code)
		}
	}
}

func TestTheTableOfMetricsListsEachValueOfALabel(t *testing.T) {
	page := read(t, "observing.md")
	for _, value := range found(t, "../hooks/events.go", `(?m)^\t\w+ +(?:Reason|Op|Outcome) += "(\w+)"`) {
		if !strings.Contains(page, "`"+value+"`") {
			t.Errorf("the page does not list %q", value)
		}
	}
}

// The page shows an answer of the health endpoints.
func TestThePageShowsEachKeyOfAHealthReport(t *testing.T) {
	page := read(t, "observing.md")
	for _, key := range found(t, "../health/report.go", `json:"(\w+)`) {
		if !strings.Contains(page, `"`+key+`": `) {
			t.Errorf("the page does not show %q", key)
		}
	}
}

func TestTheAlertsOfTheRunbookMatchTheRules(t *testing.T) {
	page := found(t, "runbook.md", `(?m)^### (Pgelector\w+)\n\n\*\*(\w+)\.\*\*`)
	rules := found(t, "../hooks/prometheus/alerts.yaml", `(?s)- alert: (\w+)\n.*?severity: (\w+)`)
	if len(rules) == 0 || !slices.Equal(page, rules) {
		t.Errorf("the page has %q\nthe rules are %q", page, rules)
	}
	for _, rule := range rules {
		name, _, _ := strings.Cut(rule, " ")
		url := "runbook_url: https://github.com/pgelector/pgelector/blob/main/docs/runbook.md#" + strings.ToLower(name) + "\n"
		if !strings.Contains(read(t, "../hooks/prometheus/alerts.yaml"), url) {
			t.Errorf("%s has no %q", name, url)
		}
	}
}

// Errors, log lines and help name anchors of the runbook.
func TestTheRunbookHasEachAnchorThatTheCodeNames(t *testing.T) {
	named := 0
	for _, pattern := range []string{"../*/*.go", "../*/*/*.go", "../*/*/*/*.go", "../hooks/prometheus/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, anchor := range found(t, file, `docs/runbook\.md#([a-z-]+)`) {
				named++
				if err := follow("runbook.md", "#"+anchor); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
	if named < 15 {
		t.Errorf("only %d anchors are named", named)
	}
}

// The documents of the adapters list the lines.
func TestTheRunbookHasEachLineThatMayAskForActionAndEachExitCode(t *testing.T) {
	page := read(t, "runbook.md")
	lines := found(t, "../hooks/slog/slog.go", `(?m)^//\t(?:warn|error) +(\S+(?: \S+)*)  +`)
	for _, line := range slices.Compact(lines) {
		line, _, _ = strings.Cut(line, "  ")
		if !strings.Contains(page, line) {
			t.Errorf("the page does not have the line %q", line)
		}
	}
	codes := found(t, "command.md", `(?m)^\| (\d+) \| `)
	if len(lines) < 15 || len(codes) < 8 {
		t.Errorf("there are only %q and %q", lines, codes)
	}
	for _, code := range codes {
		if !regexp.MustCompile(`(?m)^\| (?:\d+, )*` + code + `(?:, \d+)* \| `).MatchString(page) {
			t.Errorf("the page does not have the exit code %s", code)
		}
	}
}

// A document that names a test must name an existing one, and each bug has a test.
func TestEveryTestThatADocumentNamesExists(t *testing.T) {
	there := testFiles(t)
	test := regexp.MustCompile("`(Test[A-Z]\\w*)`")
	for _, page := range pages(t) {
		for _, match := range test.FindAllStringSubmatch(read(t, page), -1) {
			if there[match[1]] == "" {
				t.Errorf("%s names %s, which does not exist", page, match[1])
			}
		}
	}
	_, bugs, _ := strings.Cut(read(t, "../e2e/BUGS.md"), "\n|---|---|---|\n")
	for row := range strings.Lines(bugs) {
		if cells := strings.Split(row, " | "); len(cells) != 3 || !test.MatchString(cells[2]) {
			t.Errorf("BUGS.md names no test of %q", row)
		}
	}
}
