package main

import (
	"os"
	"regexp"
	"testing"
)

func TestThePicturesAreWhatTheirSourceDraws(t *testing.T) {
	for name, want := range pictures() {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s is not up to date (%v): run 'make docs'", name, err)
		}
	}
}

func TestTheArithmeticIsThatOfTheElector(t *testing.T) {
	source, err := os.ReadFile("../../internal/session/lease.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`DefaultLease\s*= 10 \* time.Second`, `marginShare\s*= 10 `, `drainShare\s*= 5 `, `heartbeatShare\s*= 5 `} {
		if !regexp.MustCompile(want).Match(source) {
			t.Errorf("lease.go says no longer %q, which the picture of the lease is drawn with", want)
		}
	}
}
