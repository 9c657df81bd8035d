package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAMutantIsNoticedOrThereIsAReasonOrItWantsATest(t *testing.T) {
	_, mutants, err := plant("elector/p.go", []byte("package p\nfunc f() {\n\ta()\n\tb()\n\tc()\n\td()\n}\n"), 1)
	if err != nil {
		t.Fatal(err)
	}
	known, err := openVerdicts(filepath.Join(t.TempDir(), "kept"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer known.close()
	known.set(mutants[0], noticedBy("elector", "", nil))
	known.set(mutants[1], missed)
	known.set(mutants[2], unreached)
	reasons, err := parseReasons("# It only logs\n\n" + mutants[0].key() + "\n" + mutants[1].key() + "\n# Nobody asks\nelector\tgone.go\tis left out\tf()\t0\n")
	if err != nil {
		t.Fatal(err)
	}
	c := count(mutants, known, reasons)
	if c.planted["elector"] != 4 || c.noticed["elector"] != 1 || c.untried != 1 || len(c.explained[0]) != 1 || len(c.explained[1]) != 0 || len(c.unexplained) != 1 {
		t.Errorf("got %+v", c)
	}
	if got := needless(reasons, mutants, known); !slices.Equal(got, []string{mutants[0].key(), "elector\tgone.go\tis left out\tf()\t0"}) {
		t.Errorf("no reason is needed for %q", got)
	}
	page := writeList([]listed{{what: "A wait is skipped", file: "elector/p.go", verdict: noticedBy("elector", "--- FAIL: TestWait", nil)}}) + writeRules(c, reasons)
	for _, want := range []string{
		"| A wait is skipped | `elector/p.go` | elector: TestWait |\n",
		"**Of 4 mutants tests notice 1. For 1 there is a reason why not, 1 want a test, and 1 were not tried.**",
		"| elector | 4 | 1 |",
		"### Wants a test\n\n| package | line | code | |\n|---|---|---|---|\n| elector | p.go:5 | `c()` | is left out |\n",
		"### It only logs\n\n| package | line | code | |\n|---|---|---|---|\n| elector | p.go:4 | `b()` | is left out |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("want %q in\n%s", want, page)
		}
	}
}

func TestAMutantHasOneReason(t *testing.T) {
	for _, text := range []string{"a\tb\n", "# Once\na\tb\n# Twice\na\tb\n"} {
		if _, err := parseReasons(text); err == nil {
			t.Errorf("took %q", text)
		}
	}
	if _, err := parseReasons(reasonsText); err != nil {
		t.Error(err)
	}
}
