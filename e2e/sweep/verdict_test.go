package main

import (
	"path/filepath"
	"testing"
)

func TestASweepGoesOnFromWhatIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kept", "sweep.tsv")
	if _, err := openVerdicts(name, true); err == nil {
		t.Error("went on from nothing")
	}
	one, two := mutant{file: "f.go", change: "is left out", code: "f()"}, mutant{file: "f.go", change: "is left out", code: "f()", nth: 1}
	known, err := openVerdicts(name, false)
	if err != nil {
		t.Fatal(err)
	}
	known.set(one, missed)
	known.set(one, noticedBy("elector", errHangs))
	known.set(two, unreached)
	known.close()
	for _, again := range []bool{true, false} { // the other way round nothing is left
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
