package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// allMutants returns the mutants of the rules in the code as it is, without planting them.
func allMutants(t *testing.T) (all []mutant) {
	t.Helper()
	for _, folder := range broken {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, mutants, err := plant(strings.TrimPrefix(filepath.ToSlash(file), "../../"), source, len(all)+1)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, mutants...)
		}
	}
	return all
}

// Whether a mutant still needs its reason only a run of the rules says.
func TestEachReasonNamesMutantsThatExist(t *testing.T) {
	reasons, err := parseReasons(reasonsText)
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, m := range allMutants(t) {
		exists[m.key()] = true
	}
	if len(exists) < 1000 {
		t.Fatalf("%d mutants", len(exists))
	}
	for _, r := range reasons {
		if len(r.of) == 0 {
			t.Errorf("the reason %q is of no mutant", r.text)
		}
		for _, key := range r.of {
			if !exists[key] {
				t.Errorf("no mutant is %q", key)
			}
		}
	}
}
