//go:build unix

package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestAFilmPlaysEachLineWhenItCameAndHasAStill(t *testing.T) {
	svg := play([]shot{{0, "Scene 1: <first>"}, {2 * time.Second, "  => C leads"}})
	for _, want := range []string{"Scene 1: &lt;first&gt;", "0.000%{transform:translateY(378px)}", "25.000%{transform:translateY(360px)}", "animation:film 8.0s step-end infinite",
		"prefers-reduced-motion: reduce){g{animation:none}}", "g{transform:translateY(360px);", `class="g">  =&gt; C leads`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the film does not have %q:\n%s", want, svg)
		}
	}
}

// Written by `make record`.
func TestTheFilmOfTheDemoHasItsScenesAndItsProof(t *testing.T) {
	text, err := os.ReadFile("../../docs/pictures/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Scene 1: first election", "Scene 8: a write that came too late", "no two led at once", "prefers-reduced-motion", "@keyframes film"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it does not have %q: run make record", want)
		}
	}
}
