package main

import "testing"

// Whether a mutant still needs its reason only a run of the rules says.
func TestEachReasonNamesMutantsThatExist(t *testing.T) {
	reasons, err := parseReasons(reasonsText)
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := mutantsOf("../..")
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, m := range all {
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
