package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestADrawDependsOnNothingButTheSeedAndTheMutants(t *testing.T) {
	var all []mutant
	for i := range 1000 {
		all = append(all, mutant{number: i + 1, file: "p/f.go", change: "is left out", code: fmt.Sprint("f", i)})
	}
	first := draw(all, 200, 1)
	if len(first) != 200 || !slices.Equal(first, draw(all, 200, 1)) || slices.Equal(first, draw(all, 200, 2)) || len(draw(all, 0, 1)) != 1000 {
		t.Error("the draw is none")
	}
	kept := 0
	for _, m := range draw(all[10:], 200, 1) { // ten are gone: the others are drawn again
		if slices.Contains(first, m) {
			kept++
		}
	}
	if kept < 190 {
		t.Errorf("%d of 200 were drawn again", kept)
	}
}

// Those that the kernel imports, as scripts/imports.sh has it.
func TestThePathIsTheKernelAndWhatItStandsOn(t *testing.T) {
	rules, err := os.ReadFile("../../scripts/imports.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, under, _ := strings.Cut(string(rules), "\nunder='")
	under, _, _ = strings.Cut(under, "'")
	if got, want := slices.Sorted(slices.Values(kernel)), slices.Sorted(slices.Values(append(strings.Fields(under), "internal/election"))); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
