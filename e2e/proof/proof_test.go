package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// No document has a figure that the committed proofs have not.
func TestThePagesHaveTheFigures(t *testing.T) {
	t.Chdir("../..")
	for page, table := range pages {
		have, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		want, err := withTable(string(have), table)
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		if string(have) != want {
			t.Errorf("%s has other figures: run 'go -C e2e run ./proof'", page)
		}
	}
}

var measured = regexp.MustCompile(`\b[Cc]ommit [0-9a-f]{7}\b`)

// Whoever measures something for a document adds a step, and has the table written.
func TestNoDocumentNamesItsOwnCommits(t *testing.T) {
	t.Chdir("../..")
	documents, err := filepath.Glob("docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatal(documents, err)
	}
	for _, page := range append(documents, "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		prose := string(text)
		if pages[page] != nil {
			if prose, err = withTable(prose, func() (string, error) { return "", nil }); err != nil {
				t.Fatal(err)
			}
		}
		if found := measured.FindString(prose); found != "" {
			t.Errorf("%s names the %s outside the tables of make proof", page, found)
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
