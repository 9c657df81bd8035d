package main

import (
	"fmt"
	"os"
	"slices"
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

func TestThePathIsThatOfTheSpineList(t *testing.T) {
	list, err := os.ReadFile("../../" + spineList)
	if got := pathFiles(string(list)); err != nil || !slices.Contains(got, "elector/term.go") || !slices.Contains(got, "internal/lock/*.go") {
		t.Errorf("got %q, %v", got, err)
	}
}
