package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// found are the first groups of a pattern's matches in a file, sorted.
func found(t *testing.T, file, pattern string) (all []string) {
	t.Helper()
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
		all = append(all, strings.Join(match[1:], " "))
	}
	slices.Sort(all)
	return all
}

// The tables of the packages are held to the code by their own tests.
func TestTheTableOfMetricsIsThatOfThePackages(t *testing.T) {
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

func TestTheTableOfAlertsIsThatOfTheRules(t *testing.T) {
	page := found(t, "observing.md", "(?m)^\\| `(Pgelector\\w+)` \\| (\\w+) \\|")
	rules := found(t, "../hooks/prometheus/alerts.yaml", `(?s)- alert: (\w+)\n.*?severity: (\w+)`)
	if len(rules) == 0 || !slices.Equal(page, rules) {
		t.Errorf("the page has %q\nthe rules are %q", page, rules)
	}
}
