package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant that no longer fits the code would be noticed only by make mutate,
// which takes minutes.
func TestEveryMutantOfTheListFitsTheCode(t *testing.T) {
	all, err := parseList(listText)
	if err != nil || len(all) < 20 {
		t.Fatalf("%d mutations, %v", len(all), err)
	}
	for _, m := range all {
		source, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err == nil {
			_, err = m.apply(string(source))
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestAMutantThatCannotBeAppliedIsAnError(t *testing.T) {
	m := listed{what: "broken", file: "f.go", out: "a", in: "b"}
	for source, want := range map[string]string{"": "stand 0 times", "aa": "stand 2 times"} {
		if _, err := m.apply(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", source, err)
		}
	}
	if got, err := m.apply("xay"); got != "xby" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, text := range []string{"what\n-a\n+b\n", "what\nfile\n+b\n", "what\nfile\n-a\n+a\n"} {
		if _, err := parseList(text); err == nil {
			t.Errorf("parsed %q", text)
		}
	}
}
