package main

import (
	"errors"
	"path/filepath"
	"testing"
)

func TestTheVerdictNamesTheTestThatFailed(t *testing.T) {
	failed := errors.New("exit status 1")
	for _, tt := range []struct {
		out  string
		err  error
		want verdict
	}{
		{"--- FAIL: TestA (0.1s)\n--- FAIL: TestB (0.1s)\n", failed, "noticed by elector: TestA"},
		{"panic: index out of range", failed, "noticed by elector"},
		{"--- FAIL: TestA (0.1s)\n", errHangs, "noticed by elector, which hangs"},
	} {
		if got := noticedBy("elector", tt.out, tt.err); got != tt.want || !got.noticed() {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestVerdictsAreKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kept", "mutation.tsv")
	one, two := mutant{file: "f.go", change: "is left out", code: "f()"}, mutant{file: "f.go", change: "is left out", code: "f()", nth: 1}
	known, err := openVerdicts(name, true)
	if err != nil {
		t.Fatal(err)
	}
	known.set(one, missed)
	known.set(one, noticedBy("elector", "", errHangs))
	known.set(two, unreached)
	known.close()
	for _, again := range []bool{true, false} { // a fresh start keeps nothing
		known, err := openVerdicts(name, again)
		if err != nil {
			t.Fatal(err)
		}
		if known.get(one).noticed() != again || known.get(two).noticed() {
			t.Errorf("again %v: %q, %q", again, known.get(one), known.get(two))
		}
		known.close()
	}
}
